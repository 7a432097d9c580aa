package nn

import (
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// FFN is the second half of a block: an MLP or a mixture of experts.
type FFN[T tensor.Float] interface {
	// Forward maps rows [local rows, H] to the same. What it saves is for one Backward.
	Forward(c *Ctx[T], x tensor.Mat[T]) (y tensor.Mat[T], saved any)
	// Backward returns the gradient of the rows. It may write into what Forward saved, which is of no use afterwards.
	Backward(c *Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T]
}

// Activation is the nonlinearity between the two products of an MLP.
type Activation[T tensor.Float] struct{ Gated bool } // gated: SwiGLU; else squared ReLU

// Width is the number of columns of the first product for f hidden features.
func (a Activation[T]) Width(f int) int {
	if a.Gated {
		return 2 * f
	}
	return f
}

// Forward maps rows [N, Width(f)] to [N, f]. A gated row is the gate's features, then the other factor's.
func (a Activation[T]) Forward(out, x tensor.Mat[T]) {
	f := out.Cols
	kernel.Parallel(x.Rows, 1+(1<<15)/max(f, 1), func(from, to int) {
		for r := from; r < to; r++ {
			if a.Gated {
				kernel.SwiGLU(out.Row(r), x.Row(r)[:f], x.Row(r)[f:])
			} else {
				kernel.SquaredReLU(out.Row(r), x.Row(r))
			}
		}
	})
}

// Backward maps the gradient of the output to that of the input.
func (a Activation[T]) Backward(dx, dout, x tensor.Mat[T]) {
	f := dout.Cols
	kernel.Parallel(x.Rows, 1+(1<<15)/max(f, 1), func(from, to int) {
		for r := from; r < to; r++ {
			if a.Gated {
				kernel.SwiGLUGrad(dx.Row(r)[:f], dx.Row(r)[f:], dout.Row(r), x.Row(r)[:f], x.Row(r)[f:])
			} else {
				kernel.SquaredReLUGrad(dx.Row(r), dout.Row(r), x.Row(r))
			}
		}
	})
}

// MLP is the dense feed-forward layer: FC1 [Width(F), H] column-parallel (this rank's gate rows, then its up rows),
// activation, FC2 [H, F] row-parallel.
type MLP[T tensor.Float] struct {
	FC1 ColumnLinear[T]
	FC2 RowLinear[T]
	Act Activation[T]
}

type mlpSaved[T tensor.Float] struct{ whole, z, a tensor.Mat[T] }

// Forward implements FFN.
func (m *MLP[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	z, whole := m.FC1.Forward(c, x, TagColumnInput)
	a := c.Arena.Mat(z.Rows, m.FC2.In)
	m.Act.Forward(a, z)
	return m.FC2.Forward(c, a), &mlpSaved[T]{whole, z, a}
}

// Backward implements FFN.
func (m *MLP[T]) Backward(c *Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*mlpSaved[T])
	da := m.FC2.Backward(c, dy, s.a)
	dz := c.Arena.Mat(s.z.Rows, s.z.Cols)
	m.Act.Backward(dz, da, s.z)
	return m.FC1.Backward(c, dz, s.whole, TagColumnInput)
}
