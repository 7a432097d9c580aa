package run_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/run"
)

// poison kills rank 1 in step 5 as often as it comes there.
func poison(times int) string {
	var faults []string
	for n := range times {
		faults = append(faults, fmt.Sprintf("{at: {rank: 1, step: 5, hook: layer.1.backward, count: %d}, action: panic}", n+1))
	}
	return "faults=[" + strings.Join(faults, ", ") + "]"
}

// What a poisonous rank had received is kept although nothing was to be recorded: it is run again alone, from the snapshot
// that its last life began with up to where it died. Other runs leave nothing.
func TestPoisonLeavesABundle(t *testing.T) {
	for _, procs := range []int{0, 2} {
		t.Run(fmt.Sprintf("procs %d", procs), func(t *testing.T) {
			if procs > 0 && testing.Short() {
				t.Skip("starts processes")
			}
			train := func(out string, deaths int) (*run.Report, error) {
				file, problems := config.Parse("poison", []byte(moeRun), []string{"model.tensor_model_parallel_size=2", "dist.world_size=2", "recovery.snapshot_every=2", "recovery.rank_restarts=9",
					"recovery.heartbeat_ms=500", "transport.kind=nats", "train.train_iters=8", "train.threads=1", poison(deaths)})
				require.Empty(t, problems)
				return run.Execute(context.Background(), file.Runs()[0], run.Options{Out: out, Procs: procs})
			}
			out := t.TempDir()
			report, err := train(out, 3)
			require.Equal(t, run.ExitPoison, run.ExitCode(err), "%v", err)
			require.DirExists(t, report.Bundle)
			r, err := run.Replay(context.Background(), report.Bundle, run.ReplayOptions{Rank: 1})
			require.NoError(t, err)
			require.Nil(t, r.Divergence)
			require.LessOrEqual(t, r.From, uint32(4), "the last snapshot, or while the disk is slow an earlier one")
			require.EqualValues(t, 4, r.Steps)
			require.Positive(t, r.Sent)
			require.Contains(t, fmt.Sprint(r.Stopped), "step 4 microbatch 0 backward", "it stops where the rank died, in the fifth step")

			report, err = train(out, 1) // in the same folder
			require.NoError(t, err)
			require.Equal(t, 1, report.Restarts)
			require.Empty(t, report.Bundle)
			left, err := filepath.Glob(filepath.Join(out, "*", "poison"))
			require.NoError(t, err)
			require.Empty(t, left)
			_, err = os.Stat(filepath.Join(out, "poison"))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// A folder of that name which is somebody's own stays, and the run says so before it begins.
func TestABundleTakesNobodysFolder(t *testing.T) {
	out := t.TempDir()
	mine := filepath.Join(out, "poison", "mine.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(mine), 0o755))
	require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o600))
	_, err := trained(t, moeRun, run.Options{Out: out}, "recovery.snapshot_every=2")
	require.ErrorContains(t, err, "found mine.txt, expected a folder that is not there, is empty or holds an earlier recording")
	require.FileExists(t, mine)
}
