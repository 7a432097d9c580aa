package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/tensor"
)

// drawShape draws a product of up to most rows, columns and steps, none of them zero.
func drawShape(t *rapid.T, most int) gemmShape {
	size := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, most))
	pad := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 70))
	return gemmShape{
		tr: Trans(rapid.IntRange(int(NN), int(TN)).Draw(t, "kind")),
		m:  size.Draw(t, "m"), n: size.Draw(t, "n"), k: size.Draw(t, "k"),
		padA: pad.Draw(t, "pad of A"), padB: pad.Draw(t, "pad of B"), padC: pad.Draw(t, "pad of C"),
		acc: rapid.Bool().Draw(t, "accumulate"),
	}
}

// exactly adds in twice the precision of float64: hi + lo is the sum of all terms but for about 2^-100 of their size.
type exactly struct{ hi, lo, abs float64 }

func (s *exactly) add(x float64) {
	sum := s.hi + x
	t := sum - s.hi
	s.lo += (s.hi - (sum - t)) + (x - t)
	s.hi = sum
	s.abs += math.Abs(x)
}

func (s *exactly) addProduct(a, b float64) {
	p := float64(a * b)
	s.add(p)
	s.lo += math.FMA(a, b, -p)
}

// requireClose holds every element of C to the exact sum: n rounded additions, and products, of terms with absolute
// values that sum up to abs are off by at most about n·2^-bits·abs.
func requireClose[T tensor.Float](t require.TestingT, g *gemmCase[T], room []T) {
	unit := 0x1p-24
	if !is32[T]() {
		unit = 0x1p-53
	}
	for i := range g.m {
		for j := range g.n {
			var s exactly
			s.add(float64(g.old(i, j)))
			g.terms(i, j, func(a, b T) { s.addProduct(float64(a), float64(b)) })
			got := float64(room[guardsMin+i*g.ldc+j])
			off := math.Abs((got - s.hi) - s.lo)
			require.LessOrEqual(t, off, float64(g.k+1)*unit*1.001*s.abs, "%s element %d,%d: got %v, want %v", g, i, j, got, s.hi)
		}
	}
}

func checkClose[T tensor.Float](t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawShape(rt, 60)
		g := newGemmCase(s, unitDraw[T](newRand(rapid.Uint64().Draw(rt, "seed"))))
		eachPath(func(Path) { requireClose(rt, g, g.run()) })
	})
}

// TestGemmIsTheProduct compares with sums in twice the precision, in no way related to how Gemm computes.
func TestGemmIsTheProduct(t *testing.T) {
	t.Run("float32", checkClose[float32])
	t.Run("float64", checkClose[float64])
}

func checkChain[T tensor.Float](t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawShape(rt, 60)
		odds := rapid.SampledFrom([]int{2, 50, 1 << 20}).Draw(rt, "one special in")
		g := newGemmCase(s, anySpecial[T](newRand(rapid.Uint64().Draw(rt, "seed")), odds))
		want := g.chains()
		eachPath(func(p Path) { g.requireSame(rt, want, g.run(), p) })
	})
}

// TestGemmIsOneChain is the contract: every element is one chain in ascending k, on every path, with any strides, and
// nothing outside C is written. Among the values are NaN, infinities, subnormals and signed zeros.
func TestGemmIsOneChain(t *testing.T) {
	t.Run("float32", checkChain[float32])
	t.Run("float64", checkChain[float64])
}

// requireChain compares a case with its definition on every path.
func requireChain[T tensor.Float](t *testing.T, s gemmShape) {
	t.Helper()
	g := newGemmCase(s, unitDraw[T](newRand(uint64(s.m*31+s.n*7+s.k))))
	want := g.chains()
	if !is32[T]() {
		g.requireSame(t, want, g.run())
		return
	}
	eachPath(func(p Path) { g.requireSame(t, want, g.run(), p) })
}

// TestGemmEveryRemainder has all heights of the last strips with all widths of the last panel, and all ends of unrolled
// loops: tiles are up to 14 rows and 32 columns, and steps of k are unrolled up to 16 times.
func TestGemmEveryRemainder(t *testing.T) {
	shape := func(m, n, k int) {
		for tr := NN; tr <= TN; tr++ {
			s := gemmShape{tr: tr, m: m, n: n, k: k, padA: m % 3, padB: n % 5, padC: (m + n) % 2, acc: (m+n+k)%2 == 0}
			requireChain[float32](t, s)
			if m < 6 && n < 10 {
				requireChain[float64](t, s)
			}
		}
	}
	for m := 1; m <= 44; m++ {
		for n := 1; n <= 66; n++ {
			shape(m, n, 1+(m+n)%5)
		}
	}
	for k := 1; k <= 40; k++ {
		for m := 1; m <= 15; m++ {
			shape(m, 1+(7*k+m)%40, k)
		}
	}
}

// TestGemmEveryBlock has products of several blocks of k and of columns, and the strides at which A is copied.
func TestGemmEveryBlock(t *testing.T) {
	for _, s := range []gemmShape{
		{m: 3, n: 17, k: 511}, {m: 5, n: 33, k: 513, acc: true}, {m: 7, n: 40, k: 1100}, // blocks of k
		{m: 29, n: 700, k: 264}, {m: 30, n: 1030, k: 20, padC: 3}, // blocks of columns
		{m: 29, n: 390, k: 520},                        // both
		{m: 33, n: 130, k: 70, padA: 1024 - 70},        // rows of A in the same cache sets
		{m: 17, n: 133, k: 300, padA: 4096 - 300},      // the same with two blocks on the portable path
		{m: 16, n: 300, k: 257, acc: true},             // few rows
		{m: 28, n: 97, k: 100}, {m: 29, n: 97, k: 100}, // as many rows as have B read in place, and one more
		{m: 200, n: 20, k: 300, padB: 1, acc: true},    // high and narrow
		{m: 470, n: 140, k: 80, acc: true},             // groups of strips
		{m: 500, n: 290, k: 20, padC: 2, acc: true},    // C beyond the second-level cache
		{m: 60, n: 144, k: 30}, {m: 113, n: 64, k: 30}, // lines of B that are read in place, and one row too many
		{m: 12, n: 200, k: 600}, {m: 45, n: 300, k: 530, acc: true, padC: 1}, // turned round, if NT
		{m: 40, n: 140, k: 64, padA: 1024 - 40},        // columns of A in the same cache sets
		{m: 1, n: 1000, k: 515}, {m: 1, n: 1, k: 2000}, // vectors
	} {
		for tr := NN; tr <= TN; tr++ {
			s.tr = tr
			requireBlocks[float32](t, s)
		}
	}
	for _, s := range []gemmShape{{m: 9, n: 33, k: 257, acc: true}, {m: 7, n: 300, k: 120}, {m: 9, n: 150, k: 520}} {
		for tr := NN; tr <= TN; tr++ {
			s.tr = tr
			requireBlocks[float64](t, s)
		}
	}
}

// requireBlocks compares all paths with the portable one, and a part of that with the definition.
func requireBlocks[T tensor.Float](t *testing.T, s gemmShape) {
	g := newGemmCase(s, unitDraw[T](newRand(uint64(s.m*31+s.n*7+s.k))))
	var want []T
	onPath(Portable, func() { want = g.run() })
	g.requireChainOfSome(t, want)
	if is32[T]() {
		eachPath(func(p Path) { g.requireSame(t, want, g.run(), p) })
	}
}

// TestGemmWithoutSteps: with k zero C is cleared, or stays as it is.
func TestGemmWithoutSteps(t *testing.T) {
	for tr := NN; tr <= TN; tr++ {
		for _, acc := range []bool{false, true} {
			requireChain[float32](t, gemmShape{tr: tr, m: 5, n: 37, padC: 4, acc: acc})
			requireChain[float64](t, gemmShape{tr: tr, m: 5, n: 37, padC: 4, acc: acc})
		}
	}
}

// TestGemmOfNothing: sizes may be zero, and then slices may be nil.
func TestGemmOfNothing(t *testing.T) {
	for tr := NN; tr <= TN; tr++ {
		for _, s := range []gemmShape{{m: 0, n: 3, k: 2}, {m: 3, n: 0, k: 2}, {m: 0, n: 0, k: 0}, {m: 0, n: 0, k: 4}} {
			s.tr = tr
			requireChain[float32](t, s)
		}
		require.NotPanics(t, func() { Gemm[float32](tr, 0, 0, 5, nil, 0, nil, 0, nil, 0, true) })
		require.NotPanics(t, func() { Gemm[float64](tr, 0, 0, 0, nil, 0, nil, 0, nil, 0, false) })
	}
}

// TestGemmStartsFromPositiveZero: the first step is a fused multiply-add to +0, so a product of −0 gives +0; with
// accumulate a −0 stays.
func TestGemmStartsFromPositiveZero(t *testing.T) {
	minus := float32(math.Copysign(0, -1))
	eachPath(func(p Path) {
		c := []float32{7}
		Gemm(NN, 1, 1, 1, []float32{minus}, 1, []float32{1}, 1, c, 1, false)
		require.False(t, math.Signbit(float64(c[0])), p)
		c[0] = minus
		Gemm(NN, 1, 1, 1, []float32{minus}, 1, []float32{1}, 1, c, 1, true)
		require.True(t, math.Signbit(float64(c[0])), p)
	})
}

// TestGemmFusesFloat32Only: with a = b = 1 + 2^-12, a·b − 1 − 2^-11 is 2^-24 fused and 0 when a·b is rounded first;
// likewise in float64.
func TestGemmFusesFloat32Only(t *testing.T) {
	x, c := []float32{1 + 0x1p-12}, []float32{-1 - 0x1p-11}
	eachPath(func(p Path) {
		got := []float32{c[0]}
		Gemm(NN, 1, 1, 1, x, 1, x, 1, got, 1, true)
		require.Equal(t, float32(0x1p-24), got[0], p)
	})
	y, d := []float64{1 + 0x1p-27}, []float64{-1 - 0x1p-26}
	Gemm(NN, 1, 1, 1, y, 1, y, 1, d, 1, true)
	require.Zero(t, d[0])
}
