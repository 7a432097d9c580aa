package run

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// Every scenario of a fault that needs processes ends with the bits of the run without it, and the restarts it says.
func TestFaultScenariosOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("each starts processes")
	}
	files, err := filepath.Glob("../scenarios/faults/*.yaml")
	require.NoError(t, err)
	ran := 0
	for _, file := range files {
		f, problems := config.Load(file, nil)
		require.Empty(t, problems, file)
		s := f.Runs()[0]
		if len(s.NeedsProcs) == 0 {
			continue
		}
		ran++
		t.Run(s.Name, func(t *testing.T) {
			s.Train.Threads = 1
			if s.Name != "action-hang" { // whose steps must be longer than a heartbeat
				s.Recovery.HeartbeatMs = 500 // on a loaded machine nobody is suspected who lives, so that restarts can be counted
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the longest waits ten seconds for a rank that hangs
			defer cancel()
			report, err := Execute(ctx, s, Options{Procs: 4})
			require.NoError(t, err)
			require.Len(t, report.Expect, 2)
			require.Equal(t, "pass", report.Verdict, "%+v", report.Expect)
			require.Empty(t, report.FaultsUnused)
		})
	}
	require.GreaterOrEqual(t, ran, 14)
}
