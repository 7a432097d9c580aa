package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// FromReference maps the "config" and "optimizer" objects of a reference case (Megatron's keys, as encoding/json decodes
// them) to the structs. It takes exactly what a scenario file takes: every other key or value is a problem with its
// reason. Parallel sizes are 1.
func FromReference(config, optimizer map[string]any) (Model, Optimizer, Problems) {
	root := &node{kind: mapping, pairs: []pair{
		{key: "model", value: objectNode(config)}, {key: "optimizer", value: objectNode(optimizer)},
	}}
	d := newDecoder()
	s := Defaults()
	d.structureOf(root, &s)
	c := &checker{s: &s, marks: d.marks, bad: d.bad, problems: d.problems}
	s.Model.derive(c.given)
	c.values("model", "optimizer")
	c.model()
	c.optimizer()
	if s.Model.PaddedVocabSize == 0 {
		sp := specOf("model.padded_vocab_size")
		c.fail(sp.key, "required key is missing; expected "+expected(sp, reflect.TypeFor[int]()))
	}
	return s.Model, s.Optimizer, c.problems.tidy()
}

// objectNode is a JSON object as a node, keys in order.
func objectNode(object map[string]any) *node {
	n := &node{kind: mapping}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		n.pairs = append(n.pairs, pair{key: key, value: jsonNode(object[key])})
	}
	return n
}

// jsonNode is a decoded JSON value as a node.
func jsonNode(v any) *node {
	switch x := v.(type) {
	case nil:
		return &node{tag: "!!null"}
	case bool:
		return &node{tag: "!!bool", text: strconv.FormatBool(x)}
	case string:
		return &node{tag: "!!str", text: x, quote: true}
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return &node{tag: "!!str", text: fmt.Sprint(x)}
		}
		return &node{tag: "!!float", text: number(x)}
	case int:
		return &node{tag: "!!int", text: strconv.Itoa(x)}
	case json.Number:
		return &node{tag: "!!float", text: x.String()}
	case map[string]any:
		return objectNode(x)
	case []any:
		n := &node{kind: list}
		for _, item := range x {
			n.items = append(n.items, jsonNode(item))
		}
		return n
	}
	return &node{tag: "!!str", text: fmt.Sprintf("%v (%T)", v, v)}
}
