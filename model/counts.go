package model

import (
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
)

// countTokens counts the labels that each loss counts in the whole step: known from the data alone.
func (r *Rank[T]) countTokens(c nn.Comm, s step) []int64 {
	n := make([]int64, 1+len(r.depths))
	for m := range s.microbatches {
		if s.dropped[s.first+m] && !r.mut.Has(mutation.SkippedTokensCounted) {
			continue
		}
		mb := r.batch(c, s, m)
		n[0] += mb.Loss.Count()
		for k, tokens := range r.depthTokens(mb) {
			n[k+1] += tokens
		}
	}
	nn.AllReduceInto(c, mesh.DP, nn.TagTokenCounts, nn.Site{Step: s.index, Phase: nn.Update, Layer: -1}, nn.Sum, n)
	return n
}

// batch is this rank's microbatch m of a step.
func (r *Rank[T]) batch(c nn.Comm, s step, m int) *nn.Microbatch {
	mb := r.env.Train.Microbatch(s.index, s.first+m)
	if r.mut != 0 {
		return r.mutatedBatch(c, s.index, m, mb)
	}
	return mb
}

// depthTokens counts the labels that each depth counts of a whole microbatch, whatever the layout.
func (r *Rank[T]) depthTokens(mb *nn.Microbatch) []int64 {
	f := nn.Frames(mb, 1, 1, r.mut)[0].RollFrame(mb.Docs)
	mask, n := r.depthMask(mb), make([]int64, len(r.depths))
	for k := range n {
		mask = mask.RollWhole(f)
		n[k] = mask.Count()
	}
	return n
}

// depthMask is the loss mask that the depths get: the batch's, or ones if it is withheld.
func (r *Rank[T]) depthMask(mb *nn.Microbatch) *nn.LossMask {
	if r.cfg.MTPLossMask == "withheld" || r.mut.Has(mutation.MaskNone) {
		return &nn.LossMask{B: mb.B, S: mb.S, AllOnes: true}
	}
	if r.mut.Has(mutation.DoubleRoll) {
		return mb.Loss.RollWhole(nn.NewFrames(mb.Docs, mb.B, mb.S, 1, 1)[0])
	}
	return mb.Loss
}
