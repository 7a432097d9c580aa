package config

import (
	"math"
	"reflect"
	"strconv"
	"strings"
)

// layerFreq decodes moe_layer_freq: a whole number, a list of 0/1, or Megatron's text form.
func (d *decoder) layerFreq(n *node, at *loc, v reflect.Value) bool {
	const expected = "a whole number of at least 1, a list of 0 and 1, or a text as \"([0]*1+[1]*3)\""
	switch {
	case n.kind == list:
		pattern := []int{}
		for i, item := range n.items {
			if item.broken {
				return d.spoil(at.item(i))
			}
			if item.text != "0" && item.text != "1" || !item.isNumber() {
				return d.wrong(item, at.item(i), "0 (dense) or 1 (MoE)", "")
			}
			pattern = append(pattern, int(item.text[0]-'0'))
		}
		if len(pattern) == 0 {
			return d.wrong(n, at, expected, "")
		}
		v.Set(reflect.ValueOf(LayerFreq{Pattern: pattern}))
	case n.isNumber() && isWhole(n.text):
		every, err := strconv.Atoi(n.text)
		if err != nil || every < 1 || every > MaxLayers {
			return d.fail(n, at, "found %s, expected a whole number from 1 to %d", show(n.text), MaxLayers)
		}
		v.Set(reflect.ValueOf(LayerFreq{Every: every}))
	case n.kind == scalar && strings.HasPrefix(strings.TrimSpace(n.text), "(") || n.kind == scalar && n.quote:
		pattern, ok := parsePattern(n.text)
		if !ok {
			return d.wrong(n, at, "a pattern of lists of 0 and 1 joined by + and repeated by *, as \"([0]*1+[1]*3)\"", "")
		}
		v.Set(reflect.ValueOf(LayerFreq{Pattern: pattern}))
	default:
		return d.wrong(n, at, expected, "")
	}
	return true
}

// parsePattern reads a sum of products of lists: ([0]*1+[1]*3)*2 is 0 1 1 1 0 1 1 1.
func parsePattern(text string) ([]int, bool) {
	p := patternParser{rest: strings.ReplaceAll(text, " ", "")}
	out, ok := p.sum(0)
	return out, ok && p.rest == "" && len(out) > 0
}

type patternParser struct{ rest string }

// eat takes a token off the front.
func (p *patternParser) eat(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

func (p *patternParser) sum(depth int) ([]int, bool) {
	var out []int
	for {
		term, ok := p.product(depth)
		if !ok || len(out)+len(term) > MaxLayers {
			return nil, false
		}
		out = append(out, term...)
		if !p.eat("+") {
			return out, true
		}
	}
}

func (p *patternParser) product(depth int) ([]int, bool) {
	out, ok := p.factor(depth)
	for ok && p.eat("*") {
		n, good := p.count()
		if !good || n*len(out) > MaxLayers {
			return nil, false
		}
		var repeated []int
		for range n {
			repeated = append(repeated, out...)
		}
		out = repeated
	}
	return out, ok
}

func (p *patternParser) count() (int, bool) {
	digits := p.rest[:len(p.rest)-len(strings.TrimLeft(p.rest, "0123456789"))]
	p.rest = p.rest[len(digits):]
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0 && n <= MaxLayers
}

func (p *patternParser) factor(depth int) ([]int, bool) {
	if depth < MaxDepth && p.eat("(") {
		out, ok := p.sum(depth + 1)
		return out, ok && p.eat(")")
	}
	if !p.eat("[") {
		return nil, false
	}
	var out []int
	for {
		switch {
		case p.eat("0"):
			out = append(out, 0)
		case p.eat("1"):
			out = append(out, 1)
		default:
			return nil, false
		}
		if p.eat("]") {
			return out, true
		}
		if !p.eat(",") {
			return nil, false
		}
	}
}

// values decodes a number, a fraction or a nested list of them, flattened row by row.
func (d *decoder) values(n *node, at *loc, v reflect.Value) bool {
	out := Values{Scalar: n.kind == scalar, Data: []float64{}}
	if !d.flatten(n, at, &out.Data) {
		return false
	}
	v.Set(reflect.ValueOf(out))
	return true
}

func (d *decoder) flatten(n *node, at *loc, into *[]float64) bool {
	if n.broken {
		return d.spoil(at)
	}
	if n.kind == list {
		ok := true
		for i, item := range n.items {
			ok = d.flatten(item, at.item(i), into) && ok
		}
		return ok
	}
	if x, ok := fraction(n); ok {
		*into = append(*into, x)
		return true
	}
	if !n.isNumber() {
		return d.wrong(n, at, "a number, a fraction as -13/48, or a list of them", numberTip(n))
	}
	x, ok := d.float(n, at)
	*into = append(*into, x)
	return ok
}

// fraction reads a text like -13/48, rounded once to the nearest float64.
func fraction(n *node) (float64, bool) {
	above, below, ok := strings.Cut(n.text, "/")
	if n.kind != scalar || !ok || !isWhole(above) || !isWhole(below) {
		return 0, false
	}
	a, errA := strconv.ParseInt(above, 10, 64)
	b, errB := strconv.ParseInt(below, 10, 64)
	const exact = 1 << 53 // both sides must be exact in float64 so that one division rounds once
	if errA != nil || errB != nil || b <= 0 || a > exact || a < -exact || b > exact {
		return 0, false
	}
	x := float64(a) / float64(b)
	return x, !math.IsNaN(x)
}
