package sim_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc/trial"
	"phalanx/recovery"
	"phalanx/sim"
)

// seedsMax is within how many seeds a planted bug must be found.
const seedsMax = 2000

// planted says by which promise a bug is seen first. One that breaks several names those that it may break.
var planted = map[string][]sim.Invariant{
	recovery.MinimumOfNewest.String():      {sim.I4},
	recovery.NoJump.String():               {sim.I5},
	recovery.EarlyApply.String():           {sim.I10},
	recovery.DoubleApply.String():          {sim.I2},
	recovery.TrimEarly.String():            {sim.I4},
	recovery.DoneStopsServing.String():     {sim.I5},
	recovery.StaleGeneration.String():      {sim.I4, sim.I7},
	recovery.IncarnationUnchecked.String(): {sim.I5},
	recovery.NeverTrim.String():            {sim.I6},
	recovery.NeverRepeat.String():          {sim.I5},
	sim.NoFence.String():                   {sim.I8},
	sim.DoubleCount.String():               {sim.I1, sim.I5},
	sim.NeverAsk.String():                  {sim.I5},
	sim.LostUnasked.String():               {sim.I5},
	sim.NoSync.String():                    {sim.I3, sim.I4},
	sim.NoChecksum.String():                {sim.I3},
	sim.NoBarrier.String():                 {sim.I10},
	sim.LateStart.String():                 {sim.I7},
	sim.NotSwapped.String():                {sim.I8},
	sim.ExitUnheard.String():               {sim.I5},
	sim.Impatient.String():                 {sim.I7},
	sim.MixedState.String():                {sim.I3},
	sim.FreshNumbers.String():              {sim.I2, sim.I3, sim.I5},
	sim.LifeInBytes.String():               {sim.I3},
	sim.OldestGoes.String():                {sim.I6},
	sim.OldFinal.String():                  {sim.I1},
	sim.Unrepeatable.String():              {sim.I9},
}

// Each planted bug is found within 2000 seeds, by a promise that it breaks, and every promise finds one.
func TestPlantedBugs(t *testing.T) {
	usual, few := toy(t, trial.Layout{TP: 2, CP: 1, DP: 1}, 1), plain(t, trial.Layout{TP: 1, CP: 1, DP: 2}, steps)
	found, ran := map[sim.Invariant]bool{}, 0
	find := func(name string, o sim.Options) {
		t.Run(name, func(t *testing.T) {
			job := usual
			if o.Shell == sim.OldestGoes { // three steps are not enough to see it
				job, o = slowDisks(t, o)
			}
			if o.Planted == recovery.StaleGeneration { // few messages a step, so that a request is overtaken by a commit
				job = few
			}
			s := job.Sweep(0, seedsMax, o)
			require.NotNil(t, s.Failure, "not found in %d seeds", seedsMax)
			require.Contains(t, planted[name], s.Failure.Broken, s.Failure.Text())
			found[s.Failure.Broken] = true
			ran++
			t.Logf("found after %d seeds: %.200v", s.Schedules, s.Failure)
		})
	}
	for _, bug := range recovery.Bugs() {
		find(bug.String(), sim.Options{Planted: bug})
	}
	for _, bug := range sim.Bugs() {
		find(bug.String(), sim.Options{Shell: bug})
	}
	for _, promise := range sim.Promises() {
		require.True(t, found[promise] || ran < len(planted), "no planted bug is found by %s", promise)
	}
}

// slowDisks is a longer job whose disks take a few steps for a snapshot, and every step is kept.
func slowDisks(t *testing.T, o sim.Options) (*sim.Job, sim.Options) {
	s, source := trial.Toy(trial.Layout{TP: 2, CP: 1, DP: 2}, 1, 60)
	s.Model.NumMoEExperts, s.Model.MTPNumLayers = 0, 0
	job, err := sim.NewJob(s, source)
	require.NoError(t, err)
	o.Every, o.Procs, o.Faults = 1, 4, &sim.Faults{DelayMax: 10, DiskMin: 300, DiskMax: 300}
	return job, o
}

// Ranks whose disks are too slow for the snapshots they should keep go on having steps in common.
func TestSlowDisks(t *testing.T) {
	job, o := slowDisks(t, sim.Options{})
	furthest := 0
	o.Check = func(v sim.View) error {
		furthest = max(furthest, v.Step(0)-v.Generation(0))
		return nil
	}
	s := job.Sweep(0, 20, o)
	if s.Failure != nil {
		t.Fatal(s.Failure.Text())
	}
	require.Greater(t, furthest, 4, "disks are slower than steps")
	require.LessOrEqual(t, furthest, 16, "a write takes three steps at most, so multiples of four are kept by all")
	t.Logf("a rank is at most %d steps ahead of the generation", furthest)
}

// A failing seed is cut down to the faults that it takes: with them it fails, without any one of them it does not.
func TestMinimize(t *testing.T) {
	job := toy(t, trial.Layout{TP: 2, CP: 1, DP: 1}, 1)
	for _, o := range []sim.Options{{Shell: sim.FreshNumbers}, {Planted: recovery.TrimEarly}, {Shell: sim.NoFence}, {Shell: sim.DoubleCount}} {
		first := job.Sweep(0, seedsMax, o).Failure
		require.NotNil(t, first)
		least := job.Minimize(first)
		require.True(t, least.Minimized)
		require.LessOrEqual(t, len(least.Events), len(first.Events))
		require.LessOrEqual(t, len(least.Events), 8, least.Text())
		t.Logf("%d faults, %d are left", len(first.Events), len(least.Events))

		again := breaks(t, job, least.Options)
		require.NotNil(t, again, "it happens every time")
		require.Equal(t, least.Trace, again.Trace)
		for i := range least.Events {
			fewer := least.Options
			fewer.Only = slices.Delete(slices.Clone(least.Events), i, i+1)
			require.Nil(t, breaks(t, job, fewer), "without %s", least.Events[i])
		}
		if len(first.Events) < 100 {
			require.Equal(t, least.Text(), job.Minimize(first).Text(), "minimising is a function of the seed")
		}
	}
}

// breaks runs a schedule; nil: every promise holds.
func breaks(t *testing.T, job *sim.Job, o sim.Options) *sim.Error {
	_, err := job.Run(o)
	if err == nil {
		return nil
	}
	var e *sim.Error
	require.ErrorAs(t, err, &e)
	return e
}
