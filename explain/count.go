package explain

import (
	"phalanx/data"
	"phalanx/mtp"
	"phalanx/nn"
)

// countStep counts the labels of every microbatch of the step and every term, on whole batches, as the model counts
// its denominators: [microbatch][term].
func (x *subject) countStep() [][]int64 {
	out := make([][]int64, x.d.Train.Microbatches())
	for j := range out {
		mb := x.microbatch(j)
		f := nn.Frames(mb, 1, 1, x.mut)[0].RollFrame(mb.Docs)
		out[j] = append(out[j], mb.Loss.Count())
		mask := x.depthMask(mb)
		for range x.depths {
			mask = mask.RollWhole(f)
			out[j] = append(out[j], mask.Count())
		}
	}
	return out
}

// terms are the losses with their denominators.
func (x *subject) terms(counted [][]int64, ranks []local, truths []truth) []Term {
	var out []Term
	for k := range x.depths + 1 {
		t := Term{Name: termName(k), Depth: k, Tokens: counted[x.o.Microbatch][k], DataTokens: count(truths[k].loss, true),
			Factor: 1, Router: x.hasRouter(k)}
		if k > 0 {
			t.Factor = x.s.Model.MTPLossScaling / float64(x.depths)
		}
		t.countStep(counted, x.s.DataParallel())
		for _, r := range ranks {
			t.Shares = append(t.Shares, Share{CPRank: r.frame.CPRank, Tokens: count(r.views[k].loss, true)})
			t.countRouted(r.views[k].routed)
		}
		x.divide(&t, counted, ranks)
		out = append(out, t)
	}
	return out
}

// hasRouter reports whether a layer of the trunk, or the layer of a depth, has experts.
func (x *subject) hasRouter(depth int) bool {
	m := &x.s.Model
	if depth == 0 {
		return m.HasMoE()
	}
	return m.NumMoEExperts > 0 && m.MoELayerFreq.IsMoE(m.NumLayers-1) // a depth's layer is like the last of the decoder
}

// countRouted adds what the routers of one context-parallel rank do with its slots.
func (t *Term) countRouted(routed []route) {
	t.RouterSlots += int64(len(routed))
	leaked := count(routed, leaks)
	t.RouterLeaks += leaked
	t.RouterValid += count(routed, counts) + leaked
	t.RouterSkips += count(routed, misses)
}

// countStep adds up the step.
func (t *Term) countStep(counted [][]int64, dp int) {
	t.TokensByDPRank = make([]int64, dp)
	for r := range dp {
		for j, to := data.Owned(len(counted), dp, r); j < to; j++ {
			t.TokensByDPRank[r] += counted[j][t.Depth]
		}
		t.StepTokens += t.TokensByDPRank[r]
	}
	for _, mb := range counted {
		t.TokensByMicrobatch = append(t.TokensByMicrobatch, mb[t.Depth])
	}
}

// divide fills what the ranks divide by. The exact rules are those of model: the term's own count of the whole
// microbatch and a mean over the step's microbatches, or with per-token loss the term's own count of the whole step.
func (x *subject) divide(t *Term, counted [][]int64, ranks []local) {
	t.DivisorOf, t.Means = "microbatch", len(counted)
	divisor := max(counted[x.o.Microbatch][t.Depth], 1)
	if x.s.Model.CalculatePerTokenLoss {
		t.DivisorOf, t.Means, divisor = "step", 1, max(t.StepTokens, 1)
	}
	for i := range t.Shares {
		t.Shares[i].Divisor = divisor
		t.Shares[i].TokenWeight = mtp.Weight(t.Factor, 1, float64(divisor), float64(t.Means))
	}
	if x.s.Model.LossNormalization == "upstream" {
		x.divideLocally(t, counted, ranks)
	}
}

// divideLocally is Megatron's default: every context-parallel rank divides by its own
// count, and gradients are averaged over ranks. With per-token loss only the depths do, scaled by the rank's LM count.
func (x *subject) divideLocally(t *Term, counted [][]int64, ranks []local) {
	if x.s.Model.CalculatePerTokenLoss && t.Depth == 0 {
		return
	}
	t.DivisorOf, t.Means = "rank", len(counted)*len(ranks)
	step := int64(0)
	for _, mb := range counted {
		step += mb[0]
	}
	for i := range t.Shares {
		s := &t.Shares[i]
		s.Divisor = max(s.Tokens, 1)
		s.TokenWeight = mtp.Weight(t.Factor, 1, float64(s.Divisor), float64(t.Means))
		if x.s.Model.CalculatePerTokenLoss {
			lm := float64(count(ranks[i].views[0].loss, true))
			s.TokenWeight = mtp.Weight(t.Factor*lm, 1, float64(s.Divisor), float64(max(step, 1)))
		}
	}
	if x.s.Model.CalculatePerTokenLoss {
		t.Means = 1
	}
}
