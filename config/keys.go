package config

import (
	"math"
	"reflect"
	"strconv"
	"strings"
)

// spec is what is known about a key beside its Go type. A key is dotted; * stands for the index of a list entry.
type spec struct {
	key   string
	def   string   // default as YAML; required; derived ("= …" says from what); empty: none
	legal []string // the values of an enumeration, those of later versions included (refusals.go takes them out)
	in    *bounds  // range of a number
	from  []string // keys that a derived default follows from: their problems are not repeated
	null  bool     // null is legal and means the default
	none  string   // a number that Megatron takes for null
	// single: a list of one may be written without brackets.
	single bool
	what   string // what a legal word is called where there are too many to name them beside the nearest
	doc    string // one line
}

// required marks a key without a default.
const required = "required"

func (s *spec) required() bool { return s.def == required }
func (s *spec) derived() bool  { return strings.HasPrefix(s.def, "= ") }

// absent reports whether a value says nothing: null where that is legal, or the number that stands for it.
func (s *spec) absent(n *node) bool {
	if n.broken || !s.null || n.null() || s.none == "" || !n.isNumber() {
		return !n.broken && s.null && n.null()
	}
	x, err := strconv.ParseFloat(n.text, 64)
	return err == nil && number(x) == s.none
}

// constant reports whether the default is a value.
func (s *spec) constant() bool { return s.def != "" && !s.required() && !s.derived() }

// bounds is a range of numbers; an open end is not part of it.
type bounds struct {
	low, high         float64
	lowOpen, highOpen bool
}

func between(low, high float64) *bounds { return &bounds{low: low, high: high} }
func atLeast(low float64) *bounds       { return &bounds{low: low, high: math.Inf(1)} }
func above(low float64) *bounds         { return &bounds{low: low, high: math.Inf(1), lowOpen: true} }

// share is [0, 1).
func share() *bounds { return &bounds{low: 0, high: 1, highOpen: true} }

func (b *bounds) has(x float64) bool {
	low := x > b.low || x == b.low && !b.lowOpen
	high := x < b.high || x == b.high && !b.highOpen
	return low && high
}

// String says which numbers are in b, after "a number".
func (b *bounds) String() string {
	low, high := number(b.low), number(b.high)
	switch {
	case math.IsInf(b.high, 1) && b.lowOpen:
		return "above " + low
	case math.IsInf(b.high, 1):
		return "of at least " + low
	case b.lowOpen:
		return "above " + low + " and at most " + high
	case b.highOpen:
		return "from " + low + " to below " + high
	}
	return "from " + low + " to " + high
}

// number prints x as people write it: whole numbers without an exponent, others in the shortest form.
func number(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// specs are all keys by name; the tables are in keys_model.go and keys_run.go.
var specs = index(modelKeys, trainKeys, dataKeys, runKeys, faultKeys, expectKeys)

func index(tables ...[]spec) map[string]*spec {
	all := map[string]*spec{}
	for _, table := range tables {
		for i := range table {
			all[table[i].key] = &table[i]
		}
	}
	return all
}

// KeyInfo describes a key for documentation and schemas.
type KeyInfo struct {
	Name     string   // dotted; * stands for the index of a list entry
	Type     string   // as users read it: "whole number", "list of texts", …
	Default  string   // as written in a file; "required"; "= …" when it follows from other keys; empty: none
	Legal    []string // values of an enumeration that this version takes
	Range    string   // of a number, as in "from 1 to 1024"; empty: any
	Doc      string   // one line
	Megatron bool     // the name is Megatron's; otherwise it is ours
}

// Keys lists every key of a scenario in the order of the structs.
func Keys() []KeyInfo {
	var out []KeyInfo
	var add func(t reflect.Type, prefix string)
	add = func(t reflect.Type, prefix string) {
		for _, f := range fieldsOf(t) {
			name := prefix + f.name
			switch {
			case isStruct(f.typ):
				add(f.typ, name+".")
			case f.typ.Kind() == reflect.Slice && isStruct(f.typ.Elem()):
				out = append(out, keyInfo(name, f.typ))
				add(f.typ.Elem(), name+".*.")
			default:
				out = append(out, keyInfo(name, f.typ))
			}
		}
	}
	add(reflect.TypeFor[Scenario](), "")
	return out
}

func keyInfo(name string, t reflect.Type) KeyInfo {
	s := specOf(name)
	info := KeyInfo{Name: name, Type: typeName(t), Default: s.def, Legal: legalNow(s), Doc: s.doc, Megatron: megatronKeys[name]}
	if s.in != nil {
		info.Range = s.in.String()
	}
	return info
}

// specOf is the spec of a key with * for indices; an empty one when there is none.
func specOf(star string) *spec {
	if s := specs[star]; s != nil {
		return s
	}
	return &spec{key: star}
}

// typeName is a Go type as users read it.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[LayerFreq]():
		return "whole number or list of 0 and 1"
	case reflect.TypeFor[Values](), reflect.TypeFor[*Values]():
		return "number, fraction or list of them"
	case reflect.TypeFor[Probe]():
		return "bias_only or tables of losses"
	case reflect.TypeFor[Words](), reflect.TypeFor[Numbers]():
		return typeName(t.Elem()) + " or list of " + plural(t.Elem())
	case reflect.TypeFor[*[2]int]():
		return "pair of whole numbers"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Int, reflect.Uint64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Bool:
		return "true or false"
	case reflect.Map:
		return "dotted keys with values"
	case reflect.Struct:
		return "keys with values"
	case reflect.Slice:
		return "list of " + plural(t.Elem())
	}
	return "text"
}

func plural(t reflect.Type) string {
	if isStruct(t) {
		return "entries"
	}
	return typeName(t) + "s"
}
