package model

import (
	"fmt"

	"phalanx/config/mutation"
	"phalanx/messages"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
)

// head is the output layer as one loss term of the training uses it: 0 is the LM, k is depth k. Labels of all terms are
// smoothed alike.
func (r *Rank[T]) head(grad []T, term int) nn.Head[T] {
	h := nn.Head[T]{Table: r.tables.head, Grad: grad}
	if f := r.cfg.LabelSmoothing; f > 0 {
		h.Smoothing = nn.Smoothing(f, r.cfg.PaddedVocabSize)
	}
	if r.probe.bias != nil {
		h.Bias, h.BiasGrad = r.probe.bias, r.probe.grads[term]
	}
	return h
}

// note remembers microbatches whose loss is not a number, or ends the run.
func (r *Rank[T]) note(p *pass[T], depth int, loss float64) {
	if loss-loss == 0 {
		return
	}
	if t := r.env.Scenario.Train; t.CheckForNaNInLoss && !t.SkipNaNMicrobatches {
		panic(&LossError{Rank: r.env.Rank, Step: p.c.Site.Step, Microbatch: p.c.Microbatch, Depth: depth, Value: loss})
	}
	r.notFinite[p.c.Site.Microbatch] = true
}

// lmLoss is the loss of h_0; it returns the gradient of h_0.
func (r *Rank[T]) lmLoss(p *pass[T], s step, h tensor.Mat[T], sums *messages.Sums) tensor.Mat[T] {
	ctx := p.c.At(-1, "lm")
	head := r.head(r.tables.headGrad(), 0)
	n := r.lmDenominator(p, s)
	out := head.Loss(ctx, nn.HeadInput[T]{Hidden: h, Labels: p.labels, Loss: p.loss, Grad: true, Weight: 1 / n.tokens / n.means,
		Table: r.probeTable(p, s, 0)})
	r.note(p, 0, out.LossSum)
	if ctx.TPRank() == 0 {
		sums.LMLoss += out.LossSum
		sums.LMTokens += out.Tokens
	}
	ctx.ObserveCounts("tokens", []float64{float64(out.Tokens)}, ctx.Frame.Layout())
	ctx.ObserveNumber("token_weight", 1/n.tokens/n.means, nn.Full)
	ctx.ObserveNumber("loss_sum", out.LossSum, ctx.Frame.Layout())
	return out.DHidden
}

// depthLoss is the loss of depth k; it returns the gradient of h_k.
func (r *Rank[T]) depthLoss(p *pass[T], s step, k int, in mtp.ToHead[T], sums *messages.Sums) tensor.Mat[T] {
	ctx := p.c.At(-1, fmt.Sprintf("mtp.%d", k))
	ctx.Site.Depth = k
	head := r.head(r.tables.headGrad(), k)
	if r.cfg.MTPDetachHeads && !r.mut.Has(mutation.HeadNotDetached) {
		head.Grad = nil
	}
	n := r.depthDenominator(p, s, k, in.Loss)
	out := head.Loss(ctx, nn.HeadInput[T]{Hidden: in.Hidden, Labels: in.Labels, Loss: in.Loss, Grad: true,
		Weight: mtp.Weight(r.cfg.MTPLossScaling, len(r.depths), n.tokens, n.means), Table: r.probeTable(p, s, k)})
	r.note(p, k, out.LossSum)
	ctx.ObserveCounts("tokens", []float64{float64(out.Tokens)}, ctx.Frame.Layout())
	ctx.ObserveNumber("token_weight", mtp.Weight(r.cfg.MTPLossScaling, len(r.depths), n.tokens, n.means), nn.Full)
	ctx.ObserveNumber("loss_sum", out.LossSum, ctx.Frame.Layout())
	if ctx.TPRank() != 0 {
		return out.DHidden
	}
	part := messages.Sums{MTPLoss: make([]float64, len(r.depths)), MTPTokens: make([]int64, len(r.depths))}
	part.MTPLoss[k-1], part.MTPTokens[k-1] = out.LossSum, out.Tokens
	if s.tokens == nil {
		part.MTPLoss[k-1] /= n.tokens * n.ranks
	}
	sums.Add(part)
	return out.DHidden
}
