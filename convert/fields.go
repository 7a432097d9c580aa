package convert

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// fields reads the fields of a Hugging Face config.json one after the other. What has not been asked for in the end is
// refused: a field that nobody knows may change the model.
type fields struct {
	o        *object
	asked    map[string]bool
	keys     []key
	ignored  []string
	problems Problems
}

func newFields(o *object) *fields { return &fields{o: o, asked: map[string]bool{}} }

// take is a field that says something.
func (r *fields) take(name string) (field, bool) {
	r.asked[name] = true
	f, ok := r.o.get(name)
	return f, ok && !f.null()
}

// fail is a problem at a field, or at the file when it is not there.
func (r *fields) fail(name, format string, args ...any) {
	where := r.o.path
	if f, ok := r.o.get(name); ok {
		where = f.at
	}
	r.problems = append(r.problems, Problem{Where: where, Name: name, Text: fmt.Sprintf(format, args...)})
}

// set adds a key that comes from a field.
func (r *fields) set(name, value, from string) {
	f, ok := r.o.get(from)
	if !ok {
		f = field{name: from, at: r.o.path}
	}
	r.keys = append(r.keys, key{name: name, value: value, from: f})
}

// need reports a missing field.
func (r *fields) need(name, what string) {
	r.fail(name, "is missing, expected %s; the config.json may be of another model", what)
}

// count is a whole number from 0; def when the field is absent, which is a problem if def is negative.
func (r *fields) count(name string, def int) int {
	f, ok := r.take(name)
	if !ok {
		if def < 0 {
			r.need(name, "a whole number")
		}
		return max(def, 0)
	}
	n := 0
	if !f.into(&n) || n < 0 || n > math.MaxInt32 {
		r.fail(name, "found %s, expected a whole number from 0 on", f.text())
		return 0
	}
	return n
}

// number is a finite number; def when the field is absent.
func (r *fields) number(name string, def float64) float64 {
	f, ok := r.take(name)
	if !ok {
		return def
	}
	x := def
	if !f.into(&x) {
		r.fail(name, "found %s, expected a number", f.text())
	}
	return x
}

// yes is a truth value; def when the field is absent.
func (r *fields) yes(name string, def bool) bool {
	f, ok := r.take(name)
	if !ok {
		return def
	}
	b := def
	if !f.into(&b) {
		r.fail(name, "found %s, expected true or false", f.text())
	}
	return b
}

// setCount is a whole number under a key of ours.
func (r *fields) setCount(name, to string) int {
	n := r.count(name, -1)
	if _, ok := r.o.get(name); ok {
		r.set(to, fmt.Sprint(n), name)
	}
	return n
}

// setCountIf is setCount for a field that may be absent.
func (r *fields) setCountIf(name, to string) {
	if _, ok := r.take(name); ok {
		r.setCount(name, to)
	}
}

// setNumber is a number under a key of ours; def is what Hugging Face's code takes when the field is absent.
func (r *fields) setNumber(name, to string, def float64) {
	r.set(to, numberText(r.number(name, def)), name)
}

// only takes a field with one of a few values, as JSON; an absent one is the first of them.
func (r *fields) only(name, why string, legal ...string) {
	f, ok := r.take(name)
	if ok && !slices.Contains(legal, f.text()) {
		r.fail(name, "found %s, expected %s: %s", f.text(), strings.Join(legal, " or "), why)
	}
}

// refuse is a field that says something this program has not.
func (r *fields) refuse(why string, names ...string) {
	for _, name := range names {
		if f, ok := r.take(name); ok {
			r.fail(name, "found %s: %s", f.text(), why)
		}
	}
}

// ignore are fields that change nothing here.
func (r *fields) ignore(names ...string) {
	for _, name := range names {
		r.asked[name] = true
		if _, ok := r.o.get(name); ok {
			r.ignored = append(r.ignored, name)
		}
	}
}

// rest refuses what nobody asked for.
func (r *fields) rest() {
	known := make([]string, 0, len(r.asked))
	for name := range r.asked {
		known = append(known, name)
	}
	for _, f := range r.o.fields {
		if !r.asked[f.name] {
			r.fail(f.name, "found %s: a field this version does not know, and it may change the model%s", f.text(), Near(f.name, known))
		}
	}
}

// list is a list of texts or numbers.
func list[T any](r *fields, name string) ([]T, bool) {
	f, ok := r.take(name)
	var out []T
	if ok && !f.into(&out) {
		r.fail(name, "found %s, expected a list", f.text())
	}
	return out, ok
}

// pattern is a list of 0 and 1 as moe_layer_freq takes it.
func pattern(bits []int) string {
	b, _ := json.Marshal(bits) // numbers can be marshalled
	return string(b)
}
