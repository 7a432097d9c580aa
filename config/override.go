package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// override is one dotted setting: from the command line (section.key=value) or from the `set` of a variant.
type override struct {
	key   string
	path  []string
	value *node
	at    place // of the key
}

// parseOverride reads section.key=value; the value is YAML.
func parseOverride(text string) (override, Problems) {
	at := place{file: "override " + strconv.Quote(cut(text, 120))}
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return override{}, Problems{at.problem("", "found no =; expected section.key=value")}
	}
	o, problem := newOverride(strings.TrimSpace(key), at)
	if problem != nil {
		return o, Problems{*problem}
	}
	if strings.TrimSpace(value) == "" {
		return o, Problems{at.problem(o.key, "found no value after =; expected section.key=value (null for nothing, \"\" for an empty text)")}
	}
	var below *loc
	for _, part := range o.path {
		below = below.key(show(part))
	}
	root, problems := readTree([]byte(value), below, func(int, int) place { return at })
	for i := range problems {
		problems[i].Key = cmp.Or(problems[i].Key, o.key)
	}
	o.value = root
	return o, problems
}

// newOverride splits and checks a dotted key.
func newOverride(key string, at place) (override, *Problem) {
	o := override{key: show(key), path: strings.Split(key, "."), at: at}
	fail := func(text string) (override, *Problem) {
		p := at.problem(o.key, text)
		return o, &p
	}
	switch {
	case slices.Contains(o.path, ""):
		return fail("found a dotted key with an empty part; expected section.key, as in train.train_iters")
	case len(o.path) > MaxDepth:
		return fail(fmt.Sprintf("found %d dotted parts; no key has more than %d", len(o.path), MaxDepth))
	case len(o.path) == 1 && isSection(key):
		return fail(fmt.Sprintf("sets a whole section; expected one of its keys, as in %s.%s", key, sectionKeys(key)[0]))
	}
	return o, nil
}

// apply is root with the override's value at its path. Missing sections and keys are created.
func (o override) apply(root *node) (*node, *Problem) {
	n, text := put(root, o.path, o)
	if text == "" {
		return n, nil
	}
	p := o.at.problem(o.key, text)
	return root, &p
}

// put copies n with the override's value at path below it; text says why that cannot be done.
func put(n *node, path []string, o override) (_ *node, text string) {
	if len(path) == 0 {
		if o.value.null() && !o.value.broken {
			return &node{tag: o.value.tag, at: o.value.at, unset: true}, ""
		}
		return o.value, ""
	}
	index, err := strconv.Atoi(path[0])
	isIndex := err == nil && index >= 0
	switch {
	case n.null() && isIndex:
		n = &node{kind: list, at: o.at}
	case n.null():
		n = &node{kind: mapping, at: o.at}
	}
	switch n.kind {
	case mapping:
		return putKey(n, path, o)
	case list:
		if !isIndex {
			return nil, fmt.Sprintf("found %s for an entry of a list; expected a number from 0 to %d", show(path[0]), len(n.items))
		}
		return putItem(n, index, path, o)
	}
	return nil, fmt.Sprintf("%s has no keys: the value above it is %s", show(path[0]), describe(n))
}

func putKey(n *node, path []string, o override) (*node, string) {
	out := &node{kind: mapping, at: n.at, pairs: slices.Clone(n.pairs)}
	i := slices.IndexFunc(out.pairs, func(p pair) bool { return p.key == path[0] })
	if i < 0 {
		out.pairs = append(out.pairs, pair{key: path[0], at: o.at, value: &node{tag: "!!null", at: o.at}})
		i = len(out.pairs) - 1
	}
	below, text := put(out.pairs[i].value, path[1:], o)
	out.pairs[i].value = below
	if len(path) == 1 {
		out.pairs[i].at = o.at
	}
	return out, text
}

func putItem(n *node, index int, path []string, o override) (*node, string) {
	if index > len(n.items) {
		return nil, fmt.Sprintf("found index %d in a list of %d; expected 0 to %d (%d appends)", index, len(n.items), len(n.items), len(n.items))
	}
	out := &node{kind: list, at: n.at, items: slices.Clone(n.items)}
	if index == len(n.items) {
		out.items = append(out.items, &node{tag: "!!null", at: o.at})
	}
	below, text := put(out.items[index], path[1:], o)
	out.items[index] = below
	return out, text
}
