package config

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Normalised is the effective scenario as canonical text: every key that has a value, defaults included, in the order
// of the structs. It is a legal scenario file that means the same, and equal scenarios have equal text. Dir, Notes, line
// numbers and variants are not part of it: each variant is a run with a text of its own.
func (s *Scenario) Normalised() []byte {
	var b bytes.Buffer
	v := reflect.ValueOf(s).Elem()
	for _, f := range fieldsOf(v.Type()) {
		switch {
		case f.name == "variants", f.name == "probe" && !s.Probe.On():
			continue
		case f.name == "probe":
			fmt.Fprintf(&b, "probe: %s\n", s.probeText())
			continue
		}
		if !isStruct(f.typ) {
			writeKey(&b, "", f.name, &loc{name: f.name}, v.Field(f.index))
			continue
		}
		section := v.Field(f.index)
		if f.name == "scheduler" && section.IsZero() {
			continue // a scenario built in Go that says nothing of it: the section's presence would mean linear decay
		}
		fmt.Fprintf(&b, "%s:\n", f.name)
		for _, k := range fieldsOf(f.typ) {
			writeKey(&b, "  ", k.name, (&loc{name: f.name}).key(k.name), section.Field(k.index))
		}
	}
	return b.Bytes()
}

func writeKey(b *bytes.Buffer, indent, name string, at *loc, v reflect.Value) {
	if !unset(at, v) {
		fmt.Fprintf(b, "%s%s: %s\n", indent, name, canonical(at, v))
	}
}

// unset reports whether a value says nothing: empty, or a zero that the key does not allow.
func unset(at *loc, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil()
	case reflect.String, reflect.Slice:
		return v.Len() == 0
	case reflect.Int, reflect.Float64:
		in := specOf(at.star()).in
		return v.IsZero() && in != nil && !in.has(0)
	}
	return false
}

// canonical is a value in YAML's flow notation.
func canonical(at *loc, v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Words:
		if len(x) == 1 {
			return word(x[0])
		}
	case Numbers:
		if len(x) == 1 {
			return number(x[0])
		}
	case LayerFreq:
		if x.Pattern != nil {
			return canonical(at, reflect.ValueOf(x.Pattern))
		}
		return strconv.Itoa(max(x.Every, 1))
	case Values:
		if x.Scalar && len(x.Data) == 1 {
			return number(x.Data[0])
		}
		return canonical(at, reflect.ValueOf(x.Data))
	}
	switch v.Kind() {
	case reflect.Pointer:
		return canonical(at, v.Elem())
	case reflect.Struct:
		return canonicalEntry(at, v)
	case reflect.Slice, reflect.Array:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = canonical(at.item(i), v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Float64:
		return number(v.Float())
	case reflect.String:
		return word(v.String())
	}
	return fmt.Sprint(v.Interface())
}

// canonicalEntry writes an entry of a list; keys that have their zero value are left out, but not a tolerance of 0 that
// asks for the same bits.
func canonicalEntry(at *loc, v reflect.Value) string {
	var parts []string
	exact := ""
	if e, ok := v.Interface().(Expect); ok && e.SameAs != "" {
		exact = "tolerance"
	}
	for _, f := range fieldsOf(v.Type()) {
		if fv := v.Field(f.index); (!fv.IsZero() || f.name == exact) && !unset(at.key(f.name), fv) {
			parts = append(parts, f.name+": "+canonical(at.key(f.name), fv))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// plainWord is text that YAML reads as text without quotes, wherever it stands.
var plainWord = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$`)

// word is a text as YAML.
func word(s string) string {
	if plainWord.MatchString(s) && s != "true" && s != "false" && s != "null" {
		return s
	}
	return strconv.Quote(s)
}

// flow writes a node in flow notation. Values keep the way they were written; texts are quoted where YAML needs it.
func flow(n *node) string {
	var parts []string
	switch {
	case n.kind == list:
		for _, item := range n.items {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case n.kind == mapping:
		for _, p := range n.pairs {
			parts = append(parts, word(p.key)+": "+flow(p.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case n.null():
		return "null"
	case n.quote || n.tag == "!!str" || n.tag == "!!timestamp":
		return word(n.text)
	}
	return n.text
}
