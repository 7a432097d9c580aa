package nn

import (
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Norm is RMSNorm, which divides each row by its root mean square and multiplies by a learned gain [H], or with a bias
// LayerNorm, which takes the row's mean away first and adds the bias behind.
type Norm[T tensor.Float] struct {
	Gain *Param[T]
	Bias *Param[T] // [H]; nil: RMSNorm
	Eps  T
	// ZeroCentered: the gain is 1 + Gain, so that decay and initial values draw it to 1.
	ZeroCentered bool
}

// NormSaved is what the backward pass of a norm wants back.
type NormSaved[T tensor.Float] struct {
	X   tensor.Mat[T] // without its mean for LayerNorm
	Inv []T           // one per row
}

// Forward normalises [N, H].
func (n Norm[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], NormSaved[T]) {
	y, inv := c.Arena.Mat(x.Rows, x.Cols), c.Arena.Alloc(x.Rows)
	if n.Bias != nil {
		centered := c.Arena.Mat(x.Rows, x.Cols)
		copy(centered.Data, x.Data)
		x = centered
	}
	gain := n.gain(c.Arena)
	for r := range x.Rows {
		n.center(x.Row(r))
		inv[r] = n.row(y.Row(r), x.Row(r), gain)
	}
	return y, NormSaved[T]{X: x, Inv: inv}
}

// Backward returns the gradient of the input and adds those of gain and bias, rows in ascending order.
func (n Norm[T]) Backward(c *Ctx[T], s NormSaved[T], dy tensor.Mat[T]) tensor.Mat[T] {
	dx, gain := c.Arena.Mat(dy.Rows, dy.Cols), n.gain(c.Arena)
	for r := range dy.Rows {
		n.rowGrad(dx.Row(r), dy.Row(r), s.X.Row(r), gain, s.Inv[r])
	}
	return dx
}

// gain is what rows are multiplied by.
func (n *Norm[T]) gain(a *tensor.Arena[T]) []T {
	if !n.ZeroCentered {
		return n.Gain.Data
	}
	g := a.Alloc(len(n.Gain.Data))
	for i, v := range n.Gain.Data {
		g[i] = 1 + v
	}
	return g
}

// center takes the mean of a row away, for LayerNorm. It is its own transpose.
func (n *Norm[T]) center(x []T) {
	if n.Bias == nil {
		return
	}
	mean := kernel.Sum(x) / T(len(x))
	for i := range x {
		x[i] -= mean
	}
}

// row normalises one centered row and returns its inverse root mean square.
func (n *Norm[T]) row(y, x, gain []T) T {
	inv := kernel.RMSNorm(y, x, gain, n.Eps)
	if n.Bias != nil {
		kernel.AddInto(y, n.Bias.Data)
	}
	return inv
}

// rowGrad is the backward of center and row; x is the centered row.
func (n *Norm[T]) rowGrad(dx, dy, x, gain []T, inv T) {
	kernel.RMSNormGrad(dx, n.Gain.Grad, dy, x, gain, inv)
	if n.Bias != nil {
		kernel.AddInto(n.Bias.Grad, dy)
		n.center(dx)
	}
}
