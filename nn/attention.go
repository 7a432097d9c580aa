package nn

import (
	"math"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Shapes of this file: N = L·B rows, row = slot·B + b. One row of the fused product is Hq query heads, Hkv key heads,
// Hkv value heads of D features each, all of this tensor-parallel rank. Query head i uses key head i/(Hq/Hkv).

// Attention is causal self-attention inside each document, with grouped queries, rotary positions and optional query
// and key norms.
type Attention[T tensor.Float] struct {
	QKV          ColumnLinear[T] // [(Hq+2·Hkv)·D, H] of this rank: query, key, value rows
	Out          RowLinear[T]    // [H, Hq·D]
	Hq, Hkv, D   int             // heads of this rank
	QNorm, KNorm *Norm[T]        // gains [D]; nil: none
	Rope         *RopeTable[T]
	Dropout      Dropout  // of the probabilities
	CommType     CommType // how context-parallel ranks reach each other's keys and values
}

// CommType is cp_comm_type.
type CommType uint8

// The ways: a ring of keys and values, all of them gathered at once, or heads exchanged for positions.
const (
	P2P CommType = iota
	GatherAll
	AllToAll
)

type attnSaved[T tensor.Float] struct {
	whole tensor.Mat[T] // input of QKV
	qkv   tensor.Mat[T] // after norms and rotation
	raw   tensor.Mat[T] // before them; unset without norms
	inv   []T           // [N, Hq+Hkv] inverse root mean squares
	core  any           // of the way taken
	out   tensor.Mat[T] // [N, Hq·D]
}

// Forward maps [local rows, H] to the same.
func (a *Attention[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	s := &attnSaved[T]{}
	s.qkv, s.whole = a.QKV.Forward(c, x, TagColumnInput)
	a.prepare(c, s)
	s.out, s.core = a.way(c).forward(c, s.qkv)
	return a.Out.Forward(c, s.out), s
}

// Backward returns the gradient of the input.
func (a *Attention[T]) Backward(c *Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*attnSaved[T])
	dout := a.Out.Backward(c, dy, s.out)
	dqkv := a.way(c).backward(c, s.core, s.qkv, s.out, dout)
	a.unprepare(c, s, dqkv)
	return a.QKV.Backward(c, dqkv, s.whole, TagColumnInput)
}

// way is the exchange that a context-parallel group uses; a single rank needs none.
func (a *Attention[T]) way(c *Ctx[T]) way[T] {
	heads := heads{a.Hq, a.Hkv, a.D, a.scoreDrop(c)}
	switch {
	case c.CP() == 1:
		return alone[T]{heads}
	case a.CommType == GatherAll:
		return gatherAll[T]{heads}
	case a.CommType == AllToAll:
		return allToAll[T]{heads}
	}
	return ring[T]{heads}
}

// way is attention from prepared queries, keys and values [N, (Hq+2·Hkv)·D] to outputs [N, Hq·D].
type way[T tensor.Float] interface {
	forward(c *Ctx[T], qkv tensor.Mat[T]) (out tensor.Mat[T], saved any)
	backward(c *Ctx[T], saved any, qkv, out, dout tensor.Mat[T]) (dqkv tensor.Mat[T])
}

// prepare applies the head norms and the rotation to queries and keys, in place.
func (a *Attention[T]) prepare(c *Ctx[T], s *attnSaved[T]) {
	heads := a.Hq + a.Hkv
	if a.QNorm != nil {
		s.raw = c.Arena.Mat(s.qkv.Rows, s.qkv.Cols)
		copy(s.raw.Data, s.qkv.Data)
		s.inv = c.Arena.Alloc(s.qkv.Rows * heads)
	}
	gains := a.headGains(c)
	kernel.Parallel(s.qkv.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			for h := range heads {
				x := s.qkv.Row(r)[h*a.D : (h+1)*a.D]
				if a.QNorm != nil {
					n, raw := a.headNorm(h), s.raw.Row(r)[h*a.D:(h+1)*a.D]
					n.center(raw)
					s.inv[r*heads+h] = n.row(x, raw, gains(h))
				}
				a.Rope.rotate(x, c.position(r))
			}
		}
	})
}

// position is the place in its document of a row's slot.
func (c *Ctx[T]) position(r int) int { return int(c.Frame.Pos[r%c.B*c.L()+r/c.B]) }

// unprepare is the transpose of prepare, in place on dqkv; gains gather rows, then heads, in ascending order.
func (a *Attention[T]) unprepare(c *Ctx[T], s *attnSaved[T], dqkv tensor.Mat[T]) {
	heads := a.Hq + a.Hkv
	dx, gains := make([]T, a.D), a.headGains(c)
	for r := range dqkv.Rows {
		for h := range heads {
			dy := dqkv.Row(r)[h*a.D : (h+1)*a.D]
			a.Rope.unrotate(dy, c.position(r))
			if a.QNorm != nil {
				n := a.headNorm(h)
				n.rowGrad(dx, dy, s.raw.Row(r)[h*a.D:(h+1)*a.D], gains(h), s.inv[r*heads+h])
				copy(dy, dx)
			}
		}
	}
}

func (a *Attention[T]) headNorm(h int) *Norm[T] {
	if h < a.Hq {
		return a.QNorm
	}
	return a.KNorm
}

// headGains are the gains of the head norms, by head.
func (a *Attention[T]) headGains(c *Ctx[T]) func(h int) []T {
	if a.QNorm == nil {
		return nil
	}
	q, k := a.QNorm.gain(c.Arena), a.KNorm.gain(c.Arena)
	return func(h int) []T {
		if h < a.Hq {
			return q
		}
		return k
	}
}

// scale of the scores: 1/√D.
func scoreScale[T tensor.Float](d int) T { return T(1 / math.Sqrt(float64(d))) }
