package model

import (
	"fmt"

	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// order is what the stage tells its depths to do next.
type order struct {
	op  train.Op
	end bool
}

// depthPass is one microbatch on its way through the depths.
type depthPass[T tensor.Float] struct {
	s    step
	pass *pass[T]
	in   mtp.Inputs[T]
}

// depthSaved is a depth's part of a microbatch between forward and backward.
type depthSaved[T tensor.Float] struct {
	c     *nn.Ctx[T]
	saved *mtp.Saved[T]
}

// depth is program k, in the stage's order: for every microbatch it takes the set of depth k−1, rolls it, computes, forwards the rolled
// set to depth k+1 and the loss's part to the stage; backward the same way.
func (r *Rank[T]) depth(c nn.Comm, k int) {
	arenas := &r.depthArenas[k-1]
	saved := map[int]depthSaved[T]{}
	for {
		switch o := c.Recv(0, portOrder).(order); {
		case o.end:
			return
		case o.op.Kind == train.ForwardOp:
			saved[o.op.Microbatch] = r.depthForward(c, k, arenas.take())
		default:
			r.depthBackward(c, k, saved[o.op.Microbatch])
			arenas.give(saved[o.op.Microbatch].c.Arena)
			delete(saved, o.op.Microbatch)
		}
	}
}

func (r *Rank[T]) depthForward(c nn.Comm, k int, arena *tensor.Arena[T]) depthSaved[T] {
	d := r.depths[k-1]
	from := c.Recv(r.beforeDepth(k), portInputs).(depthPass[T])
	ctx := from.pass.c.At(0, fmt.Sprintf("mtp.%d", k))
	ctx.Comm, ctx.Arena, ctx.Site.Depth = c, arena, k
	ctx.Aux.Divisor = r.auxDivisor()
	in := mtp.Roll(ctx, from.in)
	ctx.SetPad(in.Pad)
	r.point(ctx, "forward")
	h, saved := d.Forward(ctx, in)
	next := in
	next.Hidden = h
	switch {
	case r.isHere(k + 1):
		c.Send(nn.Program(k+1), portInputs, depthPass[T]{s: from.s, pass: from.pass, in: next})
	case r.holders.loss != r.holders.depths[k-1]:
		c.Send(0, portRolled, next)
	}
	c.Send(0, portHead, mtp.ToHead[T]{Hidden: h, Labels: in.Labels, Loss: in.Loss})
	return depthSaved[T]{c: ctx, saved: saved}
}

// isHere says whether depth k runs on this pipeline stage, in the chunk of its neighbours.
func (r *Rank[T]) isHere(k int) bool { return k >= 1 && k <= len(r.depths) && r.depths[k-1] != nil }

// beforeDepth is the program that hands depth k its inputs: the depth before it, or the stage.
func (r *Rank[T]) beforeDepth(k int) nn.Program {
	if r.isHere(k - 1) {
		return nn.Program(k - 1)
	}
	return 0
}

// auxDivisor is D when all depths share one layer: its router sees the mean of the depths' auxiliary losses.
func (r *Rank[T]) auxDivisor() float64 {
	if r.cfg.MTPUseRepeatedLayer {
		return float64(len(r.depths))
	}
	return 1
}

func (r *Rank[T]) depthBackward(c nn.Comm, k int, s depthSaved[T]) {
	s.c.Site.Phase = nn.Backward
	r.point(s.c, "backward")
	dh := c.Recv(0, portGrad).(tensor.Mat[T])
	if r.isHere(k + 1) {
		dh = s.c.Add(dh, c.Recv(nn.Program(k+1), portChain).(tensor.Mat[T]))
	}
	c.Send(r.beforeDepth(k), portChain, r.depths[k-1].Backward(s.c, s.saved, dh))
}
