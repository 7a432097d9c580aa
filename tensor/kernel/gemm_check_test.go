package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGemmRefuses: what does not fit its slice stops the program with the operand, its size and its stride.
func TestGemmRefuses(t *testing.T) {
	x := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		name string
		call func()
		want string
	}{
		{"negative size", func() { Gemm(NN, 1, -2, 1, x(1), 1, x(1), 1, x(1), 1, false) },
			"kernel: Gemm of kind 0 with m 1, n -2, k 1: no size may be negative"},
		{"unknown kind", func() { Gemm(TN+1, 1, 1, 1, x(1), 1, x(1), 1, x(1), 1, false) },
			"kernel: Gemm of kind 3 with m 1, n 1, k 1: the kinds are NN, NT, TN"},
		{"short A", func() { Gemm(NN, 3, 4, 2, x(5), 2, x(8), 4, x(12), 4, false) },
			"kernel: Gemm operand A is 3×2 with leading dimension 2, which does not fit 5 elements"},
		{"short A of TN", func() { Gemm(TN, 3, 4, 2, x(6), 4, x(8), 4, x(12), 4, false) },
			"kernel: Gemm operand A is 2×3 with leading dimension 4, which does not fit 6 elements"},
		{"short B", func() { Gemm(NN, 3, 4, 2, x(6), 2, x(9), 6, x(12), 4, false) },
			"kernel: Gemm operand B is 2×4 with leading dimension 6, which does not fit 9 elements"},
		{"short B of NT", func() { Gemm(NT, 3, 4, 2, x(6), 2, x(7), 2, x(12), 4, false) },
			"kernel: Gemm operand B is 4×2 with leading dimension 2, which does not fit 7 elements"},
		{"short C", func() { Gemm(NN, 3, 4, 2, x(6), 2, x(8), 4, x(13), 5, false) },
			"kernel: Gemm operand C is 3×4 with leading dimension 5, which does not fit 13 elements"},
		{"stride below the row", func() { Gemm(NN, 3, 4, 2, x(6), 2, x(8), 4, x(90), 3, false) },
			"kernel: Gemm operand C is 3×4 with leading dimension 3, which does not fit 90 elements"},
		{"stride zero", func() { Gemm(NN, 3, 4, 2, x(6), 0, x(8), 4, x(12), 4, false) },
			"kernel: Gemm operand A is 3×2 with leading dimension 0, which does not fit 6 elements"},
		{"negative stride", func() { Gemm(NN, 3, 4, 2, x(6), 2, x(8), -4, x(12), 4, false) },
			"kernel: Gemm operand B is 2×4 with leading dimension -4, which does not fit 8 elements"},
		{"no C", func() { Gemm[float32](NN, 1, 1, 0, nil, 0, nil, 0, nil, 1, false) },
			"kernel: Gemm operand C is 1×1 with leading dimension 1, which does not fit 0 elements"},
		{"sizes beyond memory", func() { Gemm(NN, 1<<40, 1<<40, 1, x(9), 1, x(9), 1<<40, x(9), 1<<40, false) },
			"kernel: Gemm operand C is 1099511627776×1099511627776 with leading dimension 1099511627776, which does not fit 9 elements"},
	} {
		t.Run(c.name, func(t *testing.T) { require.PanicsWithValue(t, c.want, c.call) })
	}
}

// TestGemmGoesOnAfterARefusal: a refused call leaves nothing behind.
func TestGemmGoesOnAfterARefusal(t *testing.T) {
	require.Panics(t, func() { Gemm(NN, 2, 2, 2, make([]float32, 3), 2, make([]float32, 4), 2, make([]float32, 4), 2, false) })
	requireChain[float32](t, gemmShape{tr: NT, m: 20, n: 40, k: 10})
}

// TestGemmFlops counts a fused multiply-add as two.
func TestGemmFlops(t *testing.T) {
	require.Equal(t, 2.0*3*5*7, GemmFlops(3, 5, 7))
	require.Equal(t, 2e15, GemmFlops(1e5, 1e5, 1e5))
}

// TestTransNames are the names in reports.
func TestTransNames(t *testing.T) {
	require.Equal(t, []string{"NN", "NT", "TN"}, []string{NN.String(), NT.String(), TN.String()})
}
