// Package actors holds the protoactor shells around the pure machines: a Supervisor that owns the run, a Stage per
// pipeline stage, a Rank per rank, and under it a Group per split axis and a Depth per MTP depth.
//
//	run                      Supervisor: start, merging of reports, stall detection, the end
//	└ stage.0                Stage: gathers its ranks' reports
//	  └ rank.3               Rank: program 0
//	    ├ tp, cp, dp, pp     Group: exchanges of one axis, on the Link
//	    └ mtp.1 …, reducer   Depth: program k
//
// With recovery rank.3 is a Keeper, which outlives the rank, and the Rank is its child life.1, then life.2 …
//
// A turn is one Resume of a program until it suspends; nothing blocks anywhere else. A failure is a value that ends
// the run, or with recovery the life of its rank. Every shell is supervised, so nothing is restarted by default.
package actors

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/transport"
)

// StallTimeoutDefault is how long nothing may move before a run is called stalled. The slowest links heal a lost
// server within 10 s; a deadlock is certain after the first round of questions anyway.
const StallTimeoutDefault = 30 * time.Second

// Job is what one run needs from outside.
type Job struct {
	Name  string
	Sizes mesh.Sizes
	// Programs makes the programs of a rank: index 0 is the stage program, k is MTP depth k, and
	// nn.Reducer adds gradients; nil is none. It is called in the rank's first turn. emit reports an event of this rank; it may be called from any of its programs.
	Programs func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error)
	// Recovery starts a rank again that panics; nil: its first panic ends the run.
	Recovery *Recovery
	// Part is this process's share of a run of several processes; nil: all of it.
	Part *Part
	// Hook is called at points where a rank may be made to fail, and may panic; from several goroutines at once. nil: nobody
	// looks.
	Hook func(rank int, at Passage)
	// Network carries the run's messages. Run opens all its links and closes it.
	Network transport.Network
	// Run and Build are stamped on every header; zero leaves them to the link.
	Run, Build uint64
	// Listen gets the merged StepReport and EvalReport of every step in order, and whatever else a rank emits as it
	// comes, one at a time. It must not block for long: the run waits for it. nil: nobody listens.
	Listen func(messages.Event)
	// StallTimeout is how long all ranks may wait without any of them moving; 0 is StallTimeoutDefault.
	StallTimeout time.Duration
	Logger       *zap.Logger // nil: no log
	// Compute gathers the nanoseconds that programs of all ranks spend in their turns, while the run goes on; nil:
	// nobody asks. What is left of the wall clock is exchange and waiting.
	Compute *atomic.Int64
	// Clock is the time that Compute is measured by, of which only differences count, when it is to be measured well: the
	// programs of all ranks then compute on one OS thread, one turn after the other, and Clock is read on it. nil: wall
	// clock, and turns as they come. Clock needs Compute and no Recovery.
	Clock func() time.Duration

	trap func(w who, message any) // tests: called in a shell before it receives
}

// Result is what a finished run did.
type Result struct {
	Steps      int                  // merged step reports
	Ops        []collective.OpCount // summed over all ranks
	Duplicates uint64               // messages that came again with the same contents
	Restarts   int                  // ranks that were started again
	Replayed   uint64               // messages that a rank was given again after a restart
	// Logs are the most that logs have held, by rank, each in the life in which that was most; nil without recovery, and of the
	// collector.
	Logs []recovery.Peak
}

// String is one line.
func (r *Result) String() string {
	var ops, bytes int64
	for _, o := range r.Ops {
		ops += o.Count
		bytes += o.Bytes
	}
	return fmt.Sprintf("result steps=%d collectives=%d bytes=%d duplicates=%d", r.Steps, ops, bytes, r.Duplicates)
}

// complete checks the job and fills in defaults.
func (j Job) complete() (Job, error) {
	s := j.Sizes
	switch {
	case min(s.TP, s.CP, s.DP, s.PP) < 1:
		return j, fmt.Errorf("job %q: found sizes tp %d, cp %d, dp %d, pp %d, expected at least 1 each", j.Name, s.TP, s.CP, s.DP, s.PP)
	case s.World() > ranksMax:
		return j, fmt.Errorf("job %q: found %d ranks, expected at most %d: the header has 16 bits for a rank", j.Name, s.World(), ranksMax)
	case j.Part != nil:
		if err := j.Part.check(j); err != nil {
			return j, err
		}
	case j.Programs == nil && j.Recovery == nil || j.Network == nil:
		return j, errors.New("job " + j.Name + ": expected both Programs and Network")
	case j.Recovery != nil && (j.Recovery.Every < 1 || j.Recovery.Budget == nil || j.Recovery.Programs == nil):
		return j, fmt.Errorf("job %q: found a snapshot every %d steps, expected 1 or more, a Budget and Programs", j.Name, j.Recovery.Every)
	case j.Clock != nil && (j.Compute == nil || j.Recovery != nil):
		return j, fmt.Errorf("job %q: a Clock needs Compute and no Recovery", j.Name)
	case j.StallTimeout < 0:
		return j, fmt.Errorf("job %q: found stall timeout %s, expected 0 (the default) or more", j.Name, j.StallTimeout)
	}
	if j.StallTimeout == 0 {
		j.StallTimeout = StallTimeoutDefault
	}
	if j.Logger == nil {
		j.Logger = zap.NewNop()
	}
	if j.Listen == nil {
		j.Listen = func(messages.Event) {}
	}
	return j, nil
}

// ranksMax is what Header.Src holds.
const ranksMax = 1 << 16
