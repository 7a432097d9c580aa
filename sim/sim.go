// Package sim runs a whole job in one goroutine on virtual time, with crashes, a bad network and bad disks drawn from a
// seed, and checks after every turn what recovery promises. The programs are those of a real run.
//
// A test writes:
//
//	job, err := sim.NewJob(scenario, source)
//	for seed := range uint64(500) {
//		if err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)}); err != nil {
//			t.Fatal(err)
//		}
//	}
//
// A seed is a schedule: it gives the same turns, faults and trace hash every time. Own checks go into Options.Check.
package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"phalanx/config"
	"phalanx/mesh"
	"phalanx/messages"
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
	c := j.cluster(Options{})
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("the run without faults failed: %w", err)
	}
	j.oracle = c.outcome()
	return j, nil
}

// Options are one schedule.
type Options struct {
	Seed   uint64
	Faults Faults
	// Every is the number of steps between snapshots; 0: 1.
	Every int
	// Planted is a deliberate bug of the protocol, Shell one of what is around it, for tests of these tests.
	Planted recovery.Bug
	Shell   Bug
	// Check is called after every turn with the step of every rank's present life (−1: dead); an error ends the run.
	Check func(now int64, steps []int) error
}

// Faults are how often things go wrong. Rates are per thousand.
type Faults struct {
	Crashes   int // at most so many ranks die
	CrashRate int // of the points at which one may die: around every send, every delivery, every stage of a snapshot
	DropRate  int // messages that are lost
	DupRate   int // messages that come twice
	// DelayMax is the longest a message travels, in microseconds; messages overtake each other. 0: 1.
	DelayMax int
	// DiskRate is snapshots that fail: the disk is full, or the file is torn.
	DiskRate    int
	CorruptRate int // data messages in which a bit flips on the way
	ZombieRate  int // deaths that are false suspicions: the old life goes on beside the new one
	// Partitions are one-way cuts between two ranks.
	Partitions   int
	PartitionMax int // microseconds that one lasts at most
}

// Swarm draws faults: each class is off in half of the seeds, so that they are seen alone and together.
func Swarm(seed uint64) Faults {
	rng := newRand(seed, 1)
	some := func(most int) int {
		if rng.IntN(2) == 0 {
			return 0
		}
		return 1 + rng.IntN(most)
	}
	return Faults{Crashes: some(6), CrashRate: 1 + rng.IntN(20), DropRate: some(50), DupRate: some(100), DelayMax: 1 + some(500),
		DiskRate: some(300), CorruptRate: some(30), ZombieRate: some(500), Partitions: some(3), PartitionMax: 20_000}
}

// Error is a schedule in which a promise was broken.
type Error struct {
	Seed   uint64
	Faults Faults
	At     int64 // virtual microseconds
	Trace  string
	Cause  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("seed %d at %d µs with %+v, trace %s: %v", e.Seed, e.At, e.Faults, e.Trace, e.Cause)
}

// Unwrap is the broken promise.
func (e *Error) Unwrap() error { return e.Cause }

// Result is what a schedule did.
type Result struct {
	Crashes, Zombies, Jumps, Messages, Corrupt int
	End                                        int64  // virtual microseconds
	Trace                                      string // hash of everything that happened
}

// Run runs one schedule. The error is an *Error.
func (j *Job) Run(o Options) (Result, error) {
	c := j.cluster(o)
	err := c.run()
	if err == nil {
		err = c.compare(j.oracle)
	}
	if err != nil {
		return c.result, &Error{Seed: o.Seed, Faults: o.Faults, At: c.now, Trace: c.traceHash(), Cause: err}
	}
	c.result.End, c.result.Trace = c.now, c.traceHash()
	return c.result, nil
}

// outcome is what is compared.
type outcome struct {
	final []string                          // by rank: hash of its whole state after the last step
	sent  []map[recovery.Edge][]fingerprint // by rank: every message, in order
	sums  []messages.Sums                   // by rank, over all steps
}

type fingerprint struct {
	step, crc uint32
}

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
