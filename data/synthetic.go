package data

import (
	"fmt"

	"phalanx/nn"
)

// synthetic is rows of the synthetic language, each used once: full, or valid up to a random length.
type synthetic struct {
	geometry
	chain    *chain
	minValid int    // 0: all rows full
	name     string // of the random stream: training and validation speak one language in different rows
}

func openSynthetic(g geometry, minValid int) *Data {
	c := newChain(g.seed, g.v)
	length := fmt.Sprintf("rows of %d", g.s)
	if minValid > 0 {
		length = fmt.Sprintf("rows of %d to %d in %d", minValid, g.s, g.s)
	}
	return &Data{
		Train:      &synthetic{g, c, minValid, "synthetic train"},
		Validation: &synthetic{g, c, minValid, "synthetic validation"},
		VocabSize:  g.v,
		Summary:    fmt.Sprintf("synthetic: %s, %d symbols of a vocabulary of %d, seed %d", length, c.k, g.v, g.seed),
	}
}

// Microbatch is B new rows [B, S].
func (d *synthetic) Microbatch(step, mb int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	for i := range rows {
		r := newStream(d.seed, d.name, d.sample(step, mb, i))
		n := d.s
		if d.minValid > 0 {
			n = d.minValid + r.below(d.s-d.minValid+1)
		}
		rows[i] = predicting(d.chain.tokens(n+1, r))
	}
	return d.assemble(rows, d.s)
}
