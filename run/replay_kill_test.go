package run

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ranks whose processes are killed with SIGKILL while they record: every one of them, over all of its lives, can be run again alone,
// and no message is missing.
func TestKilledProcessesAreReplayed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	n := kills(5)
	s := killScenario(t, "pp2-dp2", n, "recovery.recording=true")
	steps := s.Train.TrainIters
	k := &killer{t: t, rng: rand.New(rand.NewPCG(3, 7)), kills: n, steps: steps, modes: []func(*killer){killOne, killSome}}
	var err error
	k.j, err = newJob(s, Options{Procs: 4, Self: []string{os.Args[0]}, Out: dir, Listen: Listener{Step: k.step}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	report, err := k.j.run(ctx)
	require.NoError(t, err, "after %v", k.done)
	require.Positive(t, report.Restarts)
	lives := 0
	for rank := range 4 {
		r, err := Replay(ctx, dir, ReplayOptions{Rank: rank, Start: func(s ReplayStart) {
			lives += len(s.Lives)
			require.Empty(t, s.Warnings)
		}})
		require.NoError(t, err)
		require.Nil(t, r.Divergence, "rank %d after %v", rank, k.done)
		require.Nil(t, r.Stopped, "rank %d after %v", rank, k.done)
		require.EqualValues(t, steps, r.Steps)
		require.True(t, r.Weights)
		late, err := Replay(ctx, dir, ReplayOptions{Rank: rank, From: steps / 2})
		require.NoError(t, err)
		require.Nil(t, late.Divergence)
		require.Equal(t, r.Sent*(steps-int(late.From)), late.Sent*steps, "every step sends as many messages")
	}
	require.Greater(t, lives, 4)
	t.Logf("%v: %d restarts, %d lives", k.done, report.Restarts, lives)
}
