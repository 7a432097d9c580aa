package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// The figures follow from the times that a trainer tells: here 10 ms a step, and 11 with the log.
func TestRecoveryFigures(t *testing.T) {
	runs, killed := 0, 0
	o := RecoveryOptions{Pairs: 3, Steps: 2, Warmup: 1, Kills: 4,
		Train: func(_ context.Context, s config.Scenario, _ func() time.Duration, step func(Took)) (int64, error) {
			runs++
			require.Equal(t, 3, s.Train.TrainIters)
			ms := 10.0
			if s.Recovery.SnapshotEvery > 0 {
				require.Greater(t, s.Recovery.SnapshotEvery, s.Train.TrainIters, "no snapshot within the run")
				ms = 11
			}
			step(Took{Ms: 1000})
			step(Took{Ms: ms})
			step(Took{Ms: ms})
			return 0, nil
		},
		Deaths: func(_ context.Context, s config.Scenario) ([]Death, error) {
			killed = len(s.Faults)
			return []Death{{1, 0, 20, 30}, {2, 50, 10, 10}, {3, 0, 100, 400}, {4, 0, 5, 5}}, nil
		}}
	require.NoError(t, o.Check())
	r, err := Recovery(context.Background(), o)
	require.NoError(t, err)
	require.Equal(t, 6, runs)
	require.Equal(t, 4, killed)
	require.InDelta(t, 1.1, r.Ratio, 1e-12)
	require.Equal(t, Summary{P50: 50, P95: 500, Max: 500}, r.Recovery)
	require.Equal(t, Summary{P50: 3, P95: 4, Max: 4}, r.Detection)
	require.Error(t, RecoveryOptions{}.Check())
}
