package data

import (
	"fmt"

	"phalanx/config"
	"phalanx/nn"
)

// synthetic is rows of the synthetic language, each used once: full, or valid up to a random length, or packed.
type synthetic struct {
	geometry
	chain    *chain
	minValid int    // 0: all rows full; packed: the shortest document
	multiple int    // packed: of which a place's length is
	name     string // of the random stream: training and validation speak one language in different rows
}

// summarisedRows bounds the rows that a summary of packed rows looks at.
const summarisedRows = 64

func openSynthetic(g geometry, ds config.Dataset) *Data {
	train := &synthetic{geometry: g, chain: newChain(g.seed, g.v), minValid: ds.MinValid, multiple: max(ds.PadToMultiple, 1), name: "synthetic train"}
	validation := *train
	validation.name = "synthetic validation"
	length := fmt.Sprintf("rows of %d", g.s)
	switch {
	case g.packed:
		length = train.packing()
	case train.minValid > 0:
		length = fmt.Sprintf("rows of %d to %d in %d", train.minValid, g.s, g.s)
	}
	out := g.opened(train, &validation, nil)
	out.Summary = fmt.Sprintf("synthetic: %s, %d symbols of a vocabulary of %d, seed %d", length, train.chain.k, g.v, g.seed) + g.embedded()
	return out
}

// packing says how the first rows are packed.
func (d *synthetic) packing() string {
	var f filling
	for i := range min(d.b*d.m, summarisedRows) {
		f.add(d.row(i), d.s)
	}
	return fmt.Sprintf("rows of %d packed with documents of %d or more, first %s: %s, %s",
		d.s, max(d.minValid, 1), count(f.rows, "row"), f.perRow(), f.share())
}

// batch is B new rows [B, S].
func (d *synthetic) batch(first int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	for i := range rows {
		rows[i] = d.row(first + i)
	}
	m := d.assemble(rows, d.s)
	d.embed(m, d.name, func(b int) int { return first + b })
	return m
}

// row is row i of the run.
func (d *synthetic) row(i int) sequence {
	r, n := newStream(d.seed, d.name, i), d.s
	switch {
	case d.packed:
		return packedRow(d.documents(r), d.padToken)
	case d.minValid > 0:
		n = d.minValid + r.below(d.s-d.minValid+1)
	}
	return predicting(d.chain.tokens(n+1, r))
}

// documents fill a row: the length of each is drawn from what its place can still have, until that is less than the
// shortest. So a row has few long documents and more short ones, and any length comes at any position.
func (d *synthetic) documents(r *stream) []placed {
	var docs []placed
	least, left := max(d.minValid, 1), d.s
	for {
		longest := left - left%d.multiple
		if longest < least {
			return docs
		}
		n := least + r.below(longest-least+1)
		docs = append(docs, placed{predicting(d.chain.tokens(n+1, r)), rounded(n, d.multiple)})
		left -= rounded(n, d.multiple)
	}
}
