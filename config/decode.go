package config

import (
	"fmt"
	"reflect"
	"strings"
)

// mark is where a key of the file stands and what its value is.
type mark struct {
	key   place
	value *node
}

// decoder fills structs from a node tree, reports every problem it meets and remembers where keys stand.
type decoder struct {
	problems Problems
	marks    map[string]mark // by dotted key; entries of lists of structs by their index
	bad      map[string]bool // keys whose value could not be used: rules about them would only repeat the problem
}

func newDecoder() *decoder { return &decoder{marks: map[string]mark{}, bad: map[string]bool{}} }

// fail reports a value that cannot be used.
func (d *decoder) fail(n *node, at *loc, format string, args ...any) bool {
	d.problems = append(d.problems, n.at.problem(at.String(), fmt.Sprintf(format, args...)))
	return d.spoil(at)
}

// spoil marks a key, and the list it is an entry of, as unusable.
func (d *decoder) spoil(at *loc) bool {
	d.bad[at.String()] = true
	if at != nil && at.parent != nil && at.name == "" {
		d.bad[at.parent.String()] = true
	}
	return false
}

// wrong reports a value of the wrong type; tip says what to write instead, if that is clear.
func (d *decoder) wrong(n *node, at *loc, expected, tip string) bool {
	if r := refusedList(at.star()); r != nil && n.kind == list {
		return d.fail(n, at, "%s", r.valueMessage(describe(n)))
	}
	if tip != "" {
		tip = "; " + tip
	}
	return d.fail(n, at, "found %s, expected %s%s", describe(n), expected, tip)
}

// value decodes n into v and reports whether v was set.
func (d *decoder) value(n *node, at *loc, v reflect.Value) bool {
	if n.broken {
		return d.spoil(at)
	}
	switch v.Type() {
	case reflect.TypeFor[LayerFreq]():
		return d.layerFreq(n, at, v)
	case reflect.TypeFor[Values]():
		return d.values(n, at, v)
	case reflect.TypeFor[Probe]():
		return d.probe(n, at, v)
	case reflect.TypeFor[Words](), reflect.TypeFor[Numbers]():
		return d.oneOrMore(n, at, v)
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.structure(n, at, v)
	case reflect.Pointer:
		target := reflect.New(v.Type().Elem())
		if !d.value(n, at, target.Elem()) {
			return false
		}
		v.Set(target)
		return true
	case reflect.Slice:
		return d.list(n, at, v)
	case reflect.Array:
		return d.array(n, at, v)
	case reflect.Map:
		return d.settings(n, at, v)
	}
	return d.scalar(n, at, v)
}

// structureOf decodes the root of a tree.
func (d *decoder) structureOf(root *node, s *Scenario) {
	d.structure(root, nil, reflect.ValueOf(s).Elem())
}

// structure decodes a section or an entry of a list.
func (d *decoder) structure(n *node, at *loc, v reflect.Value) bool {
	if n.null() && at != nil {
		return true
	}
	if n.kind != mapping {
		keys := strings.Join(keyNames(v.Type()), ", ")
		return d.wrong(n, at, "keys with values ("+cut(keys, 4*maxShown)+")", "")
	}
	fields := map[string]field{}
	for _, f := range fieldsOf(v.Type()) {
		fields[f.name] = f
	}
	for _, p := range n.pairs {
		f, known := fields[p.key]
		if !known {
			d.unknown(p, at, v.Type())
			continue
		}
		d.entry(p, at.key(p.key), v.Field(f.index))
	}
	if e, ok := v.Addr().Interface().(*Expect); ok {
		e.Line = n.at.line
	}
	return true
}

// entry decodes one known key.
func (d *decoder) entry(p pair, at *loc, v reflect.Value) {
	if p.value.unset || specOf(at.star()).absent(p.value) {
		return
	}
	d.marks[at.String()] = mark{p.at, p.value}
	if p.value.null() && !p.value.broken && !isStruct(v.Type()) {
		d.wrong(p.value, at, article(typeName(v.Type())), "give a value or remove the key")
		return
	}
	d.value(p.value, at, v)
}

// keyNames are the yaml names of a struct.
func keyNames(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

func (d *decoder) list(n *node, at *loc, v reflect.Value) bool {
	if n.kind == scalar && specOf(at.star()).single {
		return d.listOfOne(n, at, v)
	}
	if n.kind != list {
		tip := ""
		if n.kind == scalar && !isStruct(v.Type().Elem()) {
			tip = "write [" + cut(n.text, maxShown) + "]"
		}
		return d.wrong(n, at, article(typeName(v.Type())), tip)
	}
	if len(n.items) == 0 {
		return true
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		if item.null() && !item.broken {
			d.wrong(item, at.item(i), article(typeName(v.Type().Elem())), "")
			continue
		}
		d.value(item, at.item(i), out.Index(i))
	}
	v.Set(out)
	return true
}

// oneOrMore decodes a value or a list of them. An empty list is refused: it would be read as the default, or as nothing.
func (d *decoder) oneOrMore(n *node, at *loc, v reflect.Value) bool {
	switch {
	case n.kind == scalar:
		return d.listOfOne(n, at, v)
	case n.kind == list && len(n.items) > 0:
		return d.list(n, at, v)
	}
	return d.wrong(n, at, article(typeName(v.Type())), "")
}

// listOfOne decodes a value that stands for a list of one.
func (d *decoder) listOfOne(n *node, at *loc, v reflect.Value) bool {
	out := reflect.MakeSlice(v.Type(), 1, 1)
	if !d.value(n, at, out.Index(0)) {
		return false
	}
	v.Set(out)
	return true
}

func (d *decoder) array(n *node, at *loc, v reflect.Value) bool {
	if n.kind != list || len(n.items) != v.Len() {
		found := describe(n)
		if n.kind == list {
			found = fmt.Sprintf("a list of %d", len(n.items))
		}
		return d.fail(n, at, "found %s, expected [from, to]", found)
	}
	ok := true
	for i, item := range n.items {
		ok = d.value(item, at.item(i), v.Index(i)) && ok
	}
	return ok
}

// settings decodes the `set` of a variant. The values are applied as nodes; the map keeps their text for readers.
func (d *decoder) settings(n *node, at *loc, v reflect.Value) bool {
	if n.kind != mapping {
		return d.wrong(n, at, "dotted keys with values, as in {model.num_layers: 2}", "")
	}
	out := map[string]string{}
	for _, p := range n.pairs {
		out[p.key] = flow(p.value)
	}
	v.Set(reflect.ValueOf(out))
	return true
}

// article is a type name after "expected".
func article(typ string) string {
	for _, mass := range []string{"text", "true", "dotted", "keys"} {
		if strings.HasPrefix(typ, mass) {
			return typ
		}
	}
	return "a " + typ
}
