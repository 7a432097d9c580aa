package data

import (
	"fmt"
	"slices"

	"phalanx/config"
	"phalanx/nn"
)

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
//   - valid: n, or a document of n, makes n synthetic inputs and n labels, all of which count;
//   - tokens without labels: the label is the next token of the document; that of its last one is not known and does
//     not count;
//   - positions behind the logical end of a document are padding;
//   - a label at padding, or −100, does not count, unless loss_mask says what counts;
//   - answer: [from, to) takes away every label outside.
func (r rowReader) sequence(c *chain, place int) sequence {
	q, ok := r.inputs(c, place)
	n := len(q.ids)
	if !ok || !r.sizes(n) {
		return q
	}
	q.positions = r.positions()
	for i, padding := range r.flags("padding_mask", r.row.PaddingMask) {
		if q.pad == nil {
			q.pad = make([]bool, n)
		}
		q.pad[i] = q.pad[i] || padding
	}
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

// inputs is the tokens of a row, where its documents lie and what they leave as padding; labels too if synthetic.
func (r rowReader) inputs(c *chain, place int) (q sequence, ok bool) {
	docs, fault := r.row.Layout()
	switch {
	case fault != nil:
		r.fail(fault.Key, "%s", fault.Message)
	case r.row.Tokens != nil && r.row.Valid != nil, r.row.Tokens == nil && r.row.Valid == nil && docs == nil:
		r.fail("valid", "found valid and tokens both set or both missing, expected one of them, or documents")
	case r.row.Tokens != nil && len(r.row.Tokens) > r.s:
		r.fail("tokens", "found %d tokens, expected at most seq_length %d", len(r.row.Tokens), r.s)
	case r.row.Tokens != nil:
		return given(r.ids("tokens", r.row.Tokens), docs), true
	case docs != nil && end(docs) > r.s:
		r.fail(r.row.LayoutKey(), "found %d positions, expected at most seq_length %d", end(docs), r.s)
	case docs != nil:
		return r.synthetic(c, place, docs), true
	case *r.row.Valid < 0 || *r.row.Valid > r.s:
		r.fail("valid", "found %d, expected a length from 0 to seq_length %d", *r.row.Valid, r.s)
	default:
		return predicting(r.tokens(c, place, 0, *r.row.Valid)), true
	}
	return q, false
}

// given is the tokens of a row in its documents, if it lists them.
func given(ids []int32, docs []config.Document) sequence {
	q := sequence{ids: ids}
	if docs == nil {
		return q
	}
	q.docs, q.pad = []nn.Doc{}, make([]bool, len(ids))
	for _, d := range docs {
		q.docs = append(q.docs, nn.Doc(d))
		for i := d.Start + d.Logical; i < d.Start+d.Physical; i++ {
			q.pad[i] = true
		}
	}
	return q
}

// synthetic is documents of synthetic tokens.
func (r rowReader) synthetic(c *chain, place int, docs []config.Document) sequence {
	row := make([]placed, len(docs))
	for i, d := range docs {
		row[i] = placed{predicting(r.tokens(c, place, i, d.Logical)), d.Physical}
	}
	return packedRow(row, r.padToken)
}

// tokens are the n+1 synthetic tokens of a document of a place, whatever the others are; the first one is the same as
// the whole row of valid: n.
func (r rowReader) tokens(c *chain, place, doc, n int) []int32 {
	name := "rows"
	if doc > 0 {
		name = fmt.Sprintf("rows document %d", doc)
	}
	return c.tokens(n+1, newStream(r.seed, name, place))
}

// end is the position behind the last document.
func end(docs []config.Document) int {
	n := 0
	for _, d := range docs {
		n = d.Start + d.Physical
	}
	return n
}

// sizes says whether the lists of a row of n inputs fit it.
func (r rowReader) sizes(n int) bool {
	ok := true
	for _, list := range []struct {
		key string
		len int
	}{{"labels", len(r.row.Labels)}, {"loss_mask", len(r.row.LossMask)}, {"padding_mask", len(r.row.PaddingMask)},
		{"position_ids", len(r.row.PositionIDs)}} {
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
	padding := func(i int) bool { return q.pad != nil && q.pad[i] }
	switch {
	case r.row.Labels != nil:
		q.labels = make([]int32, len(q.ids))
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
		r.derive(q, padding)
	}
}

// derive makes labels of the tokens, inside each document.
func (r rowReader) derive(q *sequence, padding func(int) bool) {
	q.labels = slices.Repeat([]int32{r.padToken}, len(q.ids))
	for _, d := range (nn.Docs{q.docs}).Row(0, len(q.ids)) {
		for i := d.Start; i < d.Start+d.Logical-1; i++ {
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

// positions are the position ids that the row gives; nil if it does not.
func (r rowReader) positions() []int32 {
	var out []int32
	for i, p := range r.row.PositionIDs {
		if p < 0 || p >= r.s {
			r.fail("position_ids", "found %d at %d, expected a position from 0 to %d, below seq_length", p, i, r.s-1)
		}
		out = append(out, int32(p))
	}
	return out
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
