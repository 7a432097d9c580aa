package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every schedule of crashes, losses, repetitions, reordering and full disks ends with the states of a run without faults.
func TestToyWorldSurvives(t *testing.T) {
	for seed := range uint64(3000) {
		w := newWorld(seed, 2+int(seed%3), None)
		require.NoError(t, w.run(), "seed %d: %+v", seed, w.f)
	}
}

// Each planted bug that hurts ranks with timers and no collector is found; package sim finds the others.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, b := range []Bug{MinimumOfNewest, NoJump, EarlyApply, DoubleApply, TrimEarly, DoneStopsServing, StaleGeneration} {
		t.Run(b.String(), func(t *testing.T) {
			for seed := range uint64(2000) {
				if err := newWorld(seed, 2+int(seed%3), b).run(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("%s was not found in 2000 seeds", b)
		})
	}
}
