package data

import (
	"fmt"
	"slices"

	"phalanx/nn"
)

// placed is a document in a packed row: n inputs in a place of physical ≥ n positions.
type placed struct {
	sequence
	physical int
}

// packedRow is documents behind each other in one row. What exceeds a document in its place is padding: the pad token,
// padding mask true, loss mask 0. No label crosses a boundary: each document has its own last one.
func packedRow(docs []placed, padToken int32) sequence {
	q := sequence{docs: make([]nn.Doc, 0, len(docs))}
	for _, d := range docs {
		n := len(d.ids)
		q.docs = append(q.docs, nn.Doc{Start: len(q.ids), Logical: n, Physical: d.physical})
		padding := slices.Repeat([]int32{padToken}, d.physical-n)
		q.ids = append(append(q.ids, d.ids...), padding...)
		q.labels = append(append(q.labels, d.labels...), padding...)
		for i := range d.physical {
			q.pad = append(q.pad, i >= n)
			q.counts = append(q.counts, i < n && (d.counts == nil || d.counts[i]))
		}
	}
	return q
}

// rounded is the least multiple of m that is at least n.
func rounded(n, m int) int { return (n + m - 1) / m * m }

// filling counts what is in rows.
type filling struct{ rows, positions, docs, tokens int }

// add counts a row of s positions.
func (f *filling) add(q sequence, s int) {
	f.rows++
	f.positions += s
	f.docs += len(q.docs)
	behind := 0 // position after the last document
	for _, d := range q.docs {
		behind = d.Start + d.Physical
	}
	if behind < len(q.ids) {
		f.docs++
	}
	for i := range q.ids {
		if q.pad == nil || !q.pad[i] {
			f.tokens++
		}
	}
}

// perRow is the documents of a row, on average.
func (f filling) perRow() string {
	return fmt.Sprintf("%.1f documents a row", float64(f.docs)/float64(max(f.rows, 1)))
}

// share is how full the rows are: packing efficiency.
func (f filling) share() string {
	return fmt.Sprintf("%.1f %% of positions are tokens", 100*float64(f.tokens)/float64(max(f.positions, 1)))
}

// plannedMax bounds the documents that a plan places: planning takes about a second per four million, and its rows
// take 4 bytes each. A run that uses more documents meets the first epoch's rows again after the last planned one's.
const plannedMax = 1 << 24

// plan cuts a sequence of samples, epoch after epoch, into packed rows by next fit: a row takes the next document as
// long as its place still fits, else the next row does. So the rows of an epoch hold its documents in sample order,
// each once, and a row is an interval of the sequence. No row holds documents of two epochs.
type plan struct {
	starts []int32 // [rows+1] the sample at which each row starts, and the end of the last one
	epochs int
	filling
}

// planner says what to plan: rows of s positions, at least need of them if the limit allows. places are the physical
// lengths of the documents, none above s, and tokens their logical ones.
type planner struct {
	order          order
	s, need, limit int
	places, tokens func(doc int) int
}

// plan is whole epochs, at least one; without shuffling one is all. The rows of an epoch depend on its order, hence on
// seed and epoch, alone, and how many there are neither on need nor on what else the run does.
func (r planner) plan() plan {
	p, n, epochs := plan{starts: []int32{0}}, r.order.n, 1
	if r.order.shuffle {
		epochs = max(1, r.limit/n)
	}
	for ; p.epochs < epochs && (p.epochs == 0 || p.rows < r.need); p.epochs++ {
		first, used := p.epochs*n, 0
		for i := first; i < first+n; i++ {
			doc := r.order.at(i)
			place := r.places(doc)
			if used+place > r.s {
				p.starts, used = append(p.starts, int32(i)), 0
			}
			used += place
			p.tokens += r.tokens(doc)
		}
		p.starts = append(p.starts, int32(first+n))
		p.rows = len(p.starts) - 1
	}
	p.docs, p.positions = p.epochs*n, p.rows*r.s
	return p
}

// row is the samples [from, to) of row g of the run.
func (p plan) row(g int) (from, to int) {
	r := g % p.rows
	return int(p.starts[r]), int(p.starts[r+1])
}

// String is the plan in a clause of a summary.
func (p plan) String() string {
	return fmt.Sprintf("packed by next fit: %s in %s, %s, %s", count(p.rows, "row"), count(p.epochs, "epoch"), p.perRow(), p.share())
}
