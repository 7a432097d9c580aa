package data

import (
	"slices"

	"phalanx/nn"
)

// ignored is the label of a token that does not count, as other tools write it.
const ignored = -100

// sequence is one row before it is padded: n inputs and n labels.
type sequence struct {
	ids, labels []int32
	counts      []bool   // per label: whether it counts; nil: all
	pad         []bool   // per input: whether it is padding; nil: none
	docs        []nn.Doc // where its documents lie, not beyond n; nil: the row is one
	positions   []int32  // position ids; nil: from 0 in each document
}

// predicting is the sequence of n inputs and n labels that n+1 tokens make. The tokens are shared, not copied.
func predicting(tokens []int32) sequence {
	n := len(tokens) - 1
	return sequence{ids: tokens[:n], labels: tokens[1:]}
}

// assemble pads rows to length s and puts the documents and masks on that the geometry asks for.
func (g geometry) assemble(rows []sequence, s int) *nn.Microbatch {
	n := len(rows) * s
	m := &nn.Microbatch{B: len(rows), S: s, IDs: make([]int32, n), Labels: make([]int32, n), Positions: make([]int32, n)}
	m.Loss = &nn.LossMask{B: m.B, S: s, AllOnes: !g.lossMask}
	if g.lossMask {
		m.Loss.Weight = make([]float32, n)
	}
	if g.padMask {
		m.Pad = &nn.PadMask{B: m.B, S: s, Layout: nn.Full, Pad: make([]bool, n)}
	}
	if g.packed {
		m.Docs = make(nn.Docs, len(rows))
	}
	for b, row := range rows {
		place(m, b, row)
		for i := range s {
			g.put(m, b*s+i, row, i)
		}
	}
	return m
}

// place writes where the documents of row b lie, what is behind the last one being a document too, and the positions.
func place(m *nn.Microbatch, b int, row sequence) {
	docs := nn.Docs{row.docs}.Row(0, m.S)
	if row.docs != nil {
		m.Docs[b] = slices.Clone(docs)
	}
	positions := m.Positions[b*m.S : (b+1)*m.S]
	for _, d := range docs {
		for i := range d.Physical {
			positions[d.Start+i] = int32(i)
		}
	}
	copy(positions, row.positions)
}

// put writes position i of a row to element at of the microbatch.
func (g geometry) put(m *nn.Microbatch, at int, row sequence, i int) {
	inside := i < len(row.ids)
	m.IDs[at], m.Labels[at] = g.padToken, g.padToken
	if inside {
		m.IDs[at], m.Labels[at] = row.ids[i], row.labels[i]
	}
	if g.padMask {
		m.Pad.Pad[at] = !inside || row.pad != nil && row.pad[i]
	}
	if g.lossMask && inside && (row.counts == nil || row.counts[i]) {
		m.Loss.Weight[at] = 1
	}
}
