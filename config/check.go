package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// checker applies the rules to a scenario. A rule looks at values only; marks say where to report it.
type checker struct {
	s        *Scenario
	marks    map[string]mark
	root     place
	bad      map[string]bool // keys with a problem already: rules that involve them are silent
	problems Problems
	notes    []string
	procs    Problems  // keys that need processes
	base     *Scenario // the defaults, once a rule has asked for them
}

// Check applies every rule to a scenario built or changed in Go and returns what is wrong; problems have keys but no
// places. It also sets Notes and NeedsProcs. Scenarios from Load and Parse are checked already.
func (s *Scenario) Check() Problems {
	c := &checker{s: s, bad: map[string]bool{}}
	return c.run()
}

func (c *checker) run() Problems {
	c.values("")
	c.model()
	c.parallel()
	c.optimizer()
	c.ddp()
	c.train()
	c.dataset()
	c.runtime()
	c.mutate()
	c.probe()
	c.faults()
	c.processes()
	c.expectations()
	c.variants()
	c.s.Notes, c.s.NeedsProcs = c.notes, c.procs.tidy()
	return c.problems.tidy()
}

// given reports whether the file or an override sets a key.
func (c *checker) given(key string) bool {
	m, ok := c.marks[key]
	return ok && !m.value.null()
}

// at is where a key is reported: at the key, else at the nearest section above it, else at the top.
func (c *checker) at(key string) place {
	for k := key; ; {
		if m, ok := c.marks[k]; ok {
			return m.key
		}
		if m, ok := c.itemPlace(k); ok {
			return m
		}
		dot := strings.LastIndexByte(k, '.')
		if dot < 0 {
			return c.root
		}
		k = k[:dot]
	}
}

// itemPlace is the place of an entry of a list that has a mark, as expect.2 or dataset.rows.0.tokens.3.
func (c *checker) itemPlace(key string) (place, bool) {
	dot := strings.LastIndexByte(key, '.')
	if dot < 0 {
		return place{}, false
	}
	m, ok := c.marks[key[:dot]]
	if !ok || m.value.kind != list {
		return place{}, false
	}
	i, err := strconv.Atoi(key[dot+1:])
	if err != nil || i < 0 || i >= len(m.value.items) {
		return place{}, false
	}
	return m.value.items[i].at, true
}

// fail reports a problem with a key unless it, or another key the rule involves, has one already.
func (c *checker) fail(key, message string, involved ...string) {
	if !c.ok(append(involved, key)...) {
		return
	}
	c.bad[key] = true
	c.report(key, message)
}

func (c *checker) report(key, message string) {
	c.problems = append(c.problems, c.at(key).problem(key, message))
}

// ok reports whether none of the keys, and no section or list above them, has a problem yet.
func (c *checker) ok(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool {
		for ; !c.bad[k]; k = k[:strings.LastIndexByte(k, '.')] {
			if !strings.Contains(k, ".") {
				return false
			}
		}
		return true
	})
}

func (c *checker) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// values checks each key of a section ("": of all) alone: required, range, legal words, not in this version.
func (c *checker) values(sections ...string) {
	visit(reflect.ValueOf(c.s).Elem(), nil, func(at *loc, v reflect.Value) {
		key := at.String()
		section, _, _ := strings.Cut(key, ".")
		if slices.Contains(sections, "") || slices.Contains(sections, section) {
			c.value(key, specOf(at.star()), v)
		}
	})
}

func (c *checker) value(key string, sp *spec, v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	unset := v.IsZero() && !c.given(key)
	if !unset && !c.given(key) && !c.ok(sp.from...) {
		return
	}
	switch {
	case unset && sp.required() && (c.marks != nil || sp.in == nil || !sp.in.has(0)):
		c.fail(key, "required key is missing; expected "+expected(sp, v.Type()))
	case unset && !sp.constant():
	case v.Kind() == reflect.Int || v.Kind() == reflect.Float64:
		c.number(key, sp, v)
	case v.Kind() == reflect.String && sp.legal != nil:
		c.word(key, sp, v.String())
	case v.Kind() == reflect.String:
		if r := refusedValue(sp.key, v.String()); r != nil {
			c.fail(key, r.valueMessage(show(v.String())))
		}
	case v.Kind() == reflect.Slice && sp.legal != nil:
		for i := range v.Len() {
			c.word(c.entry(key, i), sp, v.Index(i).String())
		}
	case v.Kind() == reflect.Slice && sp.in != nil:
		for i := range v.Len() {
			c.number(c.entry(key, i), sp, v.Index(i))
		}
	}
}

// entry is the key of an entry of a list: the list's own when it was written without brackets.
func (c *checker) entry(key string, i int) string {
	if m, ok := c.marks[key]; ok && m.value.kind != list {
		return key
	}
	return fmt.Sprintf("%s.%d", key, i)
}

// expected says what a key takes, in words.
func expected(sp *spec, t reflect.Type) string {
	switch {
	case sp.legal != nil:
		return oneOf(legalNow(sp))
	case sp.in != nil:
		return article(typeName(t)) + " " + sp.in.String()
	}
	return article(typeName(t))
}

func (c *checker) number(key string, sp *spec, v reflect.Value) {
	x, text := 0.0, fmt.Sprint(v.Interface())
	if v.Kind() == reflect.Int {
		x = float64(v.Int())
	} else {
		x = v.Float()
		text = number(x)
	}
	if sp.in != nil && !sp.in.has(x) {
		c.fail(key, fmt.Sprintf("found %s, expected %s", text, expected(sp, v.Type())))
	} else if r := refusedValue(sp.key, text); r != nil {
		c.fail(key, r.valueMessage(text))
	}
}

func (c *checker) word(key string, sp *spec, text string) {
	if r := refusedValue(sp.key, text); r != nil {
		c.fail(key, r.valueMessage(show(text)))
		return
	}
	if slices.Contains(sp.legal, text) {
		return
	}
	message := fmt.Sprintf("found %s, expected %s", show(text), expected(sp, nil))
	if sp.what != "" {
		message = fmt.Sprintf("found %s, which is no %s", show(text), sp.what)
	}
	switch best, _ := nearest(text, sp.legal); {
	case best == "" && sp.what != "":
		message += "; expected one of " + strings.Join(legalNow(sp), ", ")
	case best == "":
	case refusedValue(sp.key, best) != nil:
		message += "; the nearest, " + best + ", is not in this version"
	default:
		message += "; did you mean " + best + "?"
	}
	c.fail(key, message)
}

// divisor is the divisor of n nearest to x, the lower of two equally near.
func divisor(n, x int) int {
	return nearestLegal(x, 1, n, func(d int) bool { return n%d == 0 })
}

// multiple is the multiple of n nearest to x, at least n and the lower of two equally near.
func multiple(n, x int) int {
	below := x / n * n
	if below >= n && x-below <= below+n-x {
		return below
	}
	return below + n
}

// maxSearch ends the search for a legal number: sizes are smaller, and one that is not has its own problem and needs none.
const maxSearch = 1 << 20

// nearestLegal is the legal number in [low, high] nearest to x, the lower of two equally near; low if there is none.
func nearestLegal(x, low, high int, legal func(int) bool) int {
	x = max(min(x, high), low)
	for d := 0; d <= min(max(x-low, high-x), maxSearch); d++ {
		for _, candidate := range []int{x - d, x + d} {
			if candidate >= low && candidate <= high && legal(candidate) {
				return candidate
			}
		}
	}
	return low
}
