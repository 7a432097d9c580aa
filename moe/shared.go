package moe

import (
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Shared is the shared expert: an ordinary MLP, cut over tensor parallelism, that sees every row; its output is added
// to that of the routed experts.
type Shared[T tensor.Float] struct {
	MLP  *nn.MLP[T]
	Gate *nn.Weights[T] // [1, H], replicated: out · σ(x·gᵀ); nil: none
}

type sharedSaved[T tensor.Float] struct {
	x, y tensor.Mat[T]
	gate []T
	mlp  any
}

// Forward maps [local rows, H] to the same.
func (s *Shared[T]) Forward(c *nn.Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	saved := &sharedSaved[T]{x: x}
	saved.y, saved.mlp = s.MLP.Forward(c, x)
	if s.Gate == nil {
		return saved.y, saved
	}
	saved.gate = s.Gate.Forward(c.Arena, x).Data
	out := c.Arena.Mat(x.Rows, x.Cols)
	copy(out.Data, saved.y.Data)
	for i, v := range saved.gate {
		saved.gate[i] = T(sigmoid(float64(v)))
		kernel.Scale(out.Row(i), saved.gate[i])
	}
	return out, saved
}

// Backward returns the gradient of the rows.
func (s *Shared[T]) Backward(c *nn.Ctx[T], saved any, dout tensor.Mat[T]) tensor.Mat[T] {
	v := saved.(*sharedSaved[T])
	if s.Gate == nil {
		return s.MLP.Backward(c, v.mlp, dout)
	}
	dy, dlogit := c.Arena.Mat(dout.Rows, dout.Cols), c.Arena.Mat(dout.Rows, 1)
	copy(dy.Data, dout.Data)
	for i, g := range v.gate {
		dlogit.Data[i] = kernel.Dot(dout.Row(i), v.y.Row(i)) * g * (1 - g)
		kernel.Scale(dy.Row(i), g)
	}
	s.Gate.WeightGrad(dlogit, v.x)
	dx := s.MLP.Backward(c, v.mlp, dy)
	kernel.AddInto(dx.Data, s.Gate.InputGrad(c.Arena, dlogit).Data)
	return dx
}
