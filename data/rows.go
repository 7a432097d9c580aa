package data

import (
	"fmt"
	"slices"

	"phalanx/config"
	"phalanx/nn"
)

// explicit is the rows of the scenario. They fill a step in their order, from the start again when there are fewer
// than a step takes; with more, the next step goes on where the last one stopped. Synthetic tokens belong to the
// place of the row in that order: two rows of a step never have the same tokens, or data-parallel ranks that forget
// to exchange gradients would look right.
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
	errs, tokens := &Error{}, 0
	for i, row := range rows {
		q := rowReader{geometry: g, row: row, index: i, errs: errs}.sequence(c, i)
		d.rows = append(d.rows, q)
		tokens += len(q.ids)
	}
	if err := errs.orNil(); err != nil {
		return nil, err
	}
	for place := len(rows); place < g.m*g.b; place++ { // the rows once more, with other synthetic tokens
		i := place % len(rows)
		d.rows = append(d.rows, rowReader{geometry: g, row: rows[i], index: i, errs: errs}.sequence(c, place))
	}
	return &Data{Train: d, VocabSize: g.v, Summary: fmt.Sprintf(
		"rows: %s of %d, %s, vocabulary of %d", count(len(rows), "row"), g.s, count(tokens, "token"), g.v)}, nil
}

// Microbatch is B rows in order [B, S].
func (d *explicit) Microbatch(step, mb int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	for i := range rows {
		rows[i] = d.rows[d.sample(step, mb, i)%len(d.rows)]
	}
	return d.assemble(rows, d.s)
}

// rowReader turns one row of the scenario into a sequence and collects what is wrong with it.
type rowReader struct {
	geometry
	row   config.Row
	index int
	errs  *Error
}

func (r rowReader) fail(key, format string, args ...any) {
	r.errs.add(fmt.Sprintf("dataset.rows[%d].%s", r.index, key), 0, format, args...)
}

// sequence is the row at a place. Rules, first to last:
//   - valid: n makes n synthetic inputs and n labels, all of which count;
//   - tokens without labels: the label is the next token; that of the last token is not known and does not count;
//   - a label at padding, or −100, does not count, unless loss_mask says what counts;
//   - answer: [from, to) takes away every label outside.
func (r rowReader) sequence(c *chain, place int) sequence {
	var q sequence
	switch {
	case (r.row.Valid == nil) == (r.row.Tokens == nil):
		r.fail("valid", "found valid and tokens both set or both missing, expected one of them")
		return q
	case r.row.Valid != nil:
		if *r.row.Valid < 0 || *r.row.Valid > r.s {
			r.fail("valid", "found %d, expected a length from 0 to seq_length %d", *r.row.Valid, r.s)
			return q
		}
		q = predicting(c.tokens(*r.row.Valid+1, newStream(r.seed, "rows", place)))
	case len(r.row.Tokens) > r.s:
		r.fail("tokens", "found %d tokens, expected at most seq_length %d", len(r.row.Tokens), r.s)
		return q
	default:
		q.ids = r.ids("tokens", r.row.Tokens)
	}
	n := len(q.ids)
	if !r.sizes(n) {
		return q
	}
	q.pad = r.flags("padding_mask", r.row.PaddingMask)
	q.counts = make([]bool, n)
	r.label(&q)
	if r.row.LossMask != nil {
		r.mask(&q)
	}
	if a := r.row.Answer; a != nil {
		for i := range q.counts {
			q.counts[i] = q.counts[i] && i >= a[0] && i < a[1]
		}
	}
	return q
}

// sizes says whether the lists of a row of n inputs fit it.
func (r rowReader) sizes(n int) bool {
	ok := true
	for _, list := range []struct {
		key string
		len int
	}{{"labels", len(r.row.Labels)}, {"loss_mask", len(r.row.LossMask)}, {"padding_mask", len(r.row.PaddingMask)}} {
		if list.len != 0 && list.len != n {
			r.fail(list.key, "found %d entries, expected %d, one per token", list.len, n)
			ok = false
		}
	}
	if a := r.row.Answer; a != nil && (a[0] < 0 || a[0] > a[1] || a[1] > n) {
		r.fail("answer", "found [%d, %d), expected label positions [from, to) in [0, %d)", a[0], a[1], n)
		ok = false
	}
	return ok
}

// label fills the labels and which of them count by default.
func (r rowReader) label(q *sequence) {
	n := len(q.ids)
	padding := func(i int) bool { return q.pad != nil && q.pad[i] }
	switch {
	case r.row.Labels != nil:
		q.labels = make([]int32, n)
		if !r.lossMask && slices.Contains(r.row.Labels, ignored) {
			r.fail("labels", "found %d, which a loss mask has to hide; expected dataset.loss_mask: present", ignored)
		}
		for i, y := range r.row.Labels {
			if y != ignored { // else label 0, which does not count
				q.labels[i], q.counts[i] = r.id("labels", i, y), !padding(i)
			}
		}
	case q.labels != nil: // synthetic: one more token than inputs
		for i := range q.counts {
			q.counts[i] = !padding(i)
		}
	default:
		q.labels = make([]int32, n)
		for i := range q.labels {
			if i+1 == n {
				q.labels[i] = r.padToken
				continue
			}
			q.labels[i], q.counts[i] = q.ids[i+1], !padding(i) && !padding(i+1)
		}
	}
}

// mask is what loss_mask says, for labels other than −100.
func (r rowReader) mask(q *sequence) {
	for i, on := range r.flags("loss_mask", r.row.LossMask) {
		q.counts[i] = on && (r.row.Labels == nil || r.row.Labels[i] != ignored)
	}
}

func (r rowReader) ids(key string, list []int) []int32 {
	out := make([]int32, len(list))
	for i, id := range list {
		out[i] = r.id(key, i, id)
	}
	return out
}

func (r rowReader) id(key string, i, id int) int32 {
	if id < 0 || id >= r.v {
		r.fail(key, "found %d at %d, expected an id of the vocabulary, from 0 to %d", id, i, r.v-1)
	}
	return int32(id)
}

// flags reads a list of 0 and 1; nil of an empty list.
func (r rowReader) flags(key string, list []int) []bool {
	if len(list) == 0 {
		return nil
	}
	out := make([]bool, len(list))
	for i, f := range list {
		if f != 0 && f != 1 {
			r.fail(key, "found %d at %d, expected 0 or 1", f, i)
		}
		out[i] = f == 1
	}
	return out
}
