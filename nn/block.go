package nn

import "phalanx/tensor"

// Block is one transformer layer: x + Attention(Norm(x)), then x + FFN(Norm(x)).
type Block[T tensor.Float] struct {
	Norm1 RMSNorm[T]
	Attn  Attention[T]
	Norm2 RMSNorm[T]
	FFN   FFN[T]
}

// BlockSaved is what Backward wants back.
type BlockSaved[T tensor.Float] struct {
	norm1, norm2 NormSaved[T]
	attn, ffn    any
}

// Forward maps activations [local rows, H] to the same.
func (l *Block[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], *BlockSaved[T]) {
	s := &BlockSaved[T]{}
	var y tensor.Mat[T]
	y, s.norm1 = l.Norm1.Forward(c, x)
	y, s.attn = l.Attn.Forward(c, y)
	mid := c.Add(x, y)
	y, s.norm2 = l.Norm2.Forward(c, mid)
	y, s.ffn = l.FFN.Forward(c, y)
	return c.Add(mid, y), s
}

// Backward returns the gradient of the input.
func (l *Block[T]) Backward(c *Ctx[T], s *BlockSaved[T], dy tensor.Mat[T]) tensor.Mat[T] {
	d := l.FFN.Backward(c, s.ffn, dy)
	dmid := c.Add(dy, l.Norm2.Backward(c, s.norm2, d))
	d = l.Attn.Backward(c, s.attn, dmid)
	return c.Add(dmid, l.Norm1.Backward(c, s.norm1, d))
}
