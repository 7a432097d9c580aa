package nn

import "phalanx/tensor"

// Block is one transformer layer: x + Drop(Attention(Norm(x))), then x + Drop(FFN(Norm(x))).
type Block[T tensor.Float] struct {
	Norm1 Norm[T]
	Attn  Attention[T]
	Norm2 Norm[T]
	FFN   FFN[T]
	// Dropout is of what attention and feed-forward part add to the residual stream.
	Dropout Dropout
}

// What a block drops, in the names of its draws.
const (
	afterAttention = "after attention"
	afterFFN       = "after mlp"
)

// BlockSaved is what Backward wants back.
type BlockSaved[T tensor.Float] struct {
	norm1, norm2 NormSaved[T]
	attn, ffn    any
	// With full recomputation only these are kept.
	again *Ctx[T]
	input tensor.Mat[T]
}

// Forward maps activations [local rows, H] to the same.
func (l *Block[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], *BlockSaved[T]) {
	if !c.DropActivations {
		return l.forward(c, x)
	}
	out := c.Arena.Mat(x.Rows, x.Cols)
	mark := c.Arena.Mark()
	y, _ := l.forward(c, x)
	copy(out.Data, y.Data)
	c.Arena.Release(mark)
	return out, &BlockSaved[T]{again: c, input: x}
}

func (l *Block[T]) forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], *BlockSaved[T]) {
	s := &BlockSaved[T]{}
	var y tensor.Mat[T]
	y, s.norm1 = l.Norm1.Forward(c, x)
	y, s.attn = l.Attn.Forward(c, y)
	mid := c.Add(x, c.Drop(l.Dropout, afterAttention, y))
	y, s.norm2 = l.Norm2.Forward(c, mid)
	y, s.ffn = l.FFN.Forward(c, y)
	return c.Add(mid, c.Drop(l.Dropout, afterFFN, y)), s
}

// Backward returns the gradient of the input.
func (l *Block[T]) Backward(c *Ctx[T], s *BlockSaved[T], dy tensor.Mat[T]) tensor.Mat[T] {
	if s.again == nil {
		return l.backward(c, s, dy)
	}
	dx := c.Arena.Mat(dy.Rows, dy.Cols)
	mark := c.Arena.Mark()
	again := *s.again
	again.Recompute, again.Obs, again.Sums, again.Site.Phase = true, nil, nil, Backward
	_, saved := l.forward(&again, s.input)
	copy(dx.Data, l.backward(c, saved, dy).Data)
	c.Arena.Release(mark)
	return dx
}

func (l *Block[T]) backward(c *Ctx[T], s *BlockSaved[T], dy tensor.Mat[T]) tensor.Mat[T] {
	d := l.FFN.Backward(c, s.ffn, c.Drop(l.Dropout, afterFFN, dy))
	dmid := c.Add(dy, l.Norm2.Backward(c, s.norm2, d))
	d = l.Attn.Backward(c, s.attn, c.Drop(l.Dropout, afterAttention, dmid))
	return c.Add(dmid, l.Norm1.Backward(c, s.norm1, d))
}
