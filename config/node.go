package config

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// kind of a node.
type kind uint8

const (
	scalar kind = iota
	list
	mapping
)

// node is a YAML value with its place. Trees are never changed after they are built: overrides copy the path they touch.
// Unlike yaml.Node it has no aliases, no tags but the core ones and no duplicate keys.
type node struct {
	kind  kind
	tag   string // scalars: !!str, !!int, !!float, !!bool, !!null or !!timestamp, as YAML resolves the text
	text  string
	quote bool // written in quotes
	// broken stands for a value that was refused while the tree was built: it has its problem already.
	broken bool
	// unset stands for null as an override: the key is as if nobody had set it.
	unset bool
	at    place
	items []*node // list
	pairs []pair  // mapping
}

// pair is a key of a mapping with its value.
type pair struct {
	key   string
	at    place
	value *node
}

// null reports whether n says nothing.
func (n *node) null() bool { return n.kind == scalar && n.tag == "!!null" }

// grower turns yaml.Node trees into node trees and reports what a scenario may not contain.
type grower struct {
	place    func(*yaml.Node) place
	problems Problems
	nodes    int
	open     map[*yaml.Node]bool // anchors being written out: meeting one again is a cycle
	full     bool
}

func (g *grower) fail(y *yaml.Node, at *loc, format string, args ...any) {
	g.problems = append(g.problems, g.place(y).problem(at.String(), fmt.Sprintf(format, args...)))
}

// grow is y, which stands at a location, as a node; depth counts nesting.
func (g *grower) grow(y *yaml.Node, at *loc, depth int) *node {
	null := &node{tag: "!!null", at: g.place(y), broken: true}
	g.nodes++
	switch {
	case g.full:
		return null
	case g.nodes > MaxNodes:
		g.full = true
		g.fail(y, at, "found more than %d values after aliases are written out; write less, or move data to a jsonl file", MaxNodes)
		return null
	case depth > MaxDepth:
		g.fail(y, nil, "nested deeper than %d levels; no key of a scenario needs that", MaxDepth)
		return null
	case y.Style&yaml.TaggedStyle != 0 && y.Kind != yaml.AliasNode:
		g.fail(y, at, "found the tag %s; a scenario has no tags, write the plain value", show(y.ShortTag()))
		return null
	}
	switch y.Kind {
	case yaml.AliasNode:
		return g.alias(y, at, depth)
	case yaml.SequenceNode:
		return g.list(y, at, depth)
	case yaml.MappingNode:
		return g.mapping(y, at, depth)
	}
	quote := y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	return &node{tag: y.ShortTag(), text: y.Value, quote: quote, at: null.at}
}

// alias writes out what an alias points to. The copy stands where the alias stands; values inside keep their places.
func (g *grower) alias(y *yaml.Node, at *loc, depth int) *node {
	if g.open[y.Alias] {
		g.fail(y, at, "the alias *%s points into itself; write the value out", y.Value)
		return &node{tag: "!!null", at: g.place(y), broken: true}
	}
	g.open[y.Alias] = true
	n := *g.grow(y.Alias, at, depth+1)
	delete(g.open, y.Alias)
	n.at = g.place(y)
	return &n
}

func (g *grower) list(y *yaml.Node, at *loc, depth int) *node {
	n := &node{kind: list, at: g.place(y)}
	g.enter(y)
	for i, c := range y.Content {
		n.items = append(n.items, g.grow(c, at.item(i), depth+1))
	}
	g.leave(y)
	return n
}

func (g *grower) mapping(y *yaml.Node, at *loc, depth int) *node {
	n := &node{kind: mapping, at: g.place(y)}
	lines := map[string]place{}
	g.enter(y)
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		below := at.key(show(k.Value))
		value := g.grow(v, below, depth+1)
		if !g.legalKey(k, at, below) {
			continue
		}
		if first, twice := lines[k.Value]; twice {
			where := ""
			if first.line > 0 {
				where = fmt.Sprintf(" at line %d", first.line)
			}
			g.fail(k, below, "duplicate key; it is already set%s, remove one", where)
			continue
		}
		lines[k.Value] = g.place(k)
		n.pairs = append(n.pairs, pair{key: k.Value, at: g.place(k), value: value})
	}
	g.leave(y)
	return n
}

func (g *grower) enter(y *yaml.Node) {
	if y.Anchor != "" {
		g.open[y] = true
	}
}

func (g *grower) leave(y *yaml.Node) {
	if y.Anchor != "" {
		delete(g.open, y)
	}
}

// legalKey refuses merge keys and keys that are not words.
func (g *grower) legalKey(k *yaml.Node, at, below *loc) bool {
	switch {
	case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
		g.fail(k, below, "merge keys are not supported; write the keys out, or use variants")
	case k.Kind != yaml.ScalarNode:
		g.fail(k, at, "found a key that is not a word; expected the name of a key")
	case k.Style&yaml.TaggedStyle != 0:
		g.fail(k, below, "found a key with the tag %s; expected the name of a key", show(k.ShortTag()))
	default:
		return true
	}
	return k.Kind == yaml.ScalarNode && k.ShortTag() != "!!merge"
}
