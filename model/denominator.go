package model

import (
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
)

// denominator is what one loss term of one microbatch is divided by: the number of tokens that
// share a mean, at least 1, and the number of such means in the step.
//
// loss_normalization exact: tokens of the whole microbatch, whatever the layout; per-token loss: of the whole step.
// upstream: tokens of this context-parallel rank; the ranks' means are averaged, so that unequal counts weigh unequally.
type denominator struct {
	tokens, means float64
	ranks         float64 // context-parallel ranks whose means are averaged: 1 in exact mode
}

func (r *Rank[T]) upstream() bool { return r.cfg.LossNormalization == "upstream" }

// clamp is at least one token.
func (r *Rank[T]) clamp(n int64) float64 {
	if r.mut.Has(mutation.UnclampedZeroTokens) {
		return float64(n)
	}
	return float64(max(n, 1))
}

// lmDenominator is that of the LM loss.
func (r *Rank[T]) lmDenominator(p *pass[T], s step) denominator {
	switch {
	case s.tokens != nil && !r.mut.Has(mutation.LocalMean):
		return denominator{r.clamp(s.tokens[0]), 1, 1}
	case r.upstream():
		return r.averaged(p, p.loss.Count(), s)
	}
	return denominator{r.clamp(p.mb.Loss.Count()), s.means(), 1}
}

// averaged is the mean of this rank's own tokens, averaged over the context-parallel ranks.
func (r *Rank[T]) averaged(p *pass[T], local int64, s step) denominator {
	cp := float64(p.c.Comm.Size(mesh.CP))
	return denominator{r.clamp(local), s.means() * cp, cp}
}

// depthDenominator is that of depth k, whose rolled mask on this rank is local.
func (r *Rank[T]) depthDenominator(p *pass[T], s step, k int, local *nn.LossMask) denominator {
	switch {
	case r.mut.Has(mutation.LMCountForMTP):
		return r.lmDenominator(p, s)
	case r.mut.Has(mutation.LocalRatio) && s.tokens != nil, r.upstream() && s.tokens != nil:
		// Megatron: Σ L_k · N_0/N_k with both counts local, over the step's N_0.
		return denominator{r.clamp(s.tokens[0]) * r.clamp(local.Count()) / float64(p.loss.Count()), 1, 1}
	case s.tokens != nil && !r.mut.Has(mutation.LocalMean):
		return denominator{r.clamp(s.tokens[k]), 1, 1}
	case r.upstream():
		return r.averaged(p, local.Count(), s)
	}
	return denominator{r.clamp(r.depthTokens(p.mb)[k-1]), s.means(), 1}
}
