package nn

import (
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Weights are the weight of a linear map and its gradient, [Out, In] row-major, Y = X·Wᵀ.
type Weights[T tensor.Float] struct {
	Out, In int
	W, G    []T
}

// WeightsOf sees parameters stacked by rows as one weight.
func WeightsOf[T tensor.Float](out, in int, parts ...*Param[T]) Weights[T] {
	j := Join(parts...)
	return Weights[T]{Out: out, In: in, W: j.Data(), G: j.Grad()}
}

// Forward is X·Wᵀ: [N, In] → [N, Out].
func (w Weights[T]) Forward(a *tensor.Arena[T], x tensor.Mat[T]) tensor.Mat[T] {
	y := a.Mat(x.Rows, w.Out)
	kernel.Gemm(kernel.NT, x.Rows, w.Out, w.In, x.Data, x.Cols, w.W, w.In, y.Data, w.Out, false)
	return y
}

// InputGrad is dY·W: [N, Out] → [N, In].
func (w Weights[T]) InputGrad(a *tensor.Arena[T], dy tensor.Mat[T]) tensor.Mat[T] {
	dx := a.Mat(dy.Rows, w.In)
	kernel.Gemm(kernel.NN, dy.Rows, w.In, w.Out, dy.Data, dy.Cols, w.W, w.In, dx.Data, w.In, false)
	return dx
}

// WeightGrad adds dYᵀ·X to the gradient.
func (w Weights[T]) WeightGrad(dy, x tensor.Mat[T]) {
	kernel.Gemm(kernel.TN, w.Out, w.In, dy.Rows, dy.Data, dy.Cols, x.Data, x.Cols, w.G, w.In, true)
}

// Bias is added to every row of a linear map's output, [Out]. The zero Bias adds nothing.
type Bias[T tensor.Float] struct{ B, G []T }

// BiasOf sees parameters as one bias, one behind the other.
func BiasOf[T tensor.Float](parts ...*Param[T]) Bias[T] {
	j := Join(parts...)
	return Bias[T]{B: j.Data(), G: j.Grad()}
}

// add adds the bias to every row, in place.
func (b Bias[T]) add(y tensor.Mat[T]) {
	if b.B == nil {
		return
	}
	for r := range y.Rows {
		kernel.AddInto(y.Row(r), b.B)
	}
}

// grad adds the rows of dy to the gradient, in ascending order.
func (b Bias[T]) grad(dy tensor.Mat[T]) {
	if b.B == nil {
		return
	}
	for r := range dy.Rows {
		kernel.AddInto(b.G, dy.Row(r))
	}
}

// ColumnLinear is a linear map whose output features, and their bias, are cut over the tensor-parallel group. The
// input is whole on every rank without sequence parallelism and gathered with it.
type ColumnLinear[T tensor.Float] struct {
	Weights[T]
	Bias Bias[T]
}

// Forward returns this rank's features for all rows, and the gathered input that Backward wants back.
func (l ColumnLinear[T]) Forward(c *Ctx[T], x tensor.Mat[T], tag Tag) (y, whole tensor.Mat[T]) {
	whole = c.WholeRows(x, tag)
	y = l.Weights.Forward(c.Arena, whole)
	l.Bias.add(y)
	return y, whole
}

// Backward takes the gradient of this rank's features and returns that of the input, in the input's layout.
func (l ColumnLinear[T]) Backward(c *Ctx[T], dy, whole tensor.Mat[T], tag Tag) tensor.Mat[T] {
	l.WeightGrad(dy, whole)
	l.Bias.grad(dy)
	return c.ReducePartial(l.InputGrad(c.Arena, dy), tag)
}

// RowLinear is a linear map whose input features are cut over the tensor-parallel group; the partial products are
// added in rank order, then the bias once: every rank has the whole bias, and under sequence parallelism a part of its
// gradient, that of the rank's rows.
type RowLinear[T tensor.Float] struct {
	Weights[T]
	Bias Bias[T]
}

// Forward takes this rank's features for all rows; the result is in the layout of activations between blocks.
func (l RowLinear[T]) Forward(c *Ctx[T], x tensor.Mat[T]) tensor.Mat[T] {
	y := c.ReducePartial(l.Weights.Forward(c.Arena, x), TagRowOutput)
	l.Bias.add(y)
	return y
}

// Backward returns the gradient of this rank's input features for all rows.
func (l RowLinear[T]) Backward(c *Ctx[T], dy, x tensor.Mat[T]) tensor.Mat[T] {
	l.Bias.grad(dy)
	whole := c.WholeRows(dy, TagRowOutput)
	l.WeightGrad(whole, x)
	return l.InputGrad(c.Arena, whole)
}
