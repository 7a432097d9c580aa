package kernel

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// normals is n fp64 normal values of stream s.
func normals(s, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = NormalFromUniform(uniform(s, i, 0.001, 0.999))
	}
	return x
}

// requireGrad compares grad, the gradient of loss with respect to x, with central differences in fp64.
func requireGrad(t *testing.T, name string, x, grad []float64, loss func() float64) {
	t.Helper()
	for i := range x {
		const h = 1e-5
		old := x[i]
		x[i] = old + h
		up := loss()
		x[i] = old - h
		down := loss()
		x[i] = old
		want := (up - down) / (2 * h)
		require.InDelta(t, want, grad[i], 1e-8*max(1, math.Abs(want)), "%s, element %d", name, i)
	}
}

func TestRMSNormGrad(t *testing.T) {
	const n, eps = 37, 1e-3
	x, gain, dy, y := normals(1, n), normals(2, n), normals(3, n), make([]float64, n)
	inv := RMSNorm(y, x, gain, eps)
	dx, dgain := make([]float64, n), normals(4, n)
	before := slices.Clone(dgain)
	RMSNormGrad(dx, dgain, dy, x, gain, inv)
	for i := range dgain {
		dgain[i] -= before[i]
	}
	loss := func() float64 { RMSNorm(y, x, gain, eps); return Dot(y, dy) }
	requireGrad(t, "dx", x, dx, loss)
	requireGrad(t, "dgain", gain, dgain, loss)

	inPlace := slices.Clone(dy)
	RMSNormGrad(inPlace, before, inPlace, x, gain, inv)
	require.Equal(t, dx, inPlace, "dx may be dy")
}

func TestRMSNormValue(t *testing.T) {
	y := make([]float64, 2)
	inv := RMSNorm(y, []float64{3, 4}, []float64{1, 2}, 0)
	require.InDelta(t, 1/math.Sqrt(12.5), inv, 1e-15)
	require.InDeltaSlice(t, []float64{3 / math.Sqrt(12.5), 8 / math.Sqrt(12.5)}, y, 1e-15)
}

func TestSwiGLUGrad(t *testing.T) {
	const n = 41
	gate, up, dout, out := normals(5, n), normals(6, n), normals(7, n), make([]float64, n)
	gate[0], gate[1] = 12, -12
	dgate, dup := make([]float64, n), make([]float64, n)
	SwiGLUGrad(dgate, dup, dout, gate, up)
	loss := func() float64 { SwiGLU(out, gate, up); return Dot(out, dout) }
	requireGrad(t, "dgate", gate, dgate, loss)
	requireGrad(t, "dup", up, dup, loss)
}

// silu saturates without NaN: 0 far below zero, x far above.
func TestSwiGLUFarOut(t *testing.T) {
	out := make([]float32, 4)
	SwiGLU(out, []float32{-1e4, -90, 90, 1e4}, []float32{1, 1, 1, 1})
	require.Equal(t, []float32{0, 0, 90, 1e4}, out)
	dgate, dup := make([]float32, 4), make([]float32, 4)
	ones := []float32{1, 1, 1, 1}
	SwiGLUGrad(dgate, dup, ones, []float32{-1e4, -90, 90, 1e4}, ones)
	require.Equal(t, []float32{0, 0, 1, 1}, dgate)
}

func TestSquaredReLUGrad(t *testing.T) {
	const n = 35
	x, dout, out, dx := normals(8, n), normals(9, n), make([]float64, n), make([]float64, n)
	SquaredReLUGrad(dx, dout, x)
	requireGrad(t, "dx", x, dx, func() float64 { SquaredReLU(out, x); return Dot(out, dout) })

	y := make([]float64, 3)
	SquaredReLU(y, []float64{-2, 3, math.NaN()})
	require.Equal(t, []float64{0, 9}, y[:2])
	require.True(t, math.IsNaN(y[2]), "NaN must not be hidden")
}

func TestSoftmaxGrad(t *testing.T) {
	const n, scale = 33, 0.3
	s, dp, p, ds := normals(10, n), normals(11, n), make([]float64, n), make([]float64, n)
	SoftmaxInto(p, s, scale)
	SoftmaxGradRow(ds, p, dp, scale)
	requireGrad(t, "ds", s, ds, func() float64 { SoftmaxInto(p, s, scale); return Dot(p, dp) })
}

// The attention backward's way to P through the log-sum-exp agrees with the forward's.
func TestSoftmaxAndExpScaled(t *testing.T) {
	s, p, q := normals(12, 50), make([]float64, 50), make([]float64, 50)
	max, sum := SoftmaxInto(p, s, 1.7)
	require.InDelta(t, 1, Sum(p), 1e-14)
	ExpScaled(q, s, 1.7, max+Log(sum))
	require.InDeltaSlice(t, p, q, 1e-14)
	scaled := slices.Clone(s)
	Scale(scaled, 1.7)
	require.InDelta(t, sum, SumExp(scaled, max), 1e-12)
}

func TestSoftmaxMasked(t *testing.T) {
	inf := float32(math.Inf(1))
	p := make([]float32, 4)
	max, sum := SoftmaxInto(p, []float32{1, -inf, 1, -1e9}, 2)
	require.Equal(t, []float32{0.5, 0, 0.5, 0}, p)
	require.Equal(t, []float32{2, 2}, []float32{max, sum})
	SoftmaxInto(p[:2], []float32{1, float32(math.NaN())}, 1)
	require.True(t, p[0] != p[0], "a NaN spreads over the row")
}

func TestCrossEntropyGrad(t *testing.T) {
	const n, label, weight = 29, 5, 0.4
	l := normals(13, n)
	loss := func() float64 {
		max := Max(l)
		return weight * (max + Log(SumExp(l, max)) - l[label])
	}
	max := Max(l)
	grad := slices.Clone(l)
	CrossEntropyGrad(grad, max, 1/SumExp(l, max), weight)
	grad[label] -= weight
	requireGrad(t, "dlogits", l, grad, loss)
}

func TestRoPEGrad(t *testing.T) {
	const half = 9
	x, dy := normals(14, 2*half), normals(15, 2*half)
	cos, sin := make([]float64, half), make([]float64, half)
	for i := range half {
		sin[i], cos[i] = SinCos(float64(i) * 0.7)
	}
	y := slices.Clone(x)
	RoPE(y, cos, sin)
	require.InDelta(t, x[1]*cos[1]-x[half+1]*sin[1], y[1], 1e-15)
	require.InDelta(t, x[half+1]*cos[1]+x[1]*sin[1], y[half+1], 1e-15)

	dx := slices.Clone(dy)
	RoPEGrad(dx, cos, sin)
	requireGrad(t, "dx", x, dx, func() float64 {
		copy(y, x)
		RoPE(y, cos, sin)
		return Dot(y, dy)
	})
	copy(y, x)
	RoPE(y, cos, sin)
	RoPEGrad(y, cos, sin)
	require.InDeltaSlice(t, x, y, 1e-14, "a rotation's transpose is its inverse")
}

// With the first moments zero the first step is lr·(sign(g) + wd·p): 1 − 0.1·(1 + 0.1) = 0.89.
func TestAdamWFirstStep(t *testing.T) {
	p, g, m, v := []float64{1}, []float64{0.5}, []float64{0}, []float64{0}
	h := AdamWStep[float64]{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1,
		BiasCorr1: 0.1, BiasCorr2: 0.001, GradScale: 1}
	AdamW(p, g, m, v, h)
	require.InDelta(t, 0.89, p[0], 1e-8)
	require.InDelta(t, 0.05, m[0], 1e-15)
	require.InDelta(t, 0.00025, v[0], 1e-15)
}

// The second step by hand, with a clip factor of ½ on the gradient −0.8, so that g' = −0.4:
// m = 0.9·0.05 − 0.1·0.4 = 0.005, v = 0.999·0.00025 + 0.001·0.16 = 0.00040975.
func TestAdamWSecondStep(t *testing.T) {
	p, g, m, v := []float64{0.89}, []float64{-0.8}, []float64{0.05}, []float64{0.00025}
	h := AdamWStep[float64]{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1,
		BiasCorr1: 0.19, BiasCorr2: 0.001999, GradScale: 0.5}
	AdamW(p, g, m, v, h)
	require.InDelta(t, 0.005, m[0], 1e-15)
	require.InDelta(t, 0.00040975, v[0], 1e-15)
	step := (0.005/0.19)/(math.Sqrt(0.00040975/0.001999)+1e-8) + 0.1*0.89
	require.InDelta(t, 0.89-0.1*step, p[0], 1e-14)
}

// In float32 the 1 − β of the caller is the exact one, and the first step comes out as in fp64.
func TestAdamWOneMinusBeta(t *testing.T) {
	p, g, m, v := []float32{1}, []float32{0.5}, []float32{0}, []float32{0}
	h := AdamWStep[float32]{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1,
		BiasCorr1: 0.1, BiasCorr2: 0.001, GradScale: 1, OneMinusBeta1: 0.1, OneMinusBeta2: 0.001}
	AdamW(p, g, m, v, h)
	require.InDelta(t, 0.89, p[0], 1e-7)
	require.Equal(t, float32(0.00025), v[0])
}
