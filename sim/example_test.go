package sim_test

import (
	"fmt"
	"testing"

	"phalanx/internal/inproc/trial"
	"phalanx/sim"
)

// Two data-parallel ranks, each in a process of its own; rank 1 dies when it is about to send for the third time.
func ExampleJob_Run() {
	var t testing.T
	job := plain(&t, trial.Layout{TP: 1, CP: 1, DP: 2}, steps)
	r, err := job.Run(sim.Options{
		Faults:   &sim.Faults{},
		Passages: []sim.Passage{{Rank: 1, Hook: "before-send", Nth: 3, Kind: sim.Crash}},
		Procs:    2, Supervisors: 1, Every: 1,
	})
	fmt.Println(r.Restarts, "restart, broken promises:", err)
	// Output: 1 restart, broken promises: <nil>
}

// Many seeds, each with faults of its own, and a check of one's own: no rank knows of a generation that is ahead of it.
func ExampleJob_Sweep() {
	var t testing.T
	job := plain(&t, trial.Layout{TP: 1, CP: 1, DP: 2}, steps)
	s := job.Sweep(0, 100, sim.Options{Check: func(v sim.View) error {
		for rank := range 2 {
			if step := v.Step(rank); step >= 0 && step < v.Generation(rank) && v.Incarnation(rank) == 1 {
				return fmt.Errorf("rank %d in step %d knows of generation %d", rank, step, v.Generation(rank))
			}
		}
		return nil
	}})
	fmt.Println(s.Schedules, "schedules, failed:", s.Failure != nil)
	// Output: 100 schedules, failed: false
}

// A bug of the protocol: snapshots of processes that have been replaced. The seed that finds it needs one fault of many.
func ExampleJob_Minimize() {
	var t testing.T
	job := plain(&t, trial.Layout{TP: 2, CP: 1, DP: 1}, steps)
	s := job.Sweep(0, 2000, sim.Options{Shell: sim.NoFence})
	least := job.Minimize(s.Failure)
	fmt.Println("breaks", least.Broken, "with", len(least.Events), "fault")
	// Output: breaks I8 with 1 fault
}
