package recovery

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Disks that are slower than snapshots come, each by another factor, still have steps in common all the time.
func TestSlowDisksKeepTheSameSteps(t *testing.T) {
	const ranks, steps = 16, 2000
	for _, disk := range []float64{1.3, 2.5, 5} { // steps that a write takes
		rng := rand.New(rand.NewPCG(1, 2))
		all := make([]map[uint32]bool, ranks)
		for i := range all {
			all[i] = written(rng, disk*(0.7+0.6*rng.Float64()), steps)
		}
		last, gap := uint32(0), uint32(0)
		for s := uint32(1); s <= steps; s++ {
			if !slices.ContainsFunc(all, func(m map[uint32]bool) bool { return !m[s] }) {
				gap, last = max(gap, s-last), s
			}
		}
		require.LessOrEqual(t, gap, uint32(4*disk), "the longest time without a step that all have, at %v steps a write", disk)
		require.Greater(t, last, uint32(steps-4*disk))
	}
}

// written are the steps that a disk has in the end: one is being written, two wait.
func written(rng *rand.Rand, disk float64, steps int) map[uint32]bool {
	done := map[uint32]bool{}
	var waiting []uint32
	free := 0.0
	for s := 1; s <= steps; s++ {
		for waiting = append(waiting, uint32(s)); len(waiting) > 0 && free <= float64(s); waiting = waiting[1:] {
			done[waiting[0]] = true
			free = max(free, float64(waiting[0])) + disk*(0.8+0.4*rng.Float64())
		}
		if len(waiting) > 2 {
			i := LeastRound(waiting)
			waiting = slices.Delete(waiting, i, i+1)
		}
	}
	return done
}

func TestLeastRound(t *testing.T) {
	require.Equal(t, 1, LeastRound([]uint32{8, 3, 5}))
	require.Equal(t, 2, LeastRound([]uint32{8, 12, 10}))
	require.Equal(t, 0, LeastRound([]uint32{0}))
}
