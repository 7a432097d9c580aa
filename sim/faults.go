package sim

import "fmt"

// Faults are how often things go wrong. Rates are per thousand, times in virtual microseconds. Everything is bounded, so
// that a run must end.
type Faults struct {
	Crashes   int // at most so many processes die, stop or are given up
	CrashRate int // of the points at which one may: around every send, every delivery, every stage of a snapshot
	// Of those, in a thousand: ZombieRate are false suspicions, and the old life goes on beside the new one; StopRate are
	// stopped (SIGSTOP) for up to StopMax, and go on with what has come meanwhile. The rest dies.
	ZombieRate, StopRate int
	StopMax              int64

	Losses      int // at most so many messages are lost, come twice or are damaged
	DropRate    int
	DupRate     int
	CorruptRate int // data messages in which a bit flips on the way
	// DelayMax is the longest a message travels; messages overtake each other. 0: 1.
	DelayMax int

	Cuts   int // one-way partitions between two peers
	CutMax int64
	Resets int // links that begin anew: what is on the way between two peers is lost, and both are told

	DiskRate int   // snapshots that fail: the disk is full
	DiskMax  int64 // the longest a snapshot takes to be written; 0: 1
	DiskMin  int64 // in addition, always

	Supervisors int // deaths of supervisors, between a decision and its execution too

	// Silent says that no timer asks for what does not come: right if nothing is lost without being told.
	Silent bool
}

// lossy reports whether messages may be lost and nobody is told.
func (f *Faults) lossy() bool { return f.DropRate > 0 || f.CorruptRate > 0 || f.Cuts > 0 }

// Swarm draws faults: each class is off in half of the seeds or more, so that they are seen alone and together.
func Swarm(seed uint64) Faults {
	rng := newRand(seed)
	some := func(most int) int {
		if rng.IntN(2) == 0 {
			return 0
		}
		return 1 + rng.IntN(most)
	}
	f := Faults{Crashes: some(6), CrashRate: 1 + rng.IntN(20), ZombieRate: some(500), StopRate: some(300), StopMax: 20_000,
		Losses: 300, DropRate: some(50), DupRate: some(100), CorruptRate: some(30), DelayMax: 1 + some(500),
		Cuts: some(3), CutMax: 20_000, Resets: some(6), DiskRate: some(300), DiskMax: int64(1 + some(1000)), Supervisors: some(3)}
	if rng.IntN(2) == 0 { // links that tell what they lose
		f.DropRate, f.CorruptRate, f.Cuts = 0, 0, 0
		f.Silent = rng.IntN(2) == 0
	}
	return f
}

// Kind is a sort of fault.
type Kind uint8

// The faults.
const (
	Crash      Kind = iota + 1 // a process dies
	Zombie                     // a process is taken for dead and goes on
	Stop                       // a process stands still for a while
	Drop                       // a message is lost
	Duplicate                  // a message comes twice
	Corrupt                    // a bit of a message flips
	Cut                        // nothing passes from one peer to another for a while
	Reset                      // the link of two peers begins anew
	Full                       // a snapshot finds the disk full
	Supervisor                 // a supervisor dies
	Slow                       // a rank takes long to go on, and its process lives
)

var kindNames = [...]string{"?", "crash", "zombie", "stop", "drop", "duplicate", "corrupt", "cut", "reset", "disk-full", "supervisor-crash", "slow"}

// String is the kind's name.
func (k Kind) String() string { return kindNames[k] }

// Event is a fault that happened. Kind, From, To and Nth say which one of a seed's; the rest follows.
type Event struct {
	Kind Kind
	// From and To are peers: ranks, then the collector of reports, then supervisors. Of a process or a disk From = To is the
	// rank that met it.
	From, To int
	Nth      uint64 // of what could have met it: passages of points by that rank, messages from one to the other, …
	Hook     string // the point, of a process
	Lasts    int64  // virtual microseconds; 0: it is over at once
	At       int64  // virtual microseconds
}

// String is one line.
func (e Event) String() string {
	text := fmt.Sprintf("%8d µs  %-16s", e.At, e.Kind)
	switch {
	case e.Kind == Supervisor:
		text += fmt.Sprintf(" supervisor %d", e.From)
	case e.Nth&ofServer != 0:
		text += fmt.Sprintf(" %d→%d, by server fault %d", e.From, e.To, e.Nth&nthMask+1)
	case e.From == e.To:
		text += fmt.Sprintf(" rank %d", e.From)
	default:
		text += fmt.Sprintf(" %d→%d message %d", e.From, e.To, e.Nth&nthMask)
	}
	if e.Hook != "" {
		text += fmt.Sprintf(" at %s, passage %d", e.Hook, e.Nth)
	}
	if e.Lasts > 0 {
		text += fmt.Sprintf(" for %d µs", e.Lasts)
	}
	return text
}

type eventID struct {
	kind     Kind
	from, to int
	nth      uint64
}

func (e Event) id() eventID { return eventID{e.Kind, e.From, e.To, e.Nth} }

// Passage is a fault at a fixed point: the nth time (from 1) that a rank comes by, over all of its lives.
type Passage struct {
	Rank, Nth  int
	Hook       string // of messages or snapshots, or a point of a program, as layer.0.forward
	Microbatch *int   // of a message or point; nil: any
	Step       int    // that the rank is in, as printed, from 1; 0: any
	Until      int    // a step: it happens at every passage from Step to Until; 0: once
	Kind       Kind   // Crash, Zombie, Stop, Slow or Full
	Lasts      int64  // Stop, Slow
}

// at reports whether the fault waits at a point.
func (p *Passage) at(at point) bool {
	inStep := p.Step == 0 || p.Step == at.step || p.Until > 0 && p.Step <= at.step && at.step <= p.Until
	return p.Hook == at.hook && inStep && (p.Microbatch == nil || *p.Microbatch == at.microbatch)
}

// strikes decides about a fault that the dice or a passage give, and notes it. With Options.Only those happen that are
// asked for, whatever the dice say. The budget is what is left of such faults; nil: any number.
func (c *cluster) strikes(e Event, given bool, budget *int) (Event, bool) {
	if c.only != nil {
		want, ok := c.only[e.id()]
		if !ok {
			return e, false
		}
		e.Lasts = want.Lasts
	} else {
		if !given || budget != nil && *budget <= 0 {
			return e, false
		}
		if budget != nil {
			*budget--
		}
	}
	e.At = c.now
	c.result.Events = append(c.result.Events, e)
	c.note(uint64(e.Kind), uint64(e.From), uint64(e.To), e.Nth, uint64(e.Lasts))
	c.disturbed(c.now + e.Lasts)
	return e, true
}

// disturbed says that a fault acts until a time: the run need not have ended before.
func (c *cluster) disturbed(until int64) {
	c.calm = max(c.calm, until)
	c.moved = max(c.moved, until)
}
