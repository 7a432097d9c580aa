package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/nn"
)

func filled(t *testing.T, s nn.Spec, seed uint64) []float64 {
	t.Helper()
	p := &nn.Params[float64]{}
	q := p.Declare(s)
	p.Build()
	nn.Fill(q, seed)
	return q.Data
}

// No layout enters an initial value: the shards of any cut are the pieces of the whole.
func TestInitialValuesDoNotDependOnTheLayout(t *testing.T) {
	spec := nn.Spec{Name: "w", Shape: []int{8, 6}, Shard: nn.Unsharded, Init: nn.Normal(0.02)}
	whole := filled(t, spec, 1)
	for dim, parts := range map[int]int{0: 4, 1: 3} {
		joined := make([]float64, len(whole))
		for i := range parts {
			s := spec
			s.Shard = nn.Shard{Dim: dim, Parts: parts, Index: i}
			nn.IntoWhole(&s, filled(t, s, 1), joined)
		}
		require.Equal(t, whole, joined)
	}
	require.NotEqual(t, whole, filled(t, spec, 2))
	other := spec
	other.Name = "v"
	require.NotEqual(t, whole, filled(t, other, 1))
}

func TestInitialDistribution(t *testing.T) {
	x := filled(t, nn.Spec{Name: "w", Shape: []int{300, 300}, Shard: nn.Unsharded, Init: nn.ScaledNormal(0.02, 8)}, 7)
	mean, square := 0.0, 0.0
	for _, v := range x {
		mean += v
		square += v * v
	}
	n := float64(len(x))
	require.InDelta(t, 0, mean/n, 5e-5)
	require.InDelta(t, 0.005, math.Sqrt(square/n), 5e-5) // .02/√16
	require.Equal(t, []float64{1, 1}, filled(t, nn.Spec{Name: "g", Shape: []int{2}, Shard: nn.Unsharded, Init: nn.Ones}, 7))
}
