// Package gradcheck compares analytic gradients of layers with central finite differences. For tests.
package gradcheck

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/nn"
	"phalanx/tensor"
)

// Rig is one layer on one rank, its parameters filled with random numbers.
type Rig struct {
	C      *nn.Ctx[float64]
	Params *nn.Params[float64]
	rng    *rand.Rand
}

// New is a rig for b rows of s positions on one rank.
func New(b, s int) *Rig {
	frames := nn.NewFrames(nil, b, s, 1, 1)
	c := &nn.Ctx[float64]{Comm: nn.Solo{}, Arena: &tensor.Arena[float64]{}, B: b, Frame: frames[0], Frames: frames, Scope: "test",
		Aux: nn.AuxScale{Divisor: 1}}
	return &Rig{C: c, Params: &nn.Params[float64]{}, rng: rand.New(rand.NewPCG(1, 2))}
}

// Declare adds a whole parameter.
func (r *Rig) Declare(name string, shape ...int) *nn.Param[float64] {
	return r.Params.Declare(nn.Spec{Name: name, Shape: shape, Shard: nn.Unsharded})
}

// Build lays out memory and fills it with random numbers.
func (r *Rig) Build() {
	r.Params.Build()
	for _, p := range r.Params.List {
		for i := range p.Data {
			p.Data[i] = r.rng.NormFloat64() * 0.5
		}
	}
}

// Random is a matrix of standard normals.
func (r *Rig) Random(rows, cols int) tensor.Mat[float64] {
	m := tensor.NewMat[float64](rows, cols)
	for i := range m.Data {
		m.Data[i] = r.rng.NormFloat64()
	}
	return m
}

// Check compares analytic gradients of Σ probe·layer(x) with central differences, for x and every parameter.
func (r *Rig) Check(t *testing.T, x tensor.Mat[float64], forward func(tensor.Mat[float64]) (tensor.Mat[float64], func(tensor.Mat[float64]) tensor.Mat[float64])) {
	t.Helper()
	y, backward := forward(x)
	probe := r.Random(y.Rows, y.Cols)
	r.Params.ZeroGrads()
	dx := append([]float64(nil), backward(probe).Data...)
	loss := func() float64 {
		r.C.Arena.Reset()
		y, _ := forward(x)
		sum := 0.0
		for i, v := range y.Data {
			sum += v * probe.Data[i]
		}
		return sum
	}
	Near(t, "input", loss, x.Data, dx)
	for _, p := range r.Params.List {
		Near(t, p.Name, loss, p.Data, append([]float64(nil), p.Grad...))
	}
}

// Near checks every element's derivative of loss against want.
func Near(t *testing.T, name string, loss func() float64, x, want []float64) {
	t.Helper()
	const eps = 1e-5
	for i := range x {
		old := x[i]
		x[i] = old + eps
		up := loss()
		x[i] = old - eps
		down := loss()
		x[i] = old
		got := (up - down) / (2 * eps)
		require.InDelta(t, got, want[i], 1e-6*math.Max(1, math.Abs(got)), "%s[%d]", name, i)
	}
}
