package run_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/run"
)

// faultScenarios are the runs of scenarios/faults by their names.
func faultScenarios(t *testing.T) map[string]config.Scenario {
	t.Helper()
	files, err := filepath.Glob("../scenarios/faults/*.yaml")
	require.NoError(t, err)
	all := map[string]config.Scenario{}
	for _, file := range files {
		f, problems := config.Load(file, nil)
		require.Empty(t, problems, file)
		require.Equal(t, strings.TrimSuffix(filepath.Base(file), ".yaml"), f.Runs()[0].Name)
		all[f.Runs()[0].Name] = f.Runs()[0]
	}
	return all
}

// Every scenario of a fault that one process can have ends with the bits of the run without it, and the restarts it says.
func TestFaultScenarios(t *testing.T) {
	ran := 0
	for name, s := range faultScenarios(t) {
		if len(s.NeedsProcs) > 0 {
			_, err := run.Execute(t.Context(), s, run.Options{})
			require.Equal(t, run.ExitBadInput, run.ExitCode(err), name)
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			report, err := run.Execute(t.Context(), s, run.Options{})
			require.NoError(t, err)
			require.Len(t, report.Expect, 2)
			require.Equal(t, "pass", report.Verdict, "%+v", report.Expect)
		})
	}
	require.GreaterOrEqual(t, ran, 14)
}

// There is a scenario for every hook and every action, and no rank dies where its hook was never passed: the restarts that
// scenarios expect say that faults happened.
func TestEveryFaultHasAScenario(t *testing.T) {
	hooks, actions := map[string]bool{}, map[string]bool{}
	for name, s := range faultScenarios(t) {
		restarts := 0
		for _, f := range s.Faults {
			hooks[f.At.Hook], actions[f.Action] = true, true
			if f.OfRank() && (f.Action == "panic" || f.Action == "kill" || f.Action == "exit" || f.Action == "hang") {
				restarts++
			}
		}
		require.Equal(t, restarts, *s.Expect[0].Restarts, name)
	}
	for _, hook := range []string{"before-send", "after-send", "before-apply", "layer.1.forward", "layer.0.backward", "mtp.1.forward", "mtp.1.backward",
		"grad-reduce", "mid-optimizer", "before-snapshot", "mid-snapshot", "after-snapshot", "before-commit", "after-restart"} {
		require.True(t, hooks[hook], hook)
	}
	for _, k := range config.Keys() {
		if k.Name == "faults.*.action" {
			for _, a := range k.Legal {
				require.True(t, actions[a], a)
			}
		}
	}
}
