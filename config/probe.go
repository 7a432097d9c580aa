package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// The words of a probe.
const (
	biasOnly  = "bias_only"
	tokenLoss = "token_loss"
	// everyTerm stands in TokenLoss for one table for all terms, until defaults are filled in. No file can write it.
	everyTerm = ""
)

// LossTerms are the terms of the objective that a model has: lm, mtp_1 … mtp_D.
func (m *Model) LossTerms() []string {
	terms := []string{"lm"}
	for k := range min(max(m.MTPNumLayers, 0), MaxMTPDepths) {
		terms = append(terms, fmt.Sprintf("mtp_%d", k+1))
	}
	return terms
}

// deriveProbe gives every term the table that the file has for all of them.
func (s *Scenario) deriveProbe() {
	table, ok := s.Probe.TokenLoss[everyTerm]
	if !ok {
		return
	}
	s.Probe.TokenLoss = map[string][][]float64{}
	for _, term := range s.Model.LossTerms() {
		s.Probe.TokenLoss[term] = table
	}
}

// terms are the terms that have a table, in the order of depths.
func (p *Probe) terms() []string {
	return slices.SortedFunc(maps.Keys(p.TokenLoss), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

// probe decodes bias_only, {token_loss: TABLE} or {token_loss: {TERM: TABLE}}.
func (d *decoder) probe(n *node, at *loc, v reflect.Value) bool {
	const expected = "bias_only, or keys with values as in {token_loss: {lm: [[2, 20]]}}"
	var p Probe
	switch {
	case n.kind == scalar && n.text == biasOnly:
		p.BiasOnly = true
	case n.kind == mapping && len(n.pairs) > 0:
		if !d.probeKeys(n, at, &p) {
			return d.spoil(at)
		}
	default:
		best, _ := nearest(n.text, []string{biasOnly, tokenLoss})
		tip := map[string]string{biasOnly: "did you mean " + biasOnly + "?", tokenLoss: tokenLoss + " needs its tables"}[best]
		return d.wrong(n, at, expected, tip)
	}
	v.Set(reflect.ValueOf(p))
	return true
}

// probeKeys decodes a probe with keys: there is one, token_loss.
func (d *decoder) probeKeys(n *node, at *loc, p *Probe) bool {
	good := true
	for _, pair := range n.pairs {
		below := at.key(pair.key)
		if pair.key == tokenLoss {
			d.marks[below.String()] = mark{pair.at, pair.value}
			good = d.tokenLoss(pair.value, below, p) && good
			continue
		}
		message, _ := unknownMessage(at.star()+".", pair.key, []string{tokenLoss})
		if pair.key == biasOnly {
			message = "is a probe of its own; write probe: " + biasOnly
		}
		d.problems = append(d.problems, pair.at.problem(at.key(show(pair.key)).String(), message))
		good = false
	}
	return good
}

// tokenLoss decodes the tables of a probe.
func (d *decoder) tokenLoss(n *node, at *loc, p *Probe) bool {
	p.TokenLoss = map[string][][]float64{}
	switch {
	case n.broken:
		return false
	case n.kind == list:
		table, ok := d.table(n, at)
		p.TokenLoss[everyTerm] = table
		return ok
	case n.kind != mapping || len(n.pairs) == 0:
		return d.wrong(n, at, "a table for all terms, as [[2, 20], [2, 2]], or one for each term, as {lm: [[2, 20], [2, 2]]}", "")
	}
	good := true
	for _, pair := range n.pairs {
		below := at.key(show(pair.key))
		d.marks[below.String()] = mark{pair.at, pair.value}
		if pair.key == everyTerm {
			good = d.fail(pair.value, below, "found an empty text, expected a term, as lm or mtp_1")
			continue
		}
		table, ok := d.table(pair.value, below)
		p.TokenLoss[pair.key] = table
		good = ok && good
	}
	return good
}

// table decodes rows of numbers.
func (d *decoder) table(n *node, at *loc) ([][]float64, bool) {
	if n.kind != list || len(n.items) == 0 {
		return nil, !n.broken && d.wrong(n, at, "a table: a list of rows, each a list of numbers, as [[2, 20], [2, 2]]", "")
	}
	table, good := make([][]float64, len(n.items)), true
	for i, row := range n.items {
		if row.kind != list {
			good = !row.broken && d.wrong(row, at.item(i), "a row of the table: a list of numbers, as [2, 20]", "")
			continue
		}
		table[i] = make([]float64, len(row.items))
		for j, cell := range row.items {
			x, ok := d.cell(cell, at.item(i).item(j))
			table[i][j] = x
			good = ok && good
		}
	}
	return table, good
}

// cell decodes one number of a table, which need not be finite.
func (d *decoder) cell(n *node, at *loc) (float64, bool) {
	if x, ok := fraction(n); ok {
		return x, true
	}
	if n.isNumber() {
		switch strings.ToLower(n.text) {
		case ".nan":
			return math.NaN(), true
		case ".inf", "+.inf":
			return math.Inf(1), true
		case "-.inf":
			return math.Inf(-1), true
		}
		return d.float(n, at)
	}
	return 0, !n.broken && d.wrong(n, at, "a number, a fraction as -13/48, .nan or .inf", numberTip(n))
}

// probeText is the probe in YAML's flow notation: one table when every term has the same.
func (s *Scenario) probeText() string {
	if s.Probe.BiasOnly {
		return biasOnly
	}
	terms := s.Probe.terms()
	tables := make([]string, len(terms))
	for i, term := range terms {
		tables[i] = tableText(s.Probe.TokenLoss[term])
	}
	if slices.Equal(terms, s.Model.LossTerms()) && len(slices.Compact(slices.Clone(tables))) == 1 {
		return "{" + tokenLoss + ": " + tables[0] + "}"
	}
	for i, term := range terms {
		tables[i] = word(term) + ": " + tables[i]
	}
	return "{" + tokenLoss + ": {" + strings.Join(tables, ", ") + "}}"
}

func tableText(table [][]float64) string {
	rows := make([]string, len(table))
	for i, row := range table {
		cells := make([]string, len(row))
		for j, x := range row {
			cells[j] = cellText(x)
		}
		rows[i] = "[" + strings.Join(cells, ", ") + "]"
	}
	return "[" + strings.Join(rows, ", ") + "]"
}

func cellText(x float64) string {
	switch {
	case math.IsNaN(x):
		return ".nan"
	case math.IsInf(x, 1):
		return ".inf"
	case math.IsInf(x, -1):
		return "-.inf"
	}
	return number(x)
}
