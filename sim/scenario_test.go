package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/inproc/trial"
	"phalanx/sim"
)

func ptr[T any](v T) *T { return &v }

// The faults of a file are those of every schedule: each happens as often as it says, and no other does.
func TestFaultsOfFiles(t *testing.T) {
	layout := trial.Layout{TP: 2, CP: 1, DP: 1}
	s, source := trial.Toy(layout, 1, steps)
	s.Recovery.SnapshotEvery, s.Recovery.Supervisors = 1, 1
	job, err := sim.NewJob(s, source)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		faults []config.Injected
		want   map[string]int // in 20 schedules; −1: some
	}{
		"kill in a step":       {[]config.Injected{{At: config.Passage{Rank: ptr(1), Hook: config.BeforeSend, Step: ptr(2), Count: 1}, Action: "kill"}}, map[string]int{"crash": 20}},
		"a pass of a layer":    {[]config.Injected{{At: config.Passage{Rank: ptr(1), Hook: "layer.0.backward", Step: ptr(2), Microbatch: ptr(1), Count: 1}, Action: "panic"}}, map[string]int{"crash": 20}},
		"a depth and Adam":     {[]config.Injected{{At: config.Passage{Rank: ptr(0), Hook: "mtp.1.forward", Count: 2}, Action: "kill"}, {At: config.Passage{Rank: ptr(1), Hook: config.MidOptimizer, Count: 3}, Action: "kill"}}, map[string]int{"crash": 40}},
		"hang and full disk":   {[]config.Injected{{At: config.Passage{Rank: ptr(0), Hook: config.AfterSend, Count: 30}, Action: "hang"}, {At: config.Passage{Rank: ptr(1), Hook: config.MidSnapshot, Count: 1}, Action: "enospc"}}, map[string]int{"stop": 20, "disk-full": 20}},
		"a bad link":           {[]config.Injected{{During: config.Window{Steps: &[2]int{2, 2}}, Link: config.Between{From: ptr(0), To: ptr(1)}, Drop: 0.1, Duplicate: 0.1, Corrupt: 0.1, Reorder: 0.2, Delay: 0.3}}, map[string]int{"drop": -1, "duplicate": -1, "corrupt": -1}},
		"a partition":          {[]config.Injected{{Link: config.Between{From: ptr(1)}, Partition: 4}}, map[string]int{"cut": 20}},
		"a server in a step":   {[]config.Injected{{Server: "nats-1", At: config.Passage{Step: ptr(3)}, Action: "kill"}}, map[string]int{"reset": 60}},
		"slow in a step":       {[]config.Injected{{At: config.Passage{Rank: ptr(0), Hook: config.BeforeApply}, During: config.Window{Steps: &[2]int{2, 2}}, Action: "slow", Ms: 30}}, map[string]int{"slow": -1}},
		"slow, then a restart": {[]config.Injected{{At: config.Passage{Rank: ptr(0), Hook: config.BeforeApply, Count: 5}, Action: "slow", Ms: 3}}, map[string]int{"slow": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.Faults = c.faults
			total := job.Sweep(0, 20, sim.OptionsOf(&s))
			if total.Failure != nil {
				t.Fatal(total.Failure.Text())
			}
			for kind, n := range c.want {
				if n < 0 {
					require.Positive(t, total.Faults[kind], kind)
				} else {
					require.Equal(t, n, total.Faults[kind], kind)
				}
			}
			require.Len(t, total.Faults, len(c.want), "%v", total.Faults)
		})
	}
}
