package nn

import (
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// RMSNorm divides each row by its root mean square and multiplies by a learned gain [H].
type RMSNorm[T tensor.Float] struct {
	Gain *Param[T]
	Eps  T
}

// NormSaved is what the backward pass of a norm wants back.
type NormSaved[T tensor.Float] struct {
	X   tensor.Mat[T]
	Inv []T // one per row
}

// Forward normalises [N, H].
func (n RMSNorm[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], NormSaved[T]) {
	y, inv := c.Arena.Mat(x.Rows, x.Cols), c.Arena.Alloc(x.Rows)
	for r := range x.Rows {
		inv[r] = kernel.RMSNorm(y.Row(r), x.Row(r), n.Gain.Data, n.Eps)
	}
	return y, NormSaved[T]{X: x, Inv: inv}
}

// Backward returns the gradient of the input and adds that of the gain, rows in ascending order.
func (n RMSNorm[T]) Backward(c *Ctx[T], s NormSaved[T], dy tensor.Mat[T]) tensor.Mat[T] {
	dx := c.Arena.Mat(dy.Rows, dy.Cols)
	for r := range dy.Rows {
		kernel.RMSNormGrad(dx.Row(r), n.Gain.Grad, dy.Row(r), s.X.Row(r), n.Gain.Data, s.Inv[r])
	}
	return dx
}
