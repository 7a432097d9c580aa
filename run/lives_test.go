package run_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/run"
)

// A rank that panics where the scenario says starts again alone; figures and weights are those of the run without faults,
// checkpoints in between and observed quantities too.
func TestFaultsOfTheScenario(t *testing.T) {
	for name, layout := range map[string][]string{
		"tp2": {"model.tensor_model_parallel_size=2"}, "cp2": {"model.context_parallel_size=2"},
		"pp2": cutsOf["pp2"], "ep2 dp2": cutsOf["ep2 dp2"], "zero": cutsOf["zero dp2 cp2 ep2"],
	} {
		t.Run(name, func(t *testing.T) {
			overrides := append([]string{"recovery.snapshot_every=2", "train.train_iters=5",
				"checkpoint.save=saved", "checkpoint.save_interval=2",
				"faults=[{at: {rank: 1, hook: before-send, count: 20}, action: panic}, {at: {rank: 0, hook: after-snapshot}, action: panic}]",
				"expect=[{restarts: 2}, {same_as: without_faults}, {quantity: lm.loss, finite: true}]"}, layout...)
			report, err := trained(t, moeRun, run.Options{Out: t.TempDir()}, overrides...)
			require.NoError(t, err)
			require.Equal(t, "pass", report.Verdict, "%+v", report.Expect)
			require.Equal(t, 2, report.Restarts)
			require.Len(t, report.Steps, 5)
			require.NotEmpty(t, report.RecoveryMs)
			quiet := mustTrain(t, moeRun, append([]string{"train.train_iters=5", "expect=[{quantity: lm.loss, finite: true}]"}, layout...)...)
			require.Equal(t, quiet.WeightsSHA256, report.WeightsSHA256)
			require.Equal(t, quiet.Messages, report.Messages, "operations are counted once")
		})
	}
}

func TestRestartsUsedUp(t *testing.T) {
	for code, set := range map[int]string{
		run.ExitRestarts: "recovery.rank_restarts=1",
		run.ExitPoison:   "recovery.rank_restarts=9",
	} {
		var faults []string
		for n := range 5 {
			faults = append(faults, fmt.Sprintf("{at: {rank: 1, hook: after-restart, count: %d}, action: panic}", n+1))
		}
		faults = append(faults, "{at: {rank: 1, hook: before-send}, action: panic}")
		report, err := trained(t, moeRun, run.Options{}, "model.tensor_model_parallel_size=2", "recovery.snapshot_every=1", set, "faults=["+strings.Join(faults, ", ")+"]")
		require.Equal(t, code, run.ExitCode(err), "%v", err)
		require.Equal(t, map[int]int{run.ExitRestarts: 1, run.ExitPoison: 3}[code], report.Restarts, "of a failed run too")
		var fault *run.FaultError
		require.True(t, errors.As(err, &fault), "%v", err)
	}
}

// Without recovery a fault ends the run.
func TestFaultWithoutRecovery(t *testing.T) {
	_, err := trained(t, moeRun, run.Options{}, "model.tensor_model_parallel_size=2", "faults=[{at: {rank: 1, hook: before-apply, count: 3}, action: panic}]")
	require.ErrorContains(t, err, "rank 1 (tp 1) failed in shell tp")
	require.ErrorContains(t, err, "the scenario's fault at before-apply 3 of rank 1")
	require.Equal(t, run.ExitFailed, run.ExitCode(err))
}

// pytorch/elastic#134: one rank dies and the others wait. Here one of eight dies in the forward pass, in the backward pass, in
// the reduction of gradients and in the optimizer's step: it alone starts again, and the run ends as if nothing had been.
func TestADeathInEachPartOfAStep(t *testing.T) {
	for hook, rank := range map[string]int{"layer.0.forward": 2, "layer.1.backward": 5, "grad-reduce": 7, "mid-optimizer": 0} {
		t.Run(hook, func(t *testing.T) {
			report, err := trained(t, moeRun, run.Options{}, append([]string{"train.train_iters=4", "recovery.snapshot_every=2",
				fmt.Sprintf("faults=[{at: {rank: %d, hook: %s, step: 4}, action: panic}]", rank, hook),
				"expect=[{restarts: 1}, {same_as: without_faults}]"}, cutsOf["tp2 pp2"]...)...)
			require.NoError(t, err)
			require.Equal(t, "pass", report.Verdict, "%+v", report.Expect)
			require.Len(t, report.RecoveryMs, 1, "told")
		})
	}
}
