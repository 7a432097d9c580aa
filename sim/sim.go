// Package sim runs a whole job in one goroutine on virtual time, with crashes, false suspicions, a bad network, bad disks
// and supervisors that die, all drawn from a seed, and checks after every event what recovery promises (Invariant). The
// programs are those of a real run, of any layout; the machine between them is package recovery's, byte for byte.
//
// A test writes:
//
//	job, err := sim.NewJob(scenario, source)
//	summary := job.Sweep(0, 500, sim.Options{})
//	if summary.Failure != nil {
//		t.Fatal(job.Minimize(summary.Failure))
//	}
//
// A seed is a schedule: it gives the same turns, faults and trace hash every time. Every fault that happens is an Event;
// Options.Only repeats a seed with some of its events, which is how Minimize works. Own checks go into Options.Check.
package sim

import (
	"fmt"
	"strings"

	"phalanx/config"
	"phalanx/mesh"
	"phalanx/model"
	"phalanx/recovery"
)

// Job is a scenario and what it does without faults.
type Job struct {
	scenario *config.Scenario
	source   model.Source
	sizes    mesh.Sizes
	oracle   *outcome
}

// NewJob runs a scenario once without faults, for comparison.
func NewJob(s *config.Scenario, source model.Source) (*Job, error) {
	j := &Job{scenario: s, source: source, sizes: s.Sizes()}
	c := j.cluster(Options{Faults: &Faults{}})
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("the run without faults failed: %w", err)
	}
	j.oracle = c.outcome()
	return j, nil
}

// Steps is the number of training steps, Ranks of ranks.
func (j *Job) Steps() int { return j.scenario.Train.TrainIters }

// Ranks is the number of ranks.
func (j *Job) Ranks() int { return j.sizes.World() }

// Options are one schedule.
type Options struct {
	Seed uint64
	// Faults are how often things go wrong; nil: Swarm of the seed.
	Faults *Faults
	// Passages are faults at fixed points, as in scenario files.
	Passages []Passage
	Windows  []Window
	Servers  []int // steps at which a NATS server fails: the links of all begin anew
	// Procs is the number of worker processes, each with a block of ranks; 0: drawn from the seed.
	Procs int
	// Supervisors is 1 or more; 0: 1 or 3, drawn from the seed.
	Supervisors int
	// Every is the number of steps between snapshots; 0: up to 3, drawn from the seed.
	Every int
	// LogMax is recovery.Options.LogMax; 0: often none, else drawn from the seed.
	LogMax int64
	// Only are the events that happen, of all that the seed would give; nil: all.
	Only []Event
	// Planted is a deliberate bug of the protocol, Shell one of what is around it, for tests of these tests.
	Planted recovery.Bug
	Shell   Bug
	// Stop, if it says so, ends a sweep before the next schedule; nil: it never does.
	Stop func() bool
	// Check is called after every event; an error ends the run as a broken promise.
	Check func(View) error
}

// View is what a check sees.
type View struct{ c *cluster }

// Now is the virtual time in microseconds.
func (v View) Now() int64 { return v.c.now }

// Step is the step of a rank's present life; −1: it is dead.
func (v View) Step(rank int) int {
	if l := v.c.nodes[rank].life; l != nil && !l.dead() {
		return int(l.step)
	}
	return -1
}

// Generation is the step that a rank knows to be committed.
func (v View) Generation(rank int) int { return int(v.c.nodes[rank].committed) }

// Incarnation is that of the process of a rank, as the control plane has it.
func (v View) Incarnation(rank int) int { return int(v.c.incarnation(v.c.nodes[rank].worker.index)) }

// Result is what a schedule did.
type Result struct {
	Events   []Event // every fault that happened, in order
	Restarts int     // processes started again
	Jumps    int     // ranks that went on from a later snapshot of their own
	Messages int     // data messages that left a rank
	Replayed int     // of them answers to requests
	End      int64   // virtual microseconds
	Trace    uint64  // hash of everything that happened
}

// Invariant is a promise, by its number in docs/simulator.md.
type Invariant string

// The promises.
const (
	I1  Invariant = "I1"  // reports and the state of every rank at the end are those of a run without faults
	I2  Invariant = "I2"  // each message is applied once, in order
	I3  Invariant = "I3"  // what a rank sends and keeps has the bytes of a run without faults
	I4  Invariant = "I4"  // generations only rise, every rank can go back to them, and no log is freed beyond
	I5  Invariant = "I5"  // the run ends soon after the last fault
	I6  Invariant = "I6"  // a log holds what was sent since the generation, and the generation follows the disks
	I7  Invariant = "I7"  // nobody goes back except by a death, and nobody is replaced without a reason
	I8  Invariant = "I8"  // only the present incarnation writes what lasts
	I9  Invariant = "I9"  // one seed is one schedule
	I10 Invariant = "I10" // nothing is sent or applied before recovery is over
	Own Invariant = "own" // Options.Check
)

// Promises are I1 to I10.
func Promises() []Invariant { return []Invariant{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10} }

// Error is a schedule in which a promise was broken.
type Error struct {
	Options   Options
	Broken    Invariant
	At        int64   // virtual microseconds
	Events    []Event // every fault until then
	Minimized bool    // without any one of Events it does not happen
	Trace     uint64
	Cause     error
}

// Error names the seed, the promise and how many faults led there; Text lists them.
func (e *Error) Error() string {
	return fmt.Sprintf("seed %d breaks %s at %d µs after %d faults, trace %016x: %v", e.Options.Seed, e.Broken, e.At, len(e.Events), e.Trace, e.Cause)
}

// Text is the error and its faults, one a line.
func (e *Error) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", e)
	for _, ev := range e.Events {
		fmt.Fprintf(&b, "  %s\n", ev)
	}
	return b.String()
}

// Unwrap is the broken promise.
func (e *Error) Unwrap() error { return e.Cause }

// Run runs one schedule. The error is an *Error.
func (j *Job) Run(o Options) (Result, error) {
	c := j.cluster(o)
	err := c.run()
	if err == nil {
		err = c.compare(j.oracle)
	}
	c.result.End, c.result.Trace = c.now, c.trace
	if err != nil {
		return c.result, &Error{Options: o, Broken: brokenBy(err), At: c.now, Events: c.result.Events, Trace: c.trace, Cause: err}
	}
	return c.result, nil
}
