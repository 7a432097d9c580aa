package model

import (
	"fmt"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
)

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
