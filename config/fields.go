package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is a key of a struct.
type field struct {
	name  string // yaml name
	index int
	typ   reflect.Type
}

// fieldsOf lists the keys of a struct type in the order of declaration.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("yaml"); name != "" && name != "-" {
			out = append(out, field{name: name, index: i, typ: f.Type})
		}
	}
	return out
}

// isStruct reports whether t is a struct with keys, not a value with its own notation.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[LayerFreq]() && t != reflect.TypeFor[Values]() && t != reflect.TypeFor[Probe]()
}

// sectionNames are the top-level keys that hold keys, in order.
func sectionNames() []string {
	var names []string
	for _, f := range fieldsOf(reflect.TypeFor[Scenario]()) {
		if isStruct(f.typ) {
			names = append(names, f.name)
		}
	}
	return names
}

func isSection(name string) bool { return slices.Contains(sectionNames(), name) }

// sectionKeys are the keys of a section.
func sectionKeys(section string) []string {
	var keys []string
	for _, f := range fieldsOf(reflect.TypeFor[Scenario]()) {
		if f.name != section {
			continue
		}
		for _, k := range fieldsOf(f.typ) {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// sectionsWith are the sections that have a key of that name.
func sectionsWith(key string) []string {
	var out []string
	for _, section := range sectionNames() {
		if slices.Contains(sectionKeys(section), key) {
			out = append(out, section)
		}
	}
	return out
}

// loc is where the walk over a scenario stands: a chain of keys and list indices, written out only for messages.
type loc struct {
	parent *loc
	name   string // key; empty: an entry of a list
	index  int
}

func (l *loc) key(name string) *loc { return &loc{parent: l, name: name} }
func (l *loc) item(i int) *loc      { return &loc{parent: l, index: i} }

// String is the dotted key, entries by their index.
func (l *loc) String() string { return l.join(strconv.Itoa) }

// star is the dotted key with * for every index.
func (l *loc) star() string { return l.join(func(int) string { return "*" }) }

func (l *loc) join(index func(int) string) string {
	var parts []string
	for ; l != nil; l = l.parent {
		part := l.name
		if part == "" {
			part = index(l.index)
		}
		parts = append(parts, part)
	}
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

// visit calls fn for every key of a struct value that is not itself a struct, depth first in the order of declaration;
// lists of structs are called for themselves and then for their entries.
func visit(v reflect.Value, at *loc, fn func(at *loc, v reflect.Value)) {
	for _, f := range fieldsOf(v.Type()) {
		fv, below := v.Field(f.index), at.key(f.name)
		switch {
		case isStruct(f.typ):
			visit(fv, below, fn)
		case f.typ.Kind() == reflect.Slice && isStruct(f.typ.Elem()):
			fn(below, fv)
			for i := range fv.Len() {
				visit(fv.Index(i), below.item(i), fn)
			}
		default:
			fn(below, fv)
		}
	}
}

// lookup is the value of a section's key.
func lookup(s *Scenario, key string) any {
	v := reflect.ValueOf(s).Elem()
	for name := range strings.SplitSeq(key, ".") {
		for _, f := range fieldsOf(v.Type()) {
			if f.name == name {
				v = v.Field(f.index)
				break
			}
		}
	}
	return v.Interface()
}
