package model

import (
	"fmt"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// Names of the values that programs of a rank hand to each other.
const (
	portOrder  = "order"  // stage → depth k: the next pass, in the stage's order
	portInputs = "inputs" // trunk → depth 1 → depth 2 …: mtp.Inputs with its pass
	portHead   = "head"   // depth k → stage: mtp.ToHead
	portGrad   = "grad"   // stage → depth k: gradient of h_k from its loss
	portChain  = "chain"  // depth k → depth k−1, depth 1 → stage: gradient of h_{k−1}
)

// step is what every pass of one optimizer step shares.
type step struct {
	index        int
	microbatches int     // of this data-parallel rank
	first        int     // index of its first microbatch in the whole step
	global       int     // of the whole step
	tokens       []int64 // per-token loss: counted tokens of the whole step, LM then depths; else nil
	// dropped are microbatches of the whole step that count nowhere (train.skip_nan_microbatches).
	dropped map[int]bool
}

// means is the number of microbatches that count.
func (s step) means() float64 { return float64(max(s.global-len(s.dropped), 1)) }

// pass is one microbatch on its way through the stage.
type pass[T tensor.Float] struct {
	c     *nn.Ctx[T]
	mb    *nn.Microbatch // whole
	saved []*nn.BlockSaved[T]
	// This rank's slots of the batch.
	ids, labels, positions []int32
	loss                   *nn.LossMask
	embeddings             mtp.Embeddings[T]
	final                  nn.NormSaved[T]
	dh                     tensor.Mat[T] // gradient of h_0
	aux                    nn.AuxSums
}

// stage is program 0: it trains for all steps and reports each.
func (r *Rank[T]) stage(c nn.Comm) {
	t := r.env.Scenario.Train
	for i := range t.TrainIters {
		r.trainStep(c, i)
		if t.EvalInterval > 0 && r.env.Validation != nil && (i+1)%t.EvalInterval == 0 {
			r.eval(c, i)
		}
		if n := r.env.Scenario.Checkpoint.SaveInterval; n > 0 && (i+1)%n == 0 && i+1 < t.TrainIters {
			r.showShards(c, "weights", i+1, func(p *nn.Param[T]) []T { return p.Data })
		}
	}
	for k := range r.depths {
		c.Send(nn.Program(k+1), portOrder, order{end: true})
	}
	r.showShards(c, "weights", t.TrainIters, func(p *nn.Param[T]) []T { return p.Data })
}

// newStep knows which microbatches are this rank's: contiguous runs of the step's, in data-parallel order.
func (r *Rank[T]) newStep(c nn.Comm, i int, dropped map[int]bool) step {
	t := r.env.Scenario.Train
	s := step{index: i, global: t.GlobalBatchSize / t.MicroBatchSize, dropped: dropped}
	s.microbatches = s.global / c.Size(mesh.DP)
	s.first = c.Rank(mesh.DP) * s.microbatches
	if r.cfg.CalculatePerTokenLoss {
		s.tokens = r.countTokens(c, s)
	}
	return s
}

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

// trainStep is one optimizer step.
func (r *Rank[T]) trainStep(c nn.Comm, i int) {
	done := messages.StepDone{Rank: r.env.Rank, Step: i, LR: r.lr.At(i)}
	s := r.newStep(c, i, nil)
	done.Sums = r.passes(c, s)
	if r.env.Scenario.Train.SkipNaNMicrobatches {
		done.Sums = r.withoutNaN(c, &s, done.Sums)
	}
	done.GradNorm = r.update(c, i, done.LR)
	r.env.Emit(done)
}

// passes runs every microbatch forward and backward, in the order of the schedule; depths follow the same order.
func (r *Rank[T]) passes(c nn.Comm, s step) messages.Sums {
	var sums messages.Sums
	r.params.ZeroGrads()
	r.probe.reset()
	for _, router := range r.routers {
		router.StartStep()
	}
	running := make([]*pass[T], s.microbatches)
	for _, op := range train.Schedule(s.microbatches) {
		if s.dropped[s.first+op.Microbatch] {
			continue
		}
		for k := range r.depths {
			c.Send(nn.Program(k+1), portOrder, order{op: op})
		}
		switch op.Kind {
		case train.ForwardOp:
			running[op.Microbatch] = r.forward(c, s, op.Microbatch, &sums)
		case train.BackwardOp:
			r.backward(running[op.Microbatch])
			r.addAux(c, running[op.Microbatch], &sums)
			if r.mut.Has(mutation.BiasPerMicrobatch) {
				r.moveBiases(c, nn.Site{Step: s.index, Microbatch: op.Microbatch, Phase: nn.Update, Layer: -1})
			}
			running[op.Microbatch] = nil
		}
	}
	return sums
}

// withoutNaN drops microbatches whose losses are not finite and runs the step again without them, so that they are in
// no sum, no count and no gradient. All ranks decide alike: the flags are combined over the job.
func (r *Rank[T]) withoutNaN(c nn.Comm, s *step, sums messages.Sums) messages.Sums {
	for {
		flags := make([]uint8, s.global)
		for m, bad := range r.notFinite {
			if bad {
				flags[s.first+m] = 1
			}
		}
		site := nn.Site{Step: s.index, Phase: nn.Update, Layer: -1}
		for _, axis := range [...]mesh.Axis{mesh.TP, mesh.CP, mesh.DP} {
			nn.AllReduceInto(c, axis, nn.TagFlags, site, nn.Max, flags)
		}
		dropped := map[int]bool{}
		for j, f := range flags {
			if f != 0 || s.dropped[j] {
				dropped[j] = true
			}
		}
		if len(dropped) == len(s.dropped) {
			return sums
		}
		*s = r.newStep(c, s.index, dropped)
		sums = r.passes(c, *s)
	}
}

// update reduces gradients, clips and steps; it returns the norm before clipping.
func (r *Rank[T]) update(c nn.Comm, i int, lr float64) float64 {
	site := nn.Site{Step: i, Phase: nn.Update, Layer: -1}
	r.showProbe(c, site)
	train.ReduceGrads(c, site, r.params, r.mut)
	norms := train.GradNorms(c, site, r.params, r.mut)
	if r.env.Observer != nil {
		r.showShards(c, "grads", i, func(p *nn.Param[T]) []T { return p.Grad })
	}
	r.adam.Step(lr, norms)
	if !r.mut.Has(mutation.BiasPerMicrobatch) {
		r.moveBiases(c, site)
	}
	return norms[""]
}

// moveBiases moves every expert bias by what its router counted.
func (r *Rank[T]) moveBiases(c nn.Comm, site nn.Site) {
	for _, router := range r.routers {
		if router.Bias != nil {
			router.Bias.Update(c, site)
		}
	}
}

// newPass starts a microbatch: its context, and its part of the batch, cut as the activations are.
func (r *Rank[T]) newPass(c nn.Comm, index, local int, mb *nn.Microbatch, phase nn.Phase) *pass[T] {
	if mb.S > r.env.Scenario.Dataset.SeqLength {
		panic(fmt.Sprintf("microbatch %d of step %d is %d tokens long, seq_length is %d", local, index, mb.S, r.env.Scenario.Dataset.SeqLength))
	}
	sp, align := r.cfg.SequenceParallel && c.Size(mesh.TP) > 1, 1
	if sp {
		align = c.Size(mesh.TP)
	}
	frames := nn.Frames(mb, c.Size(mesh.CP), align, r.mut)
	ctx := &nn.Ctx[T]{Comm: c, Arena: &r.arena, B: mb.B, Frame: frames[c.Rank(mesh.CP)], Frames: frames, SP: sp,
		Site: nn.Site{Step: index, Microbatch: local, Phase: phase, Layer: -1}, Aux: nn.AuxScale{Divisor: 1}, Mut: r.mut, Upstream: r.upstream(),
		DropActivations: phase == nn.Forward && r.cfg.RecomputeGranularity == "full"}
	if r.mut != 0 {
		ctx.Rolls = ctx.Frame.RollFrame(mb.Docs)
	}
	p := &pass[T]{c: ctx, mb: mb}
	p.cut()
	return p
}

// cut takes this rank's slots of the batch. Masks become the layout of the activations once, here.
func (p *pass[T]) cut() {
	f := p.c.Frame
	p.ids, p.labels, p.positions = nn.TakeRows(f, p.mb.IDs, 0), nn.TakeRows(f, p.mb.Labels, 0), nn.TakeRows(f, p.mb.Positions, 0)
	p.loss = p.mb.Loss.Local(f)
	pad := p.mb.Pad.Local(f)
	if p.c.SP {
		pad = pad.Shard(p.c.TPRank(), p.c.TP())
	}
	p.c.SetPad(pad)
	if p.mb.Embeddings != nil {
		p.embeddings = localEmbeddings[T](f, p.mb.Embeddings)
	}
}

// localEmbeddings is this rank's slots of [B, S, H]; inserted slots are zero.
func localEmbeddings[T tensor.Float](f *nn.Frame, whole []float64) mtp.Embeddings[T] {
	h := len(whole) / (f.B * f.S)
	out := make(mtp.Embeddings[T], f.B*f.L*h)
	for i, src := range f.Src {
		if src < 0 {
			continue
		}
		from := (i/f.L*f.S + int(src)) * h
		for j, v := range whole[from : from+h] {
			out[i*h+j] = T(v)
		}
	}
	return out
}

// forward runs the trunk, starts the depths, and runs every loss with its backward into the hidden states.
func (r *Rank[T]) forward(c nn.Comm, s step, m int, sums *messages.Sums) *pass[T] {
	p := r.newPass(c, s.index, m, r.batch(c, s, m), nn.Forward)
	p.c.Obs, p.c.Sums, p.c.Aux.Gradient, p.c.Microbatch = r.env.Observer, &p.aux, 1/s.means(), s.first+m
	r.notFinite[m] = false
	p.observeBatch()
	h := r.trunk(p)
	if len(r.depths) > 0 {
		p.c.Comm.Send(1, portInputs, depthPass[T]{s: s, pass: p, in: mtp.Inputs[T]{Hidden: h, IDs: p.ids,
			Positions: p.positions, Labels: p.labels, Loss: r.depthMask(p.mb).Local(p.c.Frame), Pad: p.c.Pad, Embeddings: p.embeddings}})
	}
	p.dh = r.lmLoss(p, s, h, sums)
	for k := 1; k <= len(r.depths); k++ {
		r.depthLoss(p, s, k, sums)
	}
	if c.Rank(mesh.TP) == 0 && c.Rank(mesh.CP) == 0 {
		sums.Samples += int64(p.mb.B)
		sums.Tokens += int64(p.mb.B * p.mb.S)
	}
	return p
}

// observeBatch shows what the trunk and the LM loss see.
func (p *pass[T]) observeBatch() {
	c, all := p.c.At(-1, "batch"), p.c.Frame.Layout()
	c.ObserveBatch("input_ids", nn.Float64s(p.ids), all, true)
	c.ObserveBatch("position_ids", nn.Float64s(p.positions), all, true)
	c.ObserveBatch("labels", nn.Float64s(p.labels), all, true)
	if c.Wants("loss_mask") {
		c.ObserveBatch("loss_mask", nn.Float64s(weights(p.loss)), all, true)
	}
	if c.Pad != nil {
		c.ObserveBatch("padding_mask", nn.Bools(c.Pad.Pad), c.Pad.Layout, true)
	}
}

// trunk is the embedding, the decoder layers and the final norm: h_0.
func (r *Rank[T]) trunk(p *pass[T]) tensor.Mat[T] {
	r.arena.Reset()
	x := r.embedded(p)
	for i, l := range r.layers {
		ctx := p.c.At(i, fmt.Sprintf("layer.%d", i))
		y, saved := l.Forward(ctx, x)
		ctx.ObserveMat("hidden", y, ctx.RowsLayout(), nn.Whole)
		p.saved = append(p.saved, saved)
		x = y
	}
	h, final := r.norm.Forward(p.c, x)
	p.final = final
	return h
}

// embedded looks ids up, or takes the embeddings that were given.
func (r *Rank[T]) embedded(p *pass[T]) tensor.Mat[T] {
	if p.embeddings == nil {
		return r.embed.Forward(p.c, p.ids)
	}
	return nn.GivenEmbeddings(p.c, p.embeddings)
}

// head is the output layer as one loss term uses it: 0 is the LM, k is depth k.
func (r *Rank[T]) head(grad []T, term int) nn.Head[T] {
	h := nn.Head[T]{Table: r.tables.head, Grad: grad}
	if r.probe.bias != nil {
		h.Bias, h.BiasGrad = r.probe.bias, r.probe.grads[term]
	}
	return h
}

// note remembers microbatches whose loss is not a number.
func (r *Rank[T]) note(p *pass[T], loss float64) {
	if loss-loss != 0 {
		r.notFinite[p.c.Site.Microbatch] = true
	}
}

// lmLoss is the loss of h_0; it returns the gradient of h_0.
func (r *Rank[T]) lmLoss(p *pass[T], s step, h tensor.Mat[T], sums *messages.Sums) tensor.Mat[T] {
	ctx := p.c.At(-1, "lm")
	head := r.head(r.tables.headGrad(), 0)
	n := r.lmDenominator(p, s)
	out := head.Loss(ctx, nn.HeadInput[T]{Hidden: h, Labels: p.labels, Loss: p.loss, Grad: true, Weight: 1 / n.tokens / n.means,
		Table: r.probeTable(p, s, 0)})
	r.note(p, out.LossSum)
	if ctx.TPRank() == 0 {
		sums.LMLoss += out.LossSum
		sums.LMTokens += out.Tokens
	}
	ctx.ObserveCounts("tokens", []float64{float64(out.Tokens)}, ctx.Frame.Layout())
	ctx.ObserveNumber("token_weight", 1/n.tokens/n.means, nn.Full)
	ctx.ObserveNumber("loss_sum", out.LossSum, ctx.Frame.Layout())
	return out.DHidden
}

// depthLoss waits for depth k, runs its loss and gives it the gradient of h_k.
func (r *Rank[T]) depthLoss(p *pass[T], s step, k int, sums *messages.Sums) {
	in := p.c.Comm.Recv(nn.Program(k), portHead).(mtp.ToHead[T])
	ctx := p.c.At(-1, fmt.Sprintf("mtp.%d", k))
	ctx.Site.Depth = k
	head := r.head(r.tables.headGrad(), k)
	if r.cfg.MTPDetachHeads && !r.mut.Has(mutation.HeadNotDetached) {
		head.Grad = nil
	}
	n := r.depthDenominator(p, s, k, in.Loss)
	out := head.Loss(ctx, nn.HeadInput[T]{Hidden: in.Hidden, Labels: in.Labels, Loss: in.Loss, Grad: true,
		Weight: mtp.Weight(r.cfg.MTPLossScaling, len(r.depths), n.tokens, n.means), Table: r.probeTable(p, s, k)})
	r.note(p, out.LossSum)
	p.c.Comm.Send(nn.Program(k), portGrad, out.DHidden)
	ctx.ObserveCounts("tokens", []float64{float64(out.Tokens)}, ctx.Frame.Layout())
	ctx.ObserveNumber("token_weight", mtp.Weight(r.cfg.MTPLossScaling, len(r.depths), n.tokens, n.means), nn.Full)
	ctx.ObserveNumber("loss_sum", out.LossSum, ctx.Frame.Layout())
	if ctx.TPRank() != 0 {
		return
	}
	part := messages.Sums{MTPLoss: make([]float64, len(r.depths)), MTPTokens: make([]int64, len(r.depths))}
	part.MTPLoss[k-1], part.MTPTokens[k-1] = out.LossSum, out.Tokens
	if s.tokens == nil {
		part.MTPLoss[k-1] /= n.tokens * n.ranks
	}
	sums.Add(part)
}

// backward joins the gradients of h_0 and runs the trunk backward.
func (r *Rank[T]) backward(p *pass[T]) {
	p.c.Site.Phase = nn.Backward
	if len(r.depths) > 0 {
		chain := p.c.Comm.Recv(1, portChain).(tensor.Mat[T])
		if !r.cfg.MTPDetachHeads {
			p.dh = p.c.Add(p.dh, chain)
		}
	}
	d := r.norm.Backward(p.c, p.final, p.dh)
	for i := len(r.layers) - 1; i >= 0; i-- {
		d = r.layers[i].Backward(p.c.At(i, fmt.Sprintf("layer.%d", i)), p.saved[i], d)
	}
	if p.embeddings == nil {
		r.embed.Backward(p.c, p.ids, d, r.tables.embed.Grad)
	}
}

// addAux adds a microbatch's auxiliary losses, averaged over the layers that have them.
func (r *Rank[T]) addAux(c nn.Comm, p *pass[T], sums *messages.Sums) {
	n := r.auxLayers()
	if n == 0 {
		return
	}
	for k, v := range p.aux.Balancing {
		sums.Balancing[k] += v / float64(n)
	}
	sums.ZLoss += p.aux.Z / float64(n)
}

// auxLayers is the number of modules that contribute an auxiliary loss (SEMANTICS §5.11).
func (r *Rank[T]) auxLayers() int {
	n := 0
	for i := range r.layers {
		if r.isMoE(i) {
			n++
		}
	}
	if len(r.depths) > 0 && r.isMoE(len(r.layers)-1) {
		if r.cfg.MTPUseRepeatedLayer {
			return n + 1
		}
		return n + len(r.depths)
	}
	return n
}

// eval is one validation pass: the LM loss over eval_iters batches that training never sees.
func (r *Rank[T]) eval(c nn.Comm, after int) {
	done := messages.EvalDone{Rank: r.env.Rank, Step: after}
	t := r.env.Scenario.Train
	n := t.GlobalBatchSize / t.MicroBatchSize / c.Size(mesh.DP)
	for i := range t.EvalIters {
		for m := range n {
			mb := r.env.Validation.Microbatch(i, c.Rank(mesh.DP)*n+m)
			p := r.newPass(c, after, m, mb, nn.Eval)
			h := r.trunk(p)
			head := nn.Head[T]{Table: r.tables.head}
			out := head.Loss(p.c, nn.HeadInput[T]{Hidden: h, Labels: p.labels, Loss: p.loss})
			if c.Rank(mesh.TP) == 0 {
				done.Sums.LMLoss += out.LossSum
				done.Sums.LMTokens += out.Tokens
			}
		}
	}
	r.env.Emit(done)
}
