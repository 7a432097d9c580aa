package actors

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recording"
	"phalanx/recovery"
	"phalanx/snapshot"
)

// Recovery is what a run needs to start a rank again alone. With it a panic in a rank is no end of the run: the rank goes
// on from its last snapshot that counts, and its peers send again what it lacks.
type Recovery struct {
	// Every is the number of steps between the snapshots of a rank. They stay in memory.
	Every int
	// LogMax is how many bytes the log of a rank's messages should have at most: above it snapshots come closer together. 0: any.
	LogMax int64
	// LogLimit ends the run when the log of a rank has more bytes; 0: any. In a run of several processes.
	LogLimit int64
	// Budget says how often ranks may be started again. Its times are nanoseconds. The run owns it.
	Budget *recovery.Budget
	// Programs makes the programs of one life of a rank, in place of Job.Programs.
	Programs func(rank int, l Life, emit func(messages.Event)) ([]func(nn.Comm), error)
	// Record gives what the inputs of a rank's lives are recorded with; again: it has died. nil, or a nil of a rank: they are
	// not.
	Record func(rank int, again bool) *recording.Rank
}

// Life is what the programs of a rank need to know of where they begin.
type Life struct {
	Incarnation uint32 // 1 for the first
	// Local is what the function given to Boundary returned, in an earlier life; nil: the beginning of the run.
	Local []byte
	// Boundary is told before every step, and after the last one, how many steps are done. local is the rank's whole state.
	Boundary func(step int, local func() []byte)
	// Ends is asked behind Boundary, by the stage program, whether the rank ends without the step. nil: it never does.
	Ends func(c nn.Comm, step int) bool
}

// Points at which Job.Hook is called. Those of snapshots are passed with Recovery only.
const (
	BeforeSend     = "before-send"     // a group has a message for the link
	AfterSend      = "after-send"      // and has given it away
	BeforeApply    = "before-apply"    // a group has got a message
	BeforeSnapshot = "before-snapshot" // the stage program is at a step whose beginning is kept
	AfterSnapshot  = "after-snapshot"  // it is kept, and nobody else knows
	BeforeCommit   = "before-commit"   // every rank can go back to a later step
	AfterRestart   = "after-restart"   // a rank that was started again makes its programs
)

// life is a rank between two deaths, for what belongs to it. Without recovery there is one life and no keeper.
type life struct {
	n      uint32
	keeper *actor.PID     // nil: no recovery
	path   string         // of the Rank actor
	from   snapshot.State // where it begins
	every  *atomic.Uint32 // steps between snapshots; the keeper's machine may make them fewer
	// Received payloads are still written after they have been read.
	recorded bool
}

// recordLife begins the recording of a life.
func (k *keeper) recordLife(from snapshot.State) {
	if of := k.run.job.Recovery.Record; of != nil && k.record == nil {
		k.record = of(k.rank, k.inc > 1)
	}
	k.record.Life(k.inc, from)
}

// Passage is a rank coming by a point.
type Passage struct {
	Point string
	// Step is, from 1, the step in which it comes by; of snapshots the last step that is in it, of BeforeCommit the last step
	// committed, of AfterRestart the first step that is computed again. 0: before the first.
	Step       int
	Microbatch int // of the rank, from 0; −1: of none
}

// hook passes a point at which a rank may be made to fail.
func (r *run) hook(rank int, at Passage) {
	if r.job.Hook != nil {
		r.job.Hook(rank, at)
	}
}

// inMessage is a point passed with a message.
func inMessage(point string, h messages.Header) Passage {
	return Passage{Point: point, Step: int(h.Step) + 1, Microbatch: int(h.Microbatch)}
}

// between is a point passed between steps, step of them done.
func between(point string, step uint32) Passage {
	return Passage{Point: point, Step: int(step), Microbatch: -1}
}

// lost reports the failure of a rank: a panic to its keeper, if it has one, anything else to the supervisor by way of the
// stage, behind the rank's reports.
func (r *run) lost(l life, err *RankError) {
	if l.keeper != nil && ofPanic(err) {
		r.system.Root.Send(l.keeper, died{life: l.n, err: err})
		return
	}
	r.failRank(err)
}

// ofPanic says whether a rank failed by a panic, so that it may be started again. What it has found it would find again.
func ofPanic(err *RankError) bool {
	switch cause := err.Cause.(type) {
	case *PanicError:
		return !cause.found()
	case *ShellError:
		return true
	}
	return false
}

// shellDeath is the failure of an actor of a life, on its way to the decider.
type shellDeath struct {
	*RankError
	life life
}

// site is where a rank died, the same whenever it dies there again.
func (m died) site() string {
	if e, ok := m.err.Cause.(*ShellError); ok {
		return fmt.Sprintf("%s on %s", m.err.Part, e.Message)
	}
	return fmt.Sprintf("%s, %s", m.err.Part, collective.Reached(m.err.Site))
}

// computed is the time that the programs have computed since it was asked for.
func (k *rank) computed() time.Duration { return time.Duration(k.run.computed[k.rank].Swap(0)) }

// boundary is Life.Boundary of this life: state goes to the keeper, and every group is asked for its own. A group gets the
// question behind all operations of the steps before and ahead of those of the next step.
func (k *rank) boundary() func(step int, local func() []byte) {
	began := false
	return func(step int, local func() []byte) {
		if k.reporter != nil {
			k.reporter.begin(uint32(step))
			k.run.part().Status.change(k.rank, func(s *RankStatus) { s.Step, s.Compute = step, k.computed() })
		}
		if !began { // where this life begins is kept already
			began = true
			return
		}
		if step%int(k.life.every.Load()) != 0 {
			return
		}
		k.run.hook(k.rank, between(BeforeSnapshot, uint32(step)))
		k.run.system.Root.Send(k.life.keeper, localState{k.life.n, uint32(step), local()})
		for _, g := range k.groups {
			k.run.system.Root.Send(g, askState{uint32(step)})
		}
	}
}
