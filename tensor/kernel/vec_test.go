package kernel

import (
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sumPlain is the 16-lane tree written out: the order that Sum promises.
func sumPlain(x []float32) float32 {
	var l [16]float32
	for i := range x {
		l[i%16] += x[i]
	}
	for i := range 8 {
		l[i] += l[i+8]
	}
	for i := range 4 {
		l[i] += l[i+4]
	}
	return (l[0] + l[2]) + (l[1] + l[3])
}

func TestSumOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), 0, 300).Draw(t, "x")
		require.Equal(t, sumPlain(x), Sum(x))
	})
	x := input(10000, 1, 0, false)
	require.Equal(t, sumPlain(x), Sum(x), "over chunks")
}

// TestReductionBounds compares with exact rational sums. A lane of k terms and a fold of 4 levels err by at most
// (k+4) roundings of the sum of magnitudes.
func TestReductionBounds(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 1000, 5000} {
		x, y := input(n, 2, 0, false), input(n, 2, 1, false)
		sum, dot, squares := new(big.Rat), new(big.Rat), new(big.Rat)
		var absSum, absDot float64
		for i := range x {
			a, b := rat(x[i]), rat(y[i])
			sum.Add(sum, a)
			dot.Add(dot, new(big.Rat).Mul(a, b))
			squares.Add(squares, new(big.Rat).Mul(a, a))
			absSum += math.Abs(float64(x[i]))
			absDot += math.Abs(float64(x[i]) * float64(y[i]))
		}
		roundings := float64((n+15)/16 + 4)
		require.LessOrEqual(t, ratDistance(float64(Sum(x)), sum), roundings*0x1p-24*absSum, "sum of %d", n)
		require.LessOrEqual(t, ratDistance(float64(Dot(x, y)), dot), roundings*0x1p-24*absDot, "dot of %d", n)
		exact, _ := squares.Float64()
		require.LessOrEqual(t, ratDistance(SumSquares(x), squares), roundings*0x1p-53*exact, "squares of %d", n)
	}
}

func rat(x float32) *big.Rat { return new(big.Rat).SetFloat64(float64(x)) }

func ratDistance(got float64, want *big.Rat) float64 {
	d, _ := new(big.Rat).Sub(new(big.Rat).SetFloat64(got), want).Float64()
	return math.Abs(d)
}

func TestSumSquaresDoesNotOverflow(t *testing.T) {
	require.InEpsilon(t, 2e60, SumSquares([]float32{1e30, -1e30}), 1e-7)
}

func TestMax(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	require.Equal(t, -inf, Max([]float32{}))
	require.Equal(t, -inf, Max([]float32{nan, nan}))
	require.Equal(t, float32(3), Max([]float32{nan, 1, 3, nan, 2}))
	require.Equal(t, -1, MaxIndex([]float32{}))
	require.Equal(t, 0, MaxIndex([]float32{nan, nan}))
	require.Equal(t, 0, MaxIndex([]float32{-inf, -inf}))
	require.Equal(t, 2, MaxIndex([]float32{nan, 1, 3, nan, 3, 2}), "the lowest of equals")
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(-3, 3).AsAny(), 1, 100).Draw(t, "x")
		f := make([]float32, len(x))
		best := 0
		for i, v := range x {
			f[i] = float32(math.Round(v.(float64)))
			if f[i] > f[best] {
				best = i
			}
		}
		require.Equal(t, best, MaxIndex(f))
		require.Equal(t, f[best], Max(f))
	})
}

func TestElementwiseValues(t *testing.T) {
	x, y := []float32{1, 2, 3}, []float32{10, 20, 30}
	d := make([]float32, 3)
	Add(d, x, y)
	require.Equal(t, []float32{11, 22, 33}, d)
	AddInto(d, x)
	require.Equal(t, []float32{12, 24, 36}, d)
	Mul(d, x, y)
	require.Equal(t, []float32{10, 40, 90}, d)
	Scale(d, 0.5)
	require.Equal(t, []float32{5, 20, 45}, d)
	Axpy(d, 2, x)
	require.Equal(t, []float32{7, 24, 51}, d)
}

func TestTranspose(t *testing.T) {
	for _, s := range [][2]int{{0, 0}, {0, 5}, {1, 1}, {3, 40}, {16, 16}, {17, 33}, {300, 64}, {64, 300}, {530, 19}} {
		rows, cols := s[0], s[1]
		src, dst := make([]float32, rows*cols), make([]float32, rows*cols)
		for i := range src {
			src[i] = float32(i)
		}
		for p := Portable; p <= Best(); p++ {
			onPath(p, func() { Transpose(dst, src, rows, cols) })
			for i, v := range dst {
				r, c := i%rows, i/rows
				if v != src[r*cols+c] {
					require.Failf(t, "wrong element", "%s %d×%d at (%d, %d): %v", p, rows, cols, r, c, v)
				}
			}
			clear(dst)
		}
	}
}

func TestLengthsMustAgree(t *testing.T) {
	a, b := make([]float32, 3, 8), make([]float32, 4)
	require.PanicsWithValue(t, "kernel: slices of 3 and 4 elements, want equal lengths", func() { Add(a, a, b) })
	require.Panics(t, func() { Dot(a, b) })
	require.Panics(t, func() { RoPE(b, a[:1], a[:1]) })
	require.Panics(t, func() { Transpose(b, b, 2, 3) })
}

// TestNoAllocation: kernels run in the innermost loops of a step, which must not allocate.
func TestNoAllocation(t *testing.T) {
	x, y := input(100, 3, 0, false), input(100, 3, 1, false)
	require.Zero(t, testing.AllocsPerRun(20, func() {
		SoftmaxInto(x, y, 1)
		RMSNormGrad(x, y, x, x, y, 0.5)
		AdamW(x, y, x, x, AdamWStep[float32]{BiasCorr1: 1, BiasCorr2: 1})
		SumSquares(x)
	}))
}

// TestAssemblyLeavesClean: a function that returns with dirty upper halves slows all later SSE code.
func TestAssemblyLeavesClean(t *testing.T) {
	files, err := filepath.Glob("vec_avx*.s")
	require.NoError(t, err)
	require.Len(t, files, 2)
	clean := regexp.MustCompile(`VZEROUPPER\n\tRET\n`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.Len(t, clean.FindAll(text, -1), strings.Count(string(text), "\tRET\n"), f)
	}
}
