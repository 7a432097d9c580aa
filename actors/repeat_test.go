package actors

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/messages"
)

// A rank that was started again reports steps again: the same is dropped, anything else is a divergence. So many steps are
// remembered as ranks may be apart.
func TestRepeatedReportsAreCompared(t *testing.T) {
	r := &run{job: Job{Recovery: &Recovery{}}}
	r.job.Sizes.TP, r.job.Sizes.CP, r.job.Sizes.DP, r.job.Sizes.PP = 2, 1, 1, 1
	s := newStage(r, 0)
	step := func(rank, step int, norm float64) (bool, error) {
		e := messages.StepDone{Rank: rank, Step: step, GradNorm: norm}
		key, _ := keyOf(e)
		return s.repeated(report{rank, e}, key)
	}
	for i := range 3 {
		again, err := step(1, i, float64(i))
		require.NoError(t, err)
		require.False(t, again)
	}
	again, err := step(1, 1, 1)
	require.NoError(t, err)
	require.True(t, again)
	again, err = step(0, 1, 9)
	require.NoError(t, err)
	require.False(t, again, "of another rank")
	_, err = step(1, 2, 2.5)
	var e *RepeatError
	require.ErrorAs(t, err, &e)
	require.ErrorContains(t, err, "rank 1 reported step 2 again with other figures than in an earlier life")
	for i := range 2 * reportsAheadMax {
		_, err := step(1, 3+i, 0)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(s.told), reportsAheadMax+2)
}
