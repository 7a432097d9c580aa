package moe

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc/property"
)

// The choice is the first K of the indices sorted by falling value, NaN last, the lowest index first among equals.
func TestTopKIsASort(t *testing.T) {
	property.Check(t, 500, func(t *rapid.T) {
		value := rapid.SampledFrom([]float64{-1, 0, math.Copysign(0, -1), 1, 2, math.Inf(-1), math.Inf(1), math.NaN()})
		x := rapid.SliceOfN(value, 1, 12).Draw(t, "values")
		sorted := make([]int32, len(x))
		for i := range sorted {
			sorted[i] = int32(i)
		}
		slices.SortStableFunc(sorted, func(a, b int32) int {
			switch u, v := x[a], x[b]; {
			case u > v, u == u && v != v:
				return -1
			case u < v, u != u && v == v:
				return 1
			}
			return 0
		})
		got := make([]int32, rapid.IntRange(1, len(x)).Draw(t, "k"))
		topK(got, x)
		require.Equal(t, sorted[:len(got)], got)
	})
}
