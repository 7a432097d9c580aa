package sim_test

import (
	"errors"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/internal/inproc/trial"
	"phalanx/sim"
)

const steps = 3

// No schedule leaves a program behind, whichever way it ends.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy is the job of that model on a layout, with experts and a depth.
func toy(t testing.TB, l trial.Layout, ep int) *sim.Job {
	s, j := trial.Toy(l, ep, steps)
	job, err := sim.NewJob(s, j)
	require.NoError(t, err)
	return job
}

// plain is the same without experts and depth: hidden 8, one layer, 8 positions.
func plain(t testing.TB, l trial.Layout, steps int) *sim.Job {
	s, j := trial.Toy(l, 1, steps)
	s.Model.NumMoEExperts, s.Model.MTPNumLayers = 0, 0
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

// Every layout survives every schedule, and every sort of fault is among them.
func TestSchedules(t *testing.T) {
	const each = 75
	faults := map[string]int{}
	for i, c := range layouts {
		t.Run(c.name, func(t *testing.T) {
			from := uint64(i) * each
			s := toy(t, c.l, c.ep).Sweep(from, from+each, sim.Options{})
			if s.Failure != nil {
				t.Fatal(s.Failure.Text())
			}
			require.Positive(t, s.Restarts)
			for kind, n := range s.Faults {
				faults[kind] += n
			}
			t.Logf("%d schedules: %d restarts, %d jumps, %d messages, faults %v", s.Schedules, s.Restarts, s.Jumps, s.Messages, s.Faults)
		})
	}
	t.Run("dp2-20-steps", func(t *testing.T) {
		s := plain(t, trial.Layout{TP: 1, CP: 1, DP: 2}, 20).Sweep(1_000_200, 1_000_275, sim.Options{})
		if s.Failure != nil {
			t.Fatal(s.Failure.Text())
		}
	})
	for k := sim.Crash; k <= sim.Supervisor; k++ {
		require.Positive(t, faults[k.String()], k.String())
	}
}

var soak = flag.Uint64("soak", 0, "schedules of TestSoak, over all layouts")

// Many schedules, for `make soak`.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("-soak N runs N schedules")
	}
	jobs := []struct {
		name string
		job  *sim.Job
	}{
		{"plain-tp2-dp2", plain(t, trial.Layout{TP: 2, CP: 1, DP: 2}, steps)},
		{"plain-dp2-20-steps", plain(t, trial.Layout{TP: 1, CP: 1, DP: 2}, 20)},
		{"plain-tp2-pp2-dp2-8-steps", plain(t, trial.Layout{TP: 2, CP: 1, DP: 2, PP: 2}, 8)},
		{"tp2-pp2-dp2", toy(t, trial.Layout{TP: 2, CP: 1, DP: 2, PP: 2}, 1)},
	}
	for _, c := range layouts {
		jobs = append(jobs, struct {
			name string
			job  *sim.Job
		}{c.name, toy(t, c.l, c.ep)})
	}
	each := *soak / uint64(len(jobs))
	for _, c := range jobs {
		t.Run(c.name, func(t *testing.T) {
			job := c.job
			s := job.Sweep(1_000_000, 1_000_000+each, sim.Options{})
			if s.Failure != nil {
				t.Fatal(job.Minimize(s.Failure).Text())
			}
			t.Logf("%d schedules: %d restarts, %d jumps, %d messages, faults %v", s.Schedules, s.Restarts, s.Jumps, s.Messages, s.Faults)
		})
	}
}

// One seed is one schedule, and its faults are what makes it: given as a list they do the same.
func TestSeedsRepeat(t *testing.T) {
	job := toy(t, trial.Layout{TP: 2, CP: 1, DP: 1}, 1)
	traces := map[uint64]bool{}
	for seed := range uint64(40) {
		o := sim.Options{Seed: seed}
		a, err := job.Run(o)
		require.NoError(t, err)
		b, err := job.Run(o)
		require.NoError(t, err)
		require.Equal(t, a, b)
		o.Only = append([]sim.Event{}, a.Events...)
		b, err = job.Run(o)
		require.NoError(t, err)
		require.Equal(t, a, b, "seed %d with its own faults", seed)
		traces[a.Trace] = true
	}
	require.Len(t, traces, 40)
}

// A schedule without faults has none, and replaces nobody.
func TestQuiet(t *testing.T) {
	job := toy(t, trial.Layout{TP: 2, CP: 1, DP: 1}, 1)
	for seed := range uint64(40) {
		r, err := job.Run(sim.Options{Seed: seed, Faults: &sim.Faults{DelayMax: 300, DiskMax: 300}})
		require.NoError(t, err)
		require.Empty(t, r.Events)
		require.Zero(t, r.Restarts+r.Jumps)
	}
}

// A check of a test's own sees every event, and its error is told like a broken promise.
func TestOwnCheck(t *testing.T) {
	job := plain(t, trial.Layout{TP: 1, CP: 1, DP: 2}, steps)
	far := errors.New("rank 0 is in step 2")
	_, err := job.Run(sim.Options{Check: func(v sim.View) error {
		if v.Step(0) == 2 {
			return far
		}
		return nil
	}})
	require.ErrorIs(t, err, far)
	var e *sim.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, sim.Own, e.Broken)
}

// The ranks of one process die together, and nobody notices where they lay.
func TestBlocksOfRanks(t *testing.T) {
	job := plain(t, trial.Layout{TP: 2, CP: 1, DP: 2}, steps)
	for procs := 1; procs <= job.Ranks(); procs++ {
		died := false
		s := job.Sweep(0, 30, sim.Options{Procs: procs, Supervisors: 1, Faults: &sim.Faults{Crashes: 3, CrashRate: 10, DelayMax: 50},
			Check: func(v sim.View) error {
				died = died || v.Step(0) < 0 && v.Step(1) < 0 && v.Now() > 1000
				return nil
			}})
		require.Nil(t, s.Failure)
		require.Positive(t, s.Restarts)
		if procs == 1 {
			require.True(t, died)
		}
	}
}

func BenchmarkSchedules(b *testing.B) {
	for _, c := range []struct {
		name string
		job  func() *sim.Job
	}{
		{"plain-tp2-dp2", func() *sim.Job { return plain(b, trial.Layout{TP: 2, CP: 1, DP: 2}, steps) }},
		{"moe-mtp-tp2-sp-cp2", func() *sim.Job { return toy(b, trial.Layout{TP: 2, CP: 2, DP: 1, SP: true}, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			job := c.job()
			b.ResetTimer()
			if s := job.Sweep(0, uint64(b.N), sim.Options{}); s.Failure != nil {
				b.Fatal(s.Failure.Text())
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Minutes(), "schedules/min")
		})
	}
}
