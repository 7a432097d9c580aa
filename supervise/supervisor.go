package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/transport/natslink/plane"
)

// Event is something that a supervisor has seen or done, for the console.
type Event struct {
	Kind   EventKind
	Worker int
	Record plane.Record // Minted, Saw
	Rev    plane.Revision
	Text   string
}

// EventKind says what an event is about.
type EventKind string

// Kinds of events.
const (
	Minted     EventKind = "minted"      // this supervisor has written a record
	FalseAlarm EventKind = "false-alarm" // a life that was suspected gave a sign
	Leading    EventKind = "leading"
	Following  EventKind = "following"
	Ended      EventKind = "ended" // there is a verdict
)

// Supervisor is the shell of a Machine: clock, lease, heartbeats and records. Any number of them watch one run.
type Supervisor struct {
	p   *plane.Plane
	o   Options
	log *zap.Logger
	m   *Machine
	in  chan input

	origin  time.Time
	writing map[int]bool   // workers whose record is being written
	noted   map[int]uint32 // their restarts that are kept
	deaf    bool
	wait    sync.WaitGroup
}

// input is something to tell the machine.
type input struct {
	tell   func(now int64)
	urgent bool // the machine is asked at once what to do
}

const (
	inputsMax    = 1024 // more than all workers say between two ticks
	ticksABeat   = 2
	mintPatience = 3 * time.Second // then the machine is asked again whether it still wants the record
)

// New is a supervisor that has not begun.
func New(p *plane.Plane, o Options) (*Supervisor, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	return &Supervisor{p: p, o: o, log: o.Logger.With(zap.String("supervisor", o.Name)), m: NewMachine(o), in: make(chan input, inputsMax),
		origin: time.Now(), writing: map[int]bool{}, noted: map[int]uint32{}}, nil
}

// uniqueName is one that no other process has, nor this one later.
func uniqueName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d/%d", host, os.Getpid(), time.Now().UnixNano())
}

// Run supervises until there is a verdict, which it returns, until all workers have ended of their own will (the zero verdict),
// or until the context ends. It never gives up on servers that are away.
func (s *Supervisor) Run(ctx context.Context) (plane.Verdict, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait.Wait()
	defer cancel()
	stop, err := s.listen(ctx)
	if err != nil {
		return plane.Verdict{}, err
	}
	defer stop()
	verdicts := make(chan plane.Verdict, 1)
	s.wait.Go(func() { s.until(ctx, s.p.WatchVerdict(ctx, func(v plane.Verdict) { verdicts <- v })) })
	s.wait.Go(func() { s.lead(ctx) })
	for w := range s.o.Workers {
		s.wait.Go(func() { s.until(ctx, s.watch(ctx, w)) })
	}
	return s.loop(ctx, verdicts)
}

// listen subscribes to what workers and agents say.
func (s *Supervisor) listen(ctx context.Context) (stop func(), err error) {
	beats, err := s.p.Beats(func(b plane.Beat) {
		s.tell(ctx, input{tell: func(now int64) { s.m.Heard(b, now) }})
	})
	if err != nil {
		return nil, err
	}
	exits, err := s.p.Exits(func(e plane.Exit) {
		s.tell(ctx, input{tell: func(now int64) { s.m.Exited(e, now) }, urgent: true})
	})
	if err != nil {
		beats()
		return nil, err
	}
	return func() { beats(); exits() }, nil
}

// tell queues an input. Who tells waits while the machine is behind.
func (s *Supervisor) tell(ctx context.Context, i input) {
	select {
	case s.in <- i:
	case <-ctx.Done():
	}
}

func (s *Supervisor) watch(ctx context.Context, worker int) error {
	return s.p.WatchRecord(ctx, worker, func(r plane.Record, rev plane.Revision) { s.saw(ctx, worker, r, rev) })
}

func (s *Supervisor) saw(ctx context.Context, worker int, r plane.Record, rev plane.Revision) {
	s.tell(ctx, input{urgent: true, tell: func(now int64) {
		s.m.Saw(worker, r, rev, now)
		s.note(ctx, worker, r)
	}})
}

// until logs a watch that has ended before its time: the plane was closed.
func (s *Supervisor) until(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.log.Warn("a watch has ended", zap.Error(err))
	}
}

// now is wall-clock time that does not jump.
func (s *Supervisor) now() int64 { return s.at(time.Now()) }

func (s *Supervisor) at(t time.Time) int64 { return s.origin.UnixNano() + int64(t.Sub(s.origin)) }

// loop is the only goroutine that touches the machine.
func (s *Supervisor) loop(ctx context.Context, verdicts <-chan plane.Verdict) (plane.Verdict, error) {
	tick := time.NewTicker(s.o.Interval / ticksABeat)
	defer tick.Stop()
	for {
		urgent := false
		select {
		case <-ctx.Done():
			return plane.Verdict{}, ctx.Err()
		case v := <-verdicts:
			s.m.EndRun()
			s.event(Event{Kind: Ended, Text: v.Why})
			return v, nil
		case i := <-s.in:
			i.tell(s.now())
			urgent = i.urgent
		case <-tick.C:
			s.drain()
			s.listenAgain()
			urgent = true
		}
		if !urgent {
			continue
		}
		if done := s.act(ctx, s.m.Tick(s.now())); done {
			return plane.Verdict{}, nil
		}
	}
}

// drain takes what has come before looking at the clock.
func (s *Supervisor) drain() {
	for {
		select {
		case i := <-s.in:
			i.tell(s.now())
		default:
			return
		}
	}
}

// listenAgain begins the watch anew after a time without a connection. Workers that were at the same server need a
// moment to find another.
func (s *Supervisor) listenAgain() {
	deaf := !s.p.Connected()
	if deaf || s.deaf {
		s.m.Forgive(s.now() + int64(recoverBeats*s.o.Interval))
	}
	s.deaf = deaf
}

// recoverBeats is how many heartbeats workers get to find a server again.
const recoverBeats = 6

// act does what the machine wants.
func (s *Supervisor) act(ctx context.Context, out Out) (done bool) {
	for _, a := range out.Alarms {
		s.event(Event{Kind: FalseAlarm, Worker: a.Worker, Text: fmt.Sprintf("incarnation %d of %s gave a sign of life after it was given up", a.Incarnation, s.o.Workers[a.Worker])})
		s.wait.Go(func() { s.until(ctx, s.p.FalseAlarm(ctx, a.Worker, a.Incarnation)) })
	}
	for _, w := range out.Mint {
		if !s.writing[w.Worker] {
			s.writing[w.Worker] = true
			s.wait.Go(func() { s.mint(ctx, w) })
		}
	}
	if v := out.Verdict; v != nil {
		s.wait.Go(func() { // the watch of the verdict ends the run
			_, err := s.p.Judge(ctx, *v)
			s.until(ctx, err)
		})
	}
	return out.Done
}

// mint tries to write a record for some time, and then looks at what lies there, whoever wrote it.
func (s *Supervisor) mint(ctx context.Context, w Wish) {
	try, cancel := context.WithTimeout(ctx, mintPatience)
	rev, err := s.p.Mint(try, w.Worker, w.Record, w.After)
	cancel()
	if err != nil && !errors.Is(err, plane.ErrConflict) && ctx.Err() == nil {
		s.log.Warn("a restart waits for the control plane", zap.Int("worker", w.Worker), zap.Error(err))
	}
	r, at, look := s.p.Record(ctx, w.Worker)
	if errors.Is(look, plane.ErrMissing) {
		look = nil
	}
	won := err == nil && at == rev
	s.tell(ctx, input{urgent: true, tell: func(now int64) {
		delete(s.writing, w.Worker)
		if look == nil {
			s.m.Saw(w.Worker, r, at, now)
			s.note(ctx, w.Worker, r)
		}
		if won {
			s.event(Event{Kind: Minted, Worker: w.Worker, Record: r, Rev: rev})
		}
	}})
}

// note keeps a restart. Every supervisor does, since the one that wrote the record may not live to do it.
func (s *Supervisor) note(ctx context.Context, worker int, r plane.Record) {
	if r.Cause != plane.Begun && r.Incarnation > s.noted[worker] {
		s.noted[worker] = r.Incarnation
		s.wait.Go(func() { s.until(ctx, s.p.Note(ctx, plane.Restart{Worker: worker, Record: r})) })
	}
}

func (s *Supervisor) event(e Event) {
	s.log.Info(string(e.Kind), zap.Int("worker", e.Worker), zap.String("text", e.Text), zap.Stringer("record", e.Record))
	if s.o.Event != nil {
		s.o.Event(e)
	}
}
