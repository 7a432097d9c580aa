package moe_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc/property"
	"phalanx/moe"
	"phalanx/nn"
)

// Experts that are filled up to their capacity compute as many rows as it says, whatever chose them, and give the outputs and
// gradients of experts that compute what they got: on every layout, with every dispatcher.
func TestPaddedCapacityComputesTheSame(t *testing.T) {
	mem := newArenas()
	property.Check(t, 60, func(t *rapid.T) {
		w := drawWorld(t)
		w.drop = false
		w.capacity = moe.Capacity{Factor: rapid.SampledFrom([]float64{0.3, 0.8, 1.5, 9}).Draw(t, "capacity factor"), ByPosition: rapid.Bool().Draw(t, "first rows")}
		for d, name := range dispatchers {
			w.capacity.Pad = false
			want := w.overRanks(t, d, mem, w.order)
			w.capacity.Pad = true
			got := w.overRanks(t, d, mem, w.order)
			got.near(t, name, want, 1e-13)
			for i, p := range w.parts {
				n := float64(p.b * p.s)
				full := min(n, math.Ceil(n*float64(p.k)/float64(p.e)*w.capacity.Factor))
				for e := range p.e {
					require.Equal(t, full, got.computed[i][e], "rows of replica %d that expert %d computes", i, e)
					require.LessOrEqual(t, want.computed[i][e], full)
				}
			}
		}
	})
}

// Two replicas of six tokens, all for experts 0 and 1 of four, on two ranks: C = ceil(6·2/4) = 3. Of every replica experts 0
// and 1 keep three rows each, and experts 2 and 3, on the other rank, are filled up with three each; unpadded they get none.
func TestPaddedCapacityIsSent(t *testing.T) {
	for d, name := range dispatchers {
		for _, pad := range []bool{false, true} {
			w := small(2, 1, trues(6))
			w.fill(rand.New(rand.NewPCG(1, 2)), true)
			w.capacity = moe.Capacity{Factor: 1, Pad: pad}
			want, got := w.asPlain(), w.overRanks(t, d, newArenas(), 3)
			got.near(t, name, want, 1e-12)
			w.checkFlows(t, d, got)
			rows := []float64{3, 3, 0, 0}
			if pad {
				rows = []float64{3, 3, 3, 3}
			}
			require.Equal(t, [][]float64{rows, rows}, got.computed)
			if sent := got.flows[flow{nn.TagDispatch, nn.Forward, 0, 1}]; d == moe.AllToAll {
				require.Equal(t, volume{1, int(rows[2]+rows[3]) * (8*width + 8)}, sent)
			}
		}
	}
}
