package data

import (
	"fmt"

	"phalanx/config"
	"phalanx/nn"
)

// explicit is the rows of the scenario. They fill a step in their order, from the start again when there are fewer
// than a step takes; with more, the next step goes on where the last one stopped. Synthetic tokens and precomputed
// embeddings belong to the place of the row in that order: two rows of a step never have the same, or data-parallel
// ranks that forget to exchange gradients would look right.
type explicit struct {
	geometry
	rows []sequence // one per place, at least as many as a step takes
}

func openRows(g geometry, rows []config.Row) (*Data, error) {
	if len(rows) == 0 {
		return nil, problem("dataset.rows", 0, "found no rows, expected at least one")
	}
	d := &explicit{geometry: g}
	c := newChain(g.seed, g.v)
	errs, f, tokens := &Error{}, filling{}, 0
	for i, row := range rows {
		q := rowReader{geometry: g, row: row, index: i, errs: errs}.sequence(c, i)
		d.rows = append(d.rows, q)
		f.add(q, g.s)
		tokens += len(q.ids)
	}
	if err := errs.orNil(); err != nil {
		return nil, err
	}
	for place := len(rows); place < g.m*g.b; place++ { // the rows once more, with other synthetic tokens
		i := place % len(rows)
		d.rows = append(d.rows, rowReader{geometry: g, row: rows[i], index: i, errs: errs}.sequence(c, place))
	}
	in := count(tokens, "token")
	if g.packed {
		in = fmt.Sprintf("%s in %s, %s", count(f.tokens, "token"), count(f.docs, "document"), f.share())
	}
	out := g.opened(d, nil, nil)
	out.Summary = fmt.Sprintf("rows: %s of %d, %s, vocabulary of %d", count(len(rows), "row"), g.s, in, g.v) + g.embedded()
	return out, nil
}

// batch is B rows in order [B, S].
func (d *explicit) batch(first int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	for i := range rows {
		rows[i] = d.rows[(first+i)%len(d.rows)]
	}
	m := d.assemble(rows, d.s)
	d.embed(m, "rows", func(b int) int { return (first + b) % len(d.rows) })
	return m
}
