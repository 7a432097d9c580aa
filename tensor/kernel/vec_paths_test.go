package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// runner calls one kernel on three inputs of equal length and gives everything it wrote.
type runner struct {
	name string
	run  func(a, b, c []float32) [][]float32
}

// out is room for a result, filled so that an element left out shows.
func out(n int) []float32 { return slices.Repeat([]float32{7}, n) }

// scalars is a sum or two as a result.
func scalars(x ...float32) [][]float32 { return [][]float32{x} }

var runners = slices.Concat(elementwiseRunners, rowRunners)

var elementwiseRunners = []runner{
	{"Add", func(a, b, c []float32) [][]float32 { o := out(len(a)); Add(o, a, b); return [][]float32{o} }},
	{"AddInto", func(a, b, c []float32) [][]float32 { AddInto(a, b); return [][]float32{a} }},
	{"Mul", func(a, b, c []float32) [][]float32 { o := out(len(a)); Mul(o, a, b); return [][]float32{o} }},
	{"Scale", func(a, b, c []float32) [][]float32 { Scale(a, 1.7); return [][]float32{a} }},
	{"Axpy", func(a, b, c []float32) [][]float32 { Axpy(a, -0.3, b); return [][]float32{a} }},
	{"ExpInto", func(a, b, c []float32) [][]float32 { o := out(len(a)); ExpInto(o, a); return [][]float32{o} }},
	{"ExpScaled", func(a, b, c []float32) [][]float32 {
		o := out(len(a))
		ExpScaled(o, a, 0.35, 2.1)
		return [][]float32{o}
	}},
	{"SwiGLU", func(a, b, c []float32) [][]float32 { o := out(len(a)); SwiGLU(o, a, b); return [][]float32{o} }},
	{"SwiGLUGrad", func(a, b, c []float32) [][]float32 {
		dg, du := out(len(a)), out(len(a))
		SwiGLUGrad(dg, du, c, a, b)
		return [][]float32{dg, du}
	}},
	{"SquaredReLU", func(a, b, c []float32) [][]float32 { o := out(len(a)); SquaredReLU(o, a); return [][]float32{o} }},
	{"SquaredReLUGrad", func(a, b, c []float32) [][]float32 {
		o := out(len(a))
		SquaredReLUGrad(o, b, a)
		return [][]float32{o}
	}},
	{"CrossEntropyGrad", func(a, b, c []float32) [][]float32 {
		CrossEntropyGrad(a, 3.5, 0.25, 0.1)
		return [][]float32{a}
	}},
	{"RoPE", func(a, b, c []float32) [][]float32 { x := slices.Concat(a, b); RoPE(x, c, a); return [][]float32{x} }},
	{"RoPEGrad", func(a, b, c []float32) [][]float32 {
		x := slices.Concat(a, b)
		RoPEGrad(x, c, a)
		return [][]float32{x}
	}},
	{"AdamW", func(a, b, c []float32) [][]float32 {
		v := slices.Clone(c)
		for i := range v {
			v[i] = float32(math.Abs(float64(v[i])))
		}
		m := slices.Clone(b)
		AdamW(a, b, m, v, AdamWStep[float32]{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1,
			BiasCorr1: 0.19, BiasCorr2: 0.002, GradScale: 0.7})
		return [][]float32{a, m, v}
	}},
}

var rowRunners = []runner{
	{"Sum", func(a, b, c []float32) [][]float32 { return scalars(Sum(a)) }},
	{"Dot", func(a, b, c []float32) [][]float32 { return scalars(Dot(a, b)) }},
	{"SumSquares", func(a, b, c []float32) [][]float32 {
		bits := math.Float64bits(SumSquares(a))
		if math.IsNaN(SumSquares(a)) {
			bits = 1
		}
		return scalars(math.Float32frombits(uint32(bits>>32)), math.Float32frombits(uint32(bits)))
	}},
	{"Max", func(a, b, c []float32) [][]float32 { return scalars(Max(a)) }},
	{"MaxIndex", func(a, b, c []float32) [][]float32 { return scalars(float32(MaxIndex(a))) }},
	{"SumExp", func(a, b, c []float32) [][]float32 { return scalars(SumExp(a, 3)) }},
	{"SoftmaxInto", func(a, b, c []float32) [][]float32 {
		o := out(len(a))
		max, sum := SoftmaxInto(o, a, 0.7)
		return [][]float32{o, {max, sum}}
	}},
	{"SoftmaxIntoNegative", func(a, b, c []float32) [][]float32 {
		max, sum := SoftmaxInto(a, a, -1.3)
		return [][]float32{a, {max, sum}}
	}},
	{"SoftmaxGradRow", func(a, b, c []float32) [][]float32 {
		o := out(len(a))
		SoftmaxGradRow(o, a, b, 0.125)
		return [][]float32{o}
	}},
	{"RMSNorm", func(a, b, c []float32) [][]float32 {
		o := out(len(a))
		inv := RMSNorm(o, a, b, 1e-5)
		return [][]float32{o, {inv}}
	}},
	{"RMSNormGrad", func(a, b, c []float32) [][]float32 {
		dx, dgain := out(len(a)), slices.Clone(b)
		RMSNormGrad(dx, dgain, c, a, b, 0.6)
		return [][]float32{dx, dgain}
	}},
}

// canonical is the bits of x with one NaN for all.
func canonical(x []float32) []uint32 {
	y := make([]uint32, len(x))
	for i, v := range x {
		y[i] = math.Float32bits(v)
		if v != v {
			y[i] = 0x7fc00000
		}
	}
	return y
}

// onPath runs f with path p active.
func onPath(p Path, f func()) {
	defer Use(Use(p))
	f()
}

// specials are values at which instructions differ if anything does.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -3e-40, 0x1p-126, 1e-30, -1e-20, 1, -1, 88.7228, 88.73,
	-87.33654, -87.33655, -88, -104, 1e4, -1e9, 3e38, -3e38, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// draw is element i of stream s: normal values about the size of activations.
func draw(s, i int) float32 {
	w := Philox([2]uint32{uint32(s), 5}, [4]uint32{uint32(i)})
	return float32(3 * NormalFromUniform((float64(w[0])+0.5)/(1<<32)))
}

// inputs are three slices of n elements in one array with guards around them; special asks for special values.
func inputs(n, seed int, special bool) (a, b, c []float32) {
	fill := func(s int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = draw(16*seed+s, i)
			if pick := Philox([2]uint32{uint32(seed), uint32(s)}, [4]uint32{uint32(i)}); special && pick[0]%3 == 0 {
				x[i] = specials[int(pick[1])%len(specials)]
			}
		}
		return x
	}
	return fill(0), fill(1), fill(2)
}

// TestPathsAgree is the contract of the package: every path gives the bits of the portable form.
func TestPathsAgree(t *testing.T) {
	lengths := []int{4096, 4099, 8209}
	for n := range 71 {
		lengths = append(lengths, n)
	}
	for _, r := range runners {
		t.Run(r.name, func(t *testing.T) {
			for _, n := range lengths {
				for seed := range 4 {
					requirePathsAgree(t, r, n, seed)
				}
			}
		})
	}
}

func requirePathsAgree(t *testing.T, r runner, n, seed int) {
	t.Helper()
	var want [][]uint32
	for p := Portable; p <= Best(); p++ {
		onPath(p, func() {
			a, b, c := inputs(n, seed, seed%2 == 1)
			var got [][]uint32
			for _, x := range r.run(a, b, c) {
				got = append(got, canonical(x))
			}
			if p == Portable {
				want = got
				return
			}
			if !equalBits(want, got) {
				require.Equal(t, want, got, fmt.Sprintf("%s on %s, n=%d seed=%d", r.name, p, n, seed))
			}
		})
	}
}

func equalBits(a, b [][]uint32) bool {
	return slices.EqualFunc(a, b, func(x, y []uint32) bool { return slices.Equal(x, y) })
}
