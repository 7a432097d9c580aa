package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc/trial"
	"phalanx/recovery"
	"phalanx/sim"
)

const steps = 3

// toy is the job of that model on a layout.
func toy(t testing.TB, l trial.Layout, ep int) *sim.Job {
	s, j := trial.Toy(l, ep, steps)
	job, err := sim.NewJob(s, j)
	require.NoError(t, err)
	return job
}

var layouts = []struct {
	name string
	l    trial.Layout
	ep   int
}{
	{"tp2", trial.Layout{TP: 2, CP: 1, DP: 1}, 1},
	{"dp2", trial.Layout{TP: 1, CP: 1, DP: 2}, 1},
	{"cp2", trial.Layout{TP: 1, CP: 2, DP: 1}, 1},
	{"pp2", trial.Layout{TP: 1, CP: 1, DP: 1, PP: 2}, 1},
	{"ep2", trial.Layout{TP: 1, CP: 1, DP: 2}, 2},
	{"tp2-sp-cp2", trial.Layout{TP: 2, CP: 2, DP: 1, SP: true}, 1},
	{"pp2-dp2", trial.Layout{TP: 1, CP: 1, DP: 2, PP: 2}, 1},
}

// Every layout survives every schedule: the weights and moments of all ranks have the bits of a run without faults.
func TestSchedules(t *testing.T) {
	for i, c := range layouts {
		t.Run(c.name, func(t *testing.T) {
			job := toy(t, c.l, c.ep)
			var total sim.Result
			for seed := range uint64(75) {
				seed := seed*uint64(len(layouts)) + uint64(i)
				r, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)})
				require.NoError(t, err)
				total.Crashes += r.Crashes
				total.Jumps += r.Jumps
				total.Zombies += r.Zombies
				total.Corrupt += r.Corrupt
				total.Messages += r.Messages
			}
			require.Positive(t, total.Crashes)
			t.Logf("%+v", total)
		})
	}
}

// One seed is one schedule.
func TestSeedsRepeat(t *testing.T) {
	job := toy(t, trial.Layout{TP: 2, CP: 1, DP: 1}, 1)
	traces := map[string]bool{}
	for seed := range uint64(10) {
		a, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)})
		require.NoError(t, err)
		b, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)})
		require.NoError(t, err)
		require.Equal(t, a, b)
		traces[a.Trace] = true
	}
	require.Len(t, traces, 10)
}

// Each planted bug is found within 2000 seeds.
func TestPlantedBugs(t *testing.T) {
	job := toy(t, trial.Layout{TP: 1, CP: 1, DP: 2}, 1)
	for _, bug := range recovery.Bugs() {
		t.Run(bug.String(), func(t *testing.T) {
			for seed := range uint64(2000) {
				if _, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed), Planted: bug}); err != nil {
					t.Logf("after %d seeds: %.300s", seed+1, err)
					return
				}
			}
			t.Fatalf("%s was not found", bug)
		})
	}
}

// The same for what is around the machine.
func TestPlantedBugsAround(t *testing.T) {
	job := toy(t, trial.Layout{TP: 1, CP: 1, DP: 2}, 1)
	for _, bug := range sim.Bugs() {
		t.Run(bug.String(), func(t *testing.T) {
			for seed := range uint64(2000) {
				if _, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed), Shell: bug}); err != nil {
					t.Logf("after %d seeds: %.300s", seed+1, err)
					return
				}
			}
			t.Fatalf("%s was not found", bug)
		})
	}
}

func BenchmarkSchedules(b *testing.B) {
	job := toy(b, trial.Layout{TP: 2, CP: 2, DP: 1, SP: true}, 1)
	for i := range b.N {
		if _, err := job.Run(sim.Options{Seed: uint64(i), Faults: sim.Swarm(uint64(i))}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Minutes(), "schedules/min")
}

func ExampleJob_Run() {
	var t testing.T
	job := toy(&t, trial.Layout{TP: 1, CP: 1, DP: 2}, 1)
	r, err := job.Run(sim.Options{Seed: 4, Faults: sim.Faults{Crashes: 3, CrashRate: 60, DelayMax: 100}})
	fmt.Println(r.Crashes, "ranks died, broken promises:", err)
	// Output: 3 ranks died, broken promises: <nil>
}
