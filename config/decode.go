package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
	if p.value.null() && !p.value.broken && !isStruct(v.Type()) {
		if !specOf(at.star()).null {
			d.marks[at.String()] = mark{p.at, p.value}
			d.wrong(p.value, at, article(typeName(v.Type())), "give a value or remove the key")
		}
		return
	}
	d.marks[at.String()] = mark{p.at, p.value}
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

// scalar decodes text, numbers and truth values.
func (d *decoder) scalar(n *node, at *loc, v reflect.Value) bool {
	if n.kind != scalar {
		return d.wrong(n, at, article(typeName(v.Type())), "")
	}
	switch v.Kind() {
	case reflect.Int:
		return d.whole(n, at, v)
	case reflect.Uint64:
		return d.seed(n, at, v)
	case reflect.Float64:
		x, ok := d.float(n, at)
		if ok {
			v.SetFloat(x)
		}
		return ok
	case reflect.Bool:
		return d.truth(n, at, v)
	}
	return d.text(n, at, v)
}

// isNumber reports whether n is an unquoted number.
func (n *node) isNumber() bool {
	return n.kind == scalar && !n.quote && (n.tag == "!!int" || n.tag == "!!float")
}

// isWhole reports whether s is a decimal whole number without leading zeros, the only notation in which nobody can be wrong.
func isWhole(s string) bool {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || digits != "0" && digits[0] == '0' {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

func (d *decoder) whole(n *node, at *loc, v reflect.Value) bool {
	if !n.isNumber() || !isWhole(n.text) {
		return d.wrong(n, at, "a whole number", numberTip(n))
	}
	x, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		return d.wrong(n, at, "a whole number of less than 2^63", "")
	}
	v.SetInt(x)
	return true
}

func (d *decoder) seed(n *node, at *loc, v reflect.Value) bool {
	if !n.isNumber() || !isWhole(n.text) || n.text[0] == '-' {
		return d.wrong(n, at, "a whole number of at least 0", numberTip(n))
	}
	x, err := strconv.ParseUint(strings.TrimPrefix(n.text, "+"), 10, 64)
	if err != nil {
		return d.wrong(n, at, "a whole number of less than 2^64", "")
	}
	v.SetUint(x)
	return true
}

// float reads a finite number.
func (d *decoder) float(n *node, at *loc) (float64, bool) {
	if !n.isNumber() || strings.Trim(n.text, "0123456789+-.eE") != "" {
		return 0, d.wrong(n, at, "a finite number", numberTip(n))
	}
	x, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, d.wrong(n, at, "a finite number", "")
	}
	return x, true
}

// numberTip says how to write a number that was written another way; empty if that is not clear.
func numberTip(n *node) string {
	x, err := strconv.ParseFloat(n.text, 64)
	switch {
	case n.isNumber() && n.tag == "!!int" && strings.ContainsAny(n.text, "xob"):
		return "write it in decimal digits"
	case n.kind != scalar || err != nil || math.IsInf(x, 0) || math.IsNaN(x):
		return ""
	case n.quote:
		return "remove the quotes"
	case isWhole(n.text) || x != math.Trunc(x) || math.Abs(x) >= 1e15:
		return ""
	case strings.Trim(n.text, "0123456789+-") == "":
		return "write it without leading zeros"
	}
	return "write " + number(x)
}

func (d *decoder) truth(n *node, at *loc, v reflect.Value) bool {
	if n.quote || n.tag != "!!bool" {
		tip := ""
		switch strings.ToLower(n.text) {
		case "yes", "on", "y", "1", "true":
			tip = "write true"
		case "no", "off", "n", "0", "false":
			tip = "write false"
		}
		return d.wrong(n, at, "true or false", tip)
	}
	v.SetBool(strings.EqualFold(n.text, "true"))
	return true
}

func (d *decoder) text(n *node, at *loc, v reflect.Value) bool {
	if !n.quote && n.tag != "!!str" && n.tag != "!!timestamp" {
		return d.wrong(n, at, "text", "put it in quotes")
	}
	if !utf8.ValidString(n.text) || strings.ContainsFunc(n.text, badInText) {
		return d.fail(n, at, "found %s with characters that cannot be printed, expected text", quoteWord(n.text))
	}
	v.SetString(n.text)
	return true
}

func badInText(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// article is a type name after "expected".
func article(typ string) string {
	for _, mass := range []string{"text", "true", "dotted", "keys"} {
		if strings.HasPrefix(typ, mass) {
			return typ
		}
	}
	return "a " + typ
}
