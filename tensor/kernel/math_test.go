package kernel

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// uniform is draw i of stream s, equidistributed over [lo, hi).
func uniform(s, i int, lo, hi float64) float64 {
	w := Philox([2]uint32{uint32(s), 77}, [4]uint32{uint32(i)})
	return lo + (hi-lo)*(float64(w[0])+float64(w[1])/(1<<32))/(1<<32)
}

func TestExpAccuracy(t *testing.T) {
	var worst32, worst64 float64
	for i := range 6000 {
		scale := []float64{1, 10, 87, 700}[i%4]
		x := uniform(1, i, -scale, scale)
		worst64 = max(worst64, ulps64(Exp(x), bigExp(x)))
		if scale < 100 {
			x32 := float32(x)
			worst32 = max(worst32, ulps32(Exp(x32), bigExp(float64(x32))))
		}
	}
	require.Less(t, worst32, 1.0, "fp32, in units in the last place")
	require.Less(t, worst64, 1.3, "fp64")
	for i := range 500 {
		x := uniform(2, i, -745.1, -708)
		require.LessOrEqual(t, ulps64(Exp(x), bigExp(x)), 1.3, "subnormal exp(%v)", x)
	}
}

func TestExpEdges(t *testing.T) {
	inf := math.Inf(1)
	for x, want := range map[float64]float64{0: 1, math.Copysign(0, -1): 1, 710: inf, inf: inf, -746: 0, -inf: 0} {
		require.Equal(t, want, Exp(x), "exp(%v)", x)
		if math.Abs(x) < 100 || math.IsInf(x, 0) {
			require.Equal(t, float32(want), Exp(float32(x)), "fp32 exp(%v)", x)
		}
	}
	require.True(t, math.IsNaN(Exp(math.NaN())))
	require.True(t, math.IsNaN(float64(Exp(float32(math.NaN())))))
	require.Positive(t, Exp(-745.0))
	require.GreaterOrEqual(t, Exp(ExpMin32), float32(0x1p-126), "the smallest result is normal")
	require.Zero(t, Exp(math.Nextafter32(ExpMin32, -100)), "below, the result is zero and not subnormal")
	require.Less(t, Exp(ExpMax32), float32(math.Inf(1)))
	require.Equal(t, float32(math.Inf(1)), Exp(math.Nextafter32(ExpMax32, 100)))
}

func TestLogAccuracy(t *testing.T) {
	var worst32, worst64 float64
	for i := range 4000 {
		x := []float64{uniform(3, i, 0.5, 2), uniform(3, i, 0.99, 1.01), math.Exp(uniform(3, i, -700, 700))}[i%3]
		worst64 = max(worst64, ulps64(Log(x), bigLog(x)))
		if x32 := float32(x); x32 > 0 && x32 < math.MaxFloat32 && x32 != 1 {
			worst32 = max(worst32, ulps32(Log(x32), bigLog(float64(x32))))
		}
	}
	require.Less(t, worst32, 0.501, "fp32, in units in the last place")
	require.Less(t, worst64, 1.0, "fp64")
	for _, x := range []float64{5e-324, 1e-310, 0x1p-1022, math.MaxFloat64} {
		require.Less(t, ulps64(Log(x), bigLog(x)), 1.0, "log(%v)", x)
	}
}

func TestLogEdges(t *testing.T) {
	require.Zero(t, Log(1.0))
	require.Equal(t, math.Inf(-1), Log(0.0))
	require.Equal(t, math.Inf(-1), Log(math.Copysign(0, -1)))
	require.Equal(t, math.Inf(1), Log(math.Inf(1)))
	require.True(t, math.IsNaN(Log(-1.0)))
	require.True(t, math.IsNaN(Log(math.Inf(-1))))
	require.True(t, math.IsNaN(float64(Log(float32(math.NaN())))))
}

func TestSinCosAccuracy(t *testing.T) {
	for i := range 3000 {
		scale := []float64{1, 10, 4096, 1<<20 - 1}[i%4]
		x := uniform(4, i, -scale, scale)
		if i%5 == 0 { // next to a multiple of π/2, where the reduction cancels most
			x = float64(int(x)) * (math.Pi / 2)
			x = math.Mod(x, 1<<20)
		}
		s, c := SinCos(x)
		wantS, wantC := bigSinCos(x)
		require.Less(t, distance(s, wantS), 4e-16, "sin(%v)", x)
		require.Less(t, distance(c, wantC), 4e-16, "cos(%v)", x)
	}
	s, c := SinCos(0)
	require.Equal(t, []float64{0, 1}, []float64{s, c})
	s, c = SinCos(math.Inf(1))
	require.True(t, math.IsNaN(s) && math.IsNaN(c))
	require.Panics(t, func() { SinCos(1 << 20) })
}

// TestMulAddExact compares with exact rational arithmetic, with random bits and with sums made to lie on midpoints.
func TestMulAddExact(t *testing.T) {
	check := func(t require.TestingT, a, b, c float32) {
		want := exactMulAdd(a, b, c)
		got := mulAdd(a, b, c)
		if got != want && (got == got || want == want) {
			require.Equal(t, want, got, "%x·%x + %x", a, b, c)
		}
	}
	for i := range 20000 {
		w := Philox([2]uint32{9, 9}, [4]uint32{uint32(i)})
		a, b, c := math.Float32frombits(w[0]), math.Float32frombits(w[1]), math.Float32frombits(w[2])
		check(t, a, b, c)
		// c close to −a·b (cancellation) and a·b near half a unit of c (midpoints), also where c is subnormal.
		check(t, a, b, -float32(float64(a)*float64(b)))
		half := math.Float32frombits(w[3]%0x0c000000 + 1)
		unit := math.Nextafter32(half, 1) - half
		check(t, unit, 0.5, half)
		check(t, unit*(1+0x1p-23), 0.5*(1-0x1p-23), half)
		check(t, unit, -0.5, half)
	}
	for _, a := range specials {
		for _, b := range specials {
			for _, c := range specials {
				check(t, a, b, c)
			}
		}
	}
}

// exactMulAdd rounds the exact a·b + c once; values that are not finite, and zeros, follow float64.
func exactMulAdd(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	if s := p + float64(c); math.IsInf(p, 0) || math.IsNaN(s) || math.IsInf(s, 0) || s == 0 {
		return float32(s)
	}
	sum := new(big.Float).SetPrec(1000).SetFloat64(p)
	sum.Add(sum, new(big.Float).SetFloat64(float64(c)))
	f, _ := sum.Float32()
	return f
}

func TestMulAddRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.Float32().Draw(t, "a"), rapid.Float32().Draw(t, "b"), rapid.Float32().Draw(t, "c")
		require.Equal(t, exactMulAdd(a, b, c), mulAdd(a, b, c))
	})
}
