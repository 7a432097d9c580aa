package plane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Record is who lives as a worker. Times are nanoseconds since 1970, by the clock of the host named; on one host all
// differences are exact.
type Record struct {
	Incarnation uint32 `cbor:"1,keyasint"` // 1 is the first
	Host        string `cbor:"2,keyasint"` // whose agent runs it
	By          string `cbor:"3,keyasint"` // the supervisor that wrote this; no two processes have one name
	Term        uint64 `cbor:"4,keyasint"` // its term of leadership
	Cause       Cause  `cbor:"5,keyasint"` // why the incarnation before ended
	Text        string `cbor:"6,keyasint,omitempty"`

	SignNs    int64 `cbor:"7,keyasint"`            // last sign of life of the incarnation before, or its exit
	LedNs     int64 `cbor:"8,keyasint"`            // when the writer became leader
	DecidedNs int64 `cbor:"9,keyasint"`            // when it first wanted to write this
	WaitNs    int64 `cbor:"10,keyasint,omitempty"` // of which it waited on purpose: the budget's backoff

	// Deaths are those that the budget of restarts still counts, oldest first: a supervisor needs no memory but this.
	Deaths []Death `cbor:"11,keyasint,omitempty"`

	At time.Time `cbor:"-"` // when the server took it
}

// Death is the end of an incarnation.
type Death struct {
	AtNs int64  `cbor:"1,keyasint"`
	Site string `cbor:"2,keyasint,omitempty"` // step and operation, if they are known for certain
}

// Split is how long a restart took until its record was written, in parts that add up.
type Split struct {
	Leaderless time.Duration // there was nobody to notice
	Detection  time.Duration // last sign of life or exit → decision
	Backoff    time.Duration // on purpose
	Broker     time.Duration // decision → written; an election of servers is here
}

// Total is the sum.
func (s Split) Total() time.Duration { return s.Leaderless + s.Detection + s.Backoff + s.Broker }

// Split tells the time from the last sign of life to the record.
func (r Record) Split() Split {
	if r.SignNs == 0 || r.At.IsZero() {
		return Split{}
	}
	led := max(r.LedNs, r.SignNs)
	decided := max(r.DecidedNs, led) // whoever decided before it led could not act
	written := max(r.At.UnixNano(), decided)
	wait := min(r.WaitNs, written-decided) // part of it may have passed before a change of leaders
	return Split{Leaderless: time.Duration(led - r.SignNs), Detection: time.Duration(decided - led), Backoff: time.Duration(wait),
		Broker: time.Duration(written - decided - wait)}
}

// String is one line.
func (r Record) String() string {
	return fmt.Sprintf("incarnation=%d host=%s by=%s term=%d cause=%s", r.Incarnation, r.Host, r.By, r.Term, r.Cause)
}

// Cause is why an incarnation ended.
type Cause string

// Causes.
const (
	Begun  Cause = "begun"  // it is the first
	Killed Cause = "killed" // by a signal
	Panic  Cause = "panic"
	Exited Cause = "exit"   // without a reason given
	Silent Cause = "silent" // no heartbeats: stopped, starved or cut off
	Hung   Cause = "hung"   // heartbeats, and no progress
)

func recordKey(worker int) string { return "rank." + strconv.Itoa(worker) }

// Record reads who lives as a worker; ErrMissing: nobody yet.
func (p *Plane) Record(ctx context.Context, worker int) (Record, Revision, error) {
	e, err := p.state.get(ctx, recordKey(worker))
	if err != nil {
		return Record{}, 0, err
	}
	r, err := readRecord(e)
	return r, e.revision, err
}

func readRecord(e entry) (r Record, err error) {
	err = decode("a record", e.value, &r)
	r.At = e.at
	return r, err
}

// Mint writes a record in place of the one of a revision, 0 being none. ErrConflict: another supervisor was first.
func (p *Plane) Mint(ctx context.Context, worker int, r Record, after Revision) (Revision, error) {
	return p.state.swap(ctx, recordKey(worker), encode(r), after)
}

// WatchRecord calls f with the record of a worker and with every later one, until the context ends or the plane is closed.
// Revision 0 says that there is none.
func (p *Plane) WatchRecord(ctx context.Context, worker int, f func(Record, Revision)) error {
	return p.state.watch(ctx, recordKey(worker), func(e entry) {
		if e.revision == 0 {
			f(Record{}, 0)
			return
		}
		r, err := readRecord(e)
		if err != nil {
			p.log.Error(err.Error())
			return
		}
		f(r, e.revision)
	})
}

// Verdict ends a run from the side of the supervisors.
type Verdict struct {
	Code int    `cbor:"1,keyasint"` // exit code: 4 restarts used up, 5 poison, 1 a failure that would come again
	Why  string `cbor:"2,keyasint"`
	By   string `cbor:"3,keyasint"`
}

// Judge writes the verdict. The first one stays: it is returned.
func (p *Plane) Judge(ctx context.Context, v Verdict) (Verdict, error) {
	_, err := p.state.swap(ctx, "verdict", encode(v), 0)
	if errors.Is(err, ErrConflict) {
		return p.Verdict(ctx)
	}
	return v, err
}

// Verdict reads it; ErrMissing: there is none.
func (p *Plane) Verdict(ctx context.Context) (v Verdict, err error) {
	e, err := p.state.get(ctx, "verdict")
	if err != nil {
		return v, err
	}
	return v, decode("a verdict", e.value, &v)
}

// WatchVerdict calls f when there is a verdict, and returns then, or when the context ends.
func (p *Plane) WatchVerdict(ctx context.Context, f func(Verdict)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := false
	err := p.state.watch(ctx, "verdict", func(e entry) {
		var v Verdict
		if e.revision == 0 {
			return
		}
		if err := decode("a verdict", e.value, &v); err != nil {
			p.log.Error(err.Error())
			return
		}
		seen = true
		cancel()
		f(v)
	})
	if seen {
		return nil
	}
	return err
}
