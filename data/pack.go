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
