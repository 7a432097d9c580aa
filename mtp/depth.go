package mtp

import (
	"phalanx/nn"
	"phalanx/tensor"
)

// Depth is one depth: u = [ENorm(e) ; HNorm(h)] · Wᵀ, one block, a final norm. Under a repeated
// layer all depths share these parameters.
type Depth[T tensor.Float] struct {
	K         int // from 1
	Embedding nn.Embedding[T]
	EmbedGrad nn.EmbeddingGrads[T] // of this depth's use; empty: detached
	ENorm     nn.Norm[T]
	HNorm     nn.Norm[T]
	EHProj    nn.ColumnLinear[T] // [H/tp, 2H], embedding half first
	Block     *nn.Block[T]
	Final     nn.Norm[T]
}

// Saved is what Backward wants back.
type Saved[T tensor.Float] struct {
	ids, positions      []int32
	given               bool // embeddings were given: the table learns nothing
	enorm, hnorm, final nn.NormSaved[T]
	whole               tensor.Mat[T] // gathered [N, 2H]
	block               *nn.BlockSaved[T]
}

// Forward takes rolled inputs and returns h_k in the layout of activations.
func (d *Depth[T]) Forward(c *nn.Ctx[T], in Inputs[T]) (tensor.Mat[T], *Saved[T]) {
	s := &Saved[T]{ids: in.IDs, positions: in.Positions}
	d.observeInputs(c, in)
	var e, g tensor.Mat[T]
	e, s.enorm = d.ENorm.Forward(c, d.embed(c, s, in))
	g, s.hnorm = d.HNorm.Forward(c, in.Hidden)
	u := d.project(c, s, concat(c.Arena, e, g))
	v, saved := d.Block.Forward(c, u)
	s.block = saved
	h, final := d.Final.Forward(c, v)
	s.final = final
	c.ObserveMat("hidden", h, c.RowsLayout(), nn.Whole)
	return h, s
}

// embed looks ids up, or takes this rank's part of the embeddings that were given.
func (d *Depth[T]) embed(c *nn.Ctx[T], s *Saved[T], in Inputs[T]) tensor.Mat[T] {
	if in.Embeddings == nil {
		return d.Embedding.Forward(c, in.IDs, in.Positions)
	}
	s.given = true
	return nn.GivenEmbeddings(c, in.Embeddings)
}

// project is eh_proj in its parallel form: features are cut, gathered, and rows cut again under sequence parallelism.
func (d *Depth[T]) project(c *nn.Ctx[T], s *Saved[T], x tensor.Mat[T]) tensor.Mat[T] {
	y, whole := d.EHProj.Forward(c, x, nn.TagEHProjInput)
	s.whole = whole
	u := c.GatherCols(y, nn.TagEHProjOutput)
	if c.SP {
		from, n := c.SPRows()
		u = u.Slice(from, from+n)
	}
	return u
}

// Backward takes the gradient of h_k and returns that of h_{k−1}.
func (d *Depth[T]) Backward(c *nn.Ctx[T], s *Saved[T], dh tensor.Mat[T]) tensor.Mat[T] {
	dv := d.Final.Backward(c, s.final, dh)
	du := c.WholeRows(d.Block.Backward(c, s.block, dv), nn.TagScatter)
	dx := d.EHProj.Backward(c, c.SliceCols(du), s.whole, nn.TagEHProjInput)
	de, dg := split(c.Arena, dx)
	de = d.ENorm.Backward(c, s.enorm, de)
	if !s.given {
		d.Embedding.Backward(c, s.ids, s.positions, de, d.EmbedGrad)
	}
	return d.HNorm.Backward(c, s.hnorm, dg)
}

// observeInputs shows what the depth sees.
func (d *Depth[T]) observeInputs(c *nn.Ctx[T], in Inputs[T]) {
	all := c.Frame.Layout()
	c.ObserveBatch("input_ids", nn.Float64s(in.IDs), all, true)
	c.ObserveBatch("position_ids", nn.Float64s(in.Positions), all, true)
	c.ObserveBatch("labels", nn.Float64s(in.Labels), all, true)
	c.ObserveBatch("loss_mask", nn.Float64s(in.Loss.Weight), all, true)
	if in.Pad != nil {
		c.ObserveBatch("padding_mask", nn.Bools(in.Pad.Pad), in.Pad.Layout, true)
	}
}

// concat is [a ; b] on features.
func concat[T tensor.Float](arena *tensor.Arena[T], a, b tensor.Mat[T]) tensor.Mat[T] {
	out := arena.Mat(a.Rows, a.Cols+b.Cols)
	for r := range a.Rows {
		copy(out.Row(r), a.Row(r))
		copy(out.Row(r)[a.Cols:], b.Row(r))
	}
	return out
}

// split is the transpose of concat for equal halves.
func split[T tensor.Float](arena *tensor.Arena[T], x tensor.Mat[T]) (a, b tensor.Mat[T]) {
	h := x.Cols / 2
	a, b = arena.Mat(x.Rows, h), arena.Mat(x.Rows, h)
	for r := range x.Rows {
		copy(a.Row(r), x.Row(r)[:h])
		copy(b.Row(r), x.Row(r)[h:])
	}
	return a, b
}
