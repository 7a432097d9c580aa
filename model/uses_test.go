package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc"
	"phalanx/mesh"
	"phalanx/nn"
)

// usesWorld is the embedding of pp stages with the given uses; each use's gradient is one number.
func usesWorld(t *testing.T, pp int, uses []use, values []float32, seed uint64) []float32 {
	sums := make([]float32, pp)
	err := inproc.Run(mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: pp}, func(rank int) []func(nn.Comm) {
		tab := &table[float32]{tag: nn.TagEmbeddingUse, uses: uses, mine: map[string]int{}}
		tab.place(rank)
		var p nn.Params[float32]
		tab.param = p.Declare(nn.Spec{Name: "table", Shape: []int{1, 1}, Shard: nn.Unsharded, Uses: len(tab.mine), ByRow: true})
		p.Build()
		for i, u := range uses {
			if acc := tab.acc(u.name); acc.Grad != nil {
				acc.Row(0, 1)[0] = values[i]
			}
		}
		return []func(nn.Comm){func(c nn.Comm) {
			tab.join(c, nn.Site{Phase: nn.Update, Layer: -1})
			sums[rank] = tab.param.Grad[0]
		}}
	}, inproc.Options{Seed: seed, Overtake: true})
	require.NoError(t, err)
	return sums
}

// (1e8 − 1e8) + 1 is 1 and 1e8 + (−1e8 + 1) is 0 in fp32: the uses are added in their order, on every placement, and
// every holder has the sum.
func TestUsesAreJoinedInTheirOrder(t *testing.T) {
	values := []float32{1e8, -1e8, 1}
	for _, stages := range [][3]int{{0, 0, 0}, {0, 1, 1}, {0, 1, 0}, {0, 0, 1}, {0, 2, 1}, {0, 1, 2}} {
		uses := []use{{"embedding", stages[0]}, {headUse, stages[1]}, {depthUse(1), stages[2]}}
		for seed := range uint64(8) {
			sums := usesWorld(t, 3, uses, values, seed)
			for _, s := range stages {
				require.EqualValues(t, 1, sums[s], "stages %v", stages)
			}
		}
	}
}
