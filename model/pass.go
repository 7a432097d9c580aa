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
	last  bool // microbatch of the step: gradients are complete behind its backward pass
	// This rank's slots of the batch.
	ids, labels, positions []int32
	loss                   *nn.LossMask
	embeddings             mtp.Embeddings[T]
	final                  nn.NormSaved[T]
	dh                     []tensor.Mat[T] // gradients of h_0, h_1 … from their losses: those that this stage has
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
	ctx := &nn.Ctx[T]{Comm: c, Arena: r.arenas.take(), B: mb.B, Frame: frames[c.Rank(mesh.CP)], Frames: frames, SP: sp,
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

// forward runs a chunk on one microbatch: its layers, its depths and, on the last, every loss with its backward into
// the hidden states.
func (r *Rank[T]) forward(c nn.Comm, s step, ch *chunk[T], m int, sums *messages.Sums) *pass[T] {
	p := r.newPass(c, s.index, m, r.batch(c, s, m), nn.Forward)
	p.c.Obs, p.c.Sums, p.c.Aux.Gradient, p.c.Microbatch = r.env.Observer, &p.aux, 1/s.means(), s.first+m
	if r.cfg.MoEPerLayerLogging {
		p.aux.ByRouter = map[string][4]float64{}
	}
	r.notFinite[m] = false
	f := r.trunk(p, ch, true)
	if len(ch.Depths) > 0 {
		c.Send(nn.Program(ch.Depths[0]), portInputs, depthPass[T]{s: s, pass: p, in: f.set})
	}
	if !ch.Loss {
		for _, k := range ch.Depths {
			f.heads = append(f.heads, c.Recv(nn.Program(k), portHead).(mtp.ToHead[T]))
		}
		if n := len(ch.Depths); n > 0 {
			f.set = c.Recv(nn.Program(ch.Depths[n-1]), portRolled).(mtp.Inputs[T])
		}
		r.putFlow(p, ch, f, ch.before+len(ch.Depths) < len(r.depths))
		return p
	}
	p.dh = append(p.dh, r.lmLoss(p, s, f.heads[0].Hidden, sums))
	for k := 1; k <= len(r.depths); k++ {
		if k < len(f.heads) {
			p.dh = append(p.dh, r.depthLoss(p, s, k, f.heads[k], sums))
			continue
		}
		c.Send(nn.Program(k), portGrad, r.depthLoss(p, s, k, c.Recv(nn.Program(k), portHead).(mtp.ToHead[T]), sums))
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

// trunk is what a chunk has of the embedding, the decoder layers and the final norm, on what comes in. depths says that
// depths run: they do not in validation.
func (r *Rank[T]) trunk(p *pass[T], ch *chunk[T], depths bool) flow[T] {
	var f flow[T]
	if ch.Embedding {
		p.observeBatch()
		f.x = r.embedded(p)
	} else {
		f = r.getFlow(p, ch, depths)
	}
	for _, i := range ch.Layers {
		ctx := p.c.At(i, fmt.Sprintf("layer.%d", i))
		r.point(ctx, "forward")
		y, saved := r.layers[i].Forward(ctx, f.x)
		ctx.ObserveMat("hidden", y, ctx.RowsLayout(), nn.Whole)
		p.saved = append(p.saved, saved)
		f.x = y
	}
	if ch.norm {
		h, final := r.norm.Forward(p.c, f.x)
		p.final = final
		f.heads = []mtp.ToHead[T]{{Hidden: h}}
		if depths && len(ch.Depths) > 0 {
			f.set = r.depthInputs(p, ch, f)
		}
	}
	return f
}

// embedded looks ids up, or takes the embeddings that were given.
func (r *Rank[T]) embedded(p *pass[T]) tensor.Mat[T] {
	if p.embeddings == nil {
		return r.embed.Forward(p.c, p.ids, p.positions)
	}
	return nn.GivenEmbeddings(p.c, p.embeddings)
}

// backward takes the gradients of what the chunk has put out, joins what its depths give back, and runs its layers
// backward.
func (r *Rank[T]) backward(p *pass[T], ch *chunk[T]) {
	p.c.Site.Phase = nn.Backward
	d := r.headGrads(p, ch)
	if ch.normed {
		for k, dh := range p.dh {
			p.putRows(nn.TagActivationGrad, k, ch.index-1, ch.prev, dh)
		}
		return
	}
	if ch.norm {
		d = r.norm.Backward(p.c, p.final, p.dh[0])
	}
	for i := len(ch.Layers) - 1; i >= 0; i-- {
		l := ch.Layers[i]
		ctx := p.c.At(l, fmt.Sprintf("layer.%d", l))
		r.point(ctx, "backward")
		d = r.layers[l].Backward(ctx, p.saved[i], d)
		r.layerDone(p, l)
	}
	switch {
	case !ch.Embedding:
		p.putRows(nn.TagActivationGrad, 0, ch.index-1, ch.prev, d)
	case p.embeddings == nil:
		r.embed.Backward(p.c, p.ids, p.positions, d, r.tables.grads(embeddingUse))
	}
}

// headGrads completes p.dh: the gradients of h_0 … of all depths before this chunk's own. A chunk before the final norm
// gets one gradient, of its activation, and returns it.
func (r *Rank[T]) headGrads(p *pass[T], ch *chunk[T]) (d tensor.Mat[T]) {
	h := r.cfg.HiddenSize
	if !ch.Loss {
		if !ch.norm && !ch.normed {
			return p.getRows(nn.TagActivationGrad, 0, ch.index, ch.next, h)
		}
		for k := range ch.before + len(ch.Depths) + 1 {
			g := p.getRows(nn.TagActivationGrad, k, ch.index, ch.next, h)
			if k > ch.before {
				p.c.Comm.Send(nn.Program(k), portGrad, g)
				continue
			}
			p.dh = append(p.dh, g)
		}
	}
	if len(ch.Depths) > 0 {
		chain := p.c.Comm.Recv(nn.Program(ch.Depths[0]), portChain).(tensor.Mat[T])
		if ch.before > 0 || !r.cfg.MTPDetachHeads {
			p.dh[ch.before] = p.c.Add(p.dh[ch.before], chain)
		}
	}
	return d
}
