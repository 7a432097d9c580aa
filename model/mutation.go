package model

import (
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
)

// mutatedBatch plants the bugs of what a batch's masks say.
func (r *Rank[T]) mutatedBatch(c nn.Comm, index, local int, mb *nn.Microbatch) *nn.Microbatch {
	out := *mb
	if r.mut.Has(mutation.MaskOffByOne) {
		out.Loss = movedMask(mb.Loss)
	}
	if r.mut.Has(mutation.MaskByPadID) {
		out.Loss = maskByID(mb, int32(r.env.Scenario.Dataset.PadToken))
	}
	if r.mut.Has(mutation.PositionsNotReset) {
		out.Positions = make([]int32, len(mb.Positions))
		for i := range out.Positions {
			out.Positions[i] = int32(i % mb.S)
		}
	}
	if r.mut.Has(mutation.MaskWrongReplica) && c.Size(mesh.DP) > 1 {
		out.Pad = r.env.Train.Microbatch(index, local).Pad // that of the first replica
	}
	return &out
}

// weights are the weights of a mask, explicit.
func weights(m *nn.LossMask) []float32 {
	w := make([]float32, m.B*m.S)
	for i := range w {
		w[i] = m.At(i/m.S, i%m.S)
	}
	return w
}

// movedMask is a mask aligned with inputs: it says of label y[i] what holds for token x[i].
func movedMask(m *nn.LossMask) *nn.LossMask {
	w, out := weights(m), make([]float32, m.B*m.S)
	for b := range m.B {
		copy(out[b*m.S+1:(b+1)*m.S], w[b*m.S:])
	}
	return &nn.LossMask{B: m.B, S: m.S, Weight: out}
}

// maskByID drops every label that equals the pad token, by value.
func maskByID(mb *nn.Microbatch, pad int32) *nn.LossMask {
	w := weights(mb.Loss)
	for i, y := range mb.Labels {
		if y == pad {
			w[i] = 0
		}
	}
	return &nn.LossMask{B: mb.B, S: mb.S, Weight: w}
}
