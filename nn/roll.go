package nn

import (
	"fmt"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/tensor"
)

// RollSlots is one roll of a [B, L, n] tensor of all slots of this context-parallel rank, fill 0. With
// more ranks it exchanges chunk edges with its two neighbours: r → r−1 the front chunks' first elements, r → r+1 the
// back chunks', all rows and documents in one message each way. Nil of nil, without a message.
func RollSlots[T tensor.Float, V tensor.Number](c *Ctx[T], x []V, n int, tag Tag) []V {
	if x == nil {
		return nil
	}
	f := c.rolls()
	if c.Mut.Has(mutation.WrongCPLayoutRoll) && f.CP > 1 {
		return rollContiguous(c, x, n, tag)
	}
	var next Edges[V]
	if f.CP > 1 {
		next = exchangeEdges(c, EdgesOf(f, x, n), tag)
	}
	return Roll(f, x, n, 0, next)
}

// rolls is the frame that rolls use: the one of the slots, but for planted bugs.
func (c *Ctx[T]) rolls() *Frame {
	if c.Rolls != nil {
		return c.Rolls
	}
	return c.Frame
}

// exchangeEdges sends this rank's edges to the neighbours that need them and receives theirs.
func exchangeEdges[T tensor.Float, V tensor.Number](c *Ctx[T], own Edges[V], tag Tag) Edges[V] {
	f := c.Frame
	next := Edges[V]{Front: make([]V, len(own.Front)), Back: make([]V, len(own.Back))}
	op := &Op{Axis: mesh.CP, Kind: Exchange, DType: tensor.DTypeOf[V](), Tag: tag, Site: c.Site}
	var out []V
	size := len(tensor.Bytes(own.Front))
	if f.CPRank > 0 {
		op.To = append(op.To, Part{f.CPRank - 1, size})
		op.From = append(op.From, Part{f.CPRank - 1, size})
		out = append(out, own.Front...)
	}
	if f.CPRank < f.CP-1 {
		op.To = append(op.To, Part{f.CPRank + 1, size})
		op.From = append(op.From, Part{f.CPRank + 1, size})
		out = append(out, own.Back...)
	}
	in := make([]V, len(out))
	op.In, op.Out = tensor.Bytes(out), tensor.Bytes(in)
	c.Comm.Do(op)
	if f.CPRank > 0 {
		in = in[copy(next.Back, in):]
	}
	if f.CPRank < f.CP-1 {
		copy(next.Front, in)
	}
	return next
}

// RollValidity is one roll of the validity of all slots: what leaves a document is not valid. A tensor-parallel shard
// is a programmer error: its end is not the end of the sequence; gather, roll, cut again.
func RollValidity[T tensor.Float](c *Ctx[T], v *Validity) *Validity {
	v.checkWhole()
	rolled := RollSlots(c, bits(v.Valid), 1, TagRollPaddingMask)
	out := &Validity{B: v.B, S: v.S, Layout: v.Layout, Valid: make([]bool, len(rolled))}
	for i, x := range rolled {
		out.Valid[i] = x != 0
	}
	return out
}

// RollWhole is one roll of whole validity. f is the frame of one rank. Nil of nil.
func (v *Validity) RollWhole(f *Frame) *Validity {
	if v == nil {
		return nil
	}
	v.checkWhole()
	return &Validity{B: v.B, S: v.S, Layout: v.Layout, Valid: Roll(f, v.Valid, 1, false, Edges[bool]{})}
}

func (v *Validity) checkWhole() {
	if v.Layout&SPShard != 0 {
		panic(fmt.Sprintf("nn: roll of a Validity in layout %s: the end of a shard is not the end of the sequence; "+
			"gather the shards of the tensor-parallel group first", v.Layout))
	}
}

func bits(x []bool) []uint8 {
	out := make([]uint8, len(x))
	for i, v := range x {
		if v {
			out[i] = 1
		}
	}
	return out
}

// RollLossMask is one roll of the loss mask of all slots; what leaves a document stops counting.
func RollLossMask[T tensor.Float](c *Ctx[T], m *LossMask) *LossMask {
	return &LossMask{B: m.B, S: m.S, Weight: RollSlots(c, m.explicit(), 1, TagRollLossMask)}
}

// RollWhole is one roll of whole [B, S] ids, labels or positions: f is the frame of one rank.
func RollWhole(f *Frame, x []int32) []int32 { return Roll(f, x, 1, 0, Edges[int32]{}) }

// RollWhole is one roll of a whole [B, S] mask, alike.
func (m *LossMask) RollWhole(f *Frame) *LossMask {
	return &LossMask{B: m.B, S: m.S, Weight: Roll(f, m.explicit(), 1, 0, Edges[float32]{})}
}

// explicit is the weights, also of a mask of ones.
func (m *LossMask) explicit() []float32 {
	if !m.AllOnes {
		return m.Weight
	}
	w := make([]float32, m.B*m.S)
	for i := range w {
		w[i] = 1
	}
	return w
}

// Local is the part of a whole mask that lies on a rank; inserted slots do not count.
func (m *LossMask) Local(f *Frame) *LossMask {
	if f.Whole() {
		return m
	}
	return &LossMask{B: m.B, S: f.L, Weight: TakeRows(f, m.explicit(), 0)}
}

// Local is the part of a whole mask that lies on a rank; inserted slots are padding. Nil of nil.
func (p *PadMask) Local(f *Frame) *PadMask {
	if p == nil || f.Whole() {
		return p
	}
	return &PadMask{B: p.B, S: f.L, Layout: f.Layout(), Pad: TakeRows(f, p.Pad, true)}
}

// GivenEmbeddings is this rank's rows of precomputed embeddings [B, L, H], in the layout of activations.
func GivenEmbeddings[T tensor.Float](c *Ctx[T], e []T) tensor.Mat[T] {
	h := len(e) / (c.B * c.L())
	from, n := c.SPRows()
	out := c.Arena.Mat(n, h)
	for i := range n {
		r := from + i
		at := (r%c.B*c.L() + r/c.B) * h
		copy(out.Row(i), e[at:at+h])
	}
	return out
}
