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

// Process is a worker that runs.
type Process interface {
	PID() int
	// Kill ends it, and everything in its process group, even if it is stopped. It returns at once.
	Kill() error
	// Wait waits until it has ended, once. Worker, incarnation and host of the exit are the caller's to fill in.
	Wait() plane.Exit
}

// AgentOptions say what an agent runs.
type AgentOptions struct {
	Host    string // as records name it
	Workers []int
	// Start starts a process.
	Start func(worker int, incarnation uint32) (Process, error)
	// Started and Exited tell what happens, from goroutines of the agent; nil: nobody asks.
	Started func(worker int, incarnation uint32, pid int)
	Exited  func(plane.Exit)
	Logger  *zap.Logger
}

// Agent makes the processes of one host what the records say. It is their parent.
type Agent struct {
	p    *plane.Plane
	o    AgentOptions
	log  *zap.Logger
	wait sync.WaitGroup
}

const (
	exitRepeat  = 200 * time.Millisecond // exits may be lost on their way
	pulseEvery  = time.Second
	reapWarning = 5 * time.Second // after SIGKILL a process ends at once, unless its disk hangs
	reapMax     = 20 * time.Second
)

// NewAgent is an agent that has not begun.
func NewAgent(p *plane.Plane, o AgentOptions) (*Agent, error) {
	if o.Start == nil || o.Host == "" {
		return nil, errors.New("supervise: an agent needs Host and Start")
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Agent{p: p, o: o, log: o.Logger.With(zap.String("agent", o.Host))}, nil
}

// Run follows the records until the context ends, and then kills what runs and waits for it. The error names processes that
// did not end.
func (a *Agent) Run(ctx context.Context) error {
	errs := make([]error, len(a.o.Workers))
	for i, w := range a.o.Workers {
		a.wait.Go(func() { errs[i] = a.keep(ctx, w) })
	}
	a.wait.Go(func() { a.pulse(ctx) })
	a.wait.Wait()
	return errors.Join(errs...)
}

func (a *Agent) pulse(ctx context.Context) {
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for {
		a.p.Pulse(a.o.Host)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lodger is a worker on this host.
type lodger struct {
	a       *Agent
	worker  int
	newest  uint32          // incarnation that was started, or tried
	process Process         // nil: none runs
	gone    chan plane.Exit // of process
	last    *plane.Exit     // to be told again until the record goes on
}

// keep follows the record of a worker.
func (a *Agent) keep(ctx context.Context, worker int) error {
	records := make(chan plane.Record, 1)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	a.wait.Go(func() {
		err := a.p.WatchRecord(watching, worker, func(r plane.Record, _ plane.Revision) {
			select {
			case records <- r:
			case <-watching.Done():
			}
		})
		if err != nil && watching.Err() == nil {
			a.log.Error("an agent is blind", zap.Error(err))
		}
	})
	l := &lodger{a: a, worker: worker}
	again := time.NewTicker(exitRepeat)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.end()
		case r := <-records:
			l.follow(ctx, r)
		case e := <-l.gone:
			l.exited(e)
		case <-again.C:
			if l.last != nil {
				a.p.Exit(*l.last)
			}
		}
	}
}

// follow makes the process that of a record. The one before is gone before the next begins.
func (l *lodger) follow(ctx context.Context, r plane.Record) {
	if r.Incarnation <= l.newest {
		return
	}
	if err := l.end(); err != nil { // the next record will come, since this life gives no sign
		l.a.log.Error("no new life beside an old one", zap.Error(err))
		return
	}
	l.newest, l.last = r.Incarnation, nil
	if r.Host != l.a.o.Host || ctx.Err() != nil {
		return
	}
	p, err := l.a.o.Start(l.worker, r.Incarnation)
	if err != nil {
		l.exited(plane.Exit{Code: startFailed, AtNs: time.Now().UnixNano(), Words: &plane.Words{Cause: plane.Exited, Text: "the process does not start: " + err.Error()}})
		return
	}
	l.process, l.gone = p, make(chan plane.Exit, 1)
	go func(gone chan<- plane.Exit) { gone <- p.Wait() }(l.gone)
	l.a.log.Info("started", zap.Int("worker", l.worker), zap.Uint32("incarnation", r.Incarnation), zap.Int("pid", p.PID()))
	if l.a.o.Started != nil {
		l.a.o.Started(l.worker, r.Incarnation, p.PID())
	}
}

// startFailed is the exit code of a process that there never was, as a shell has it.
const startFailed = 127

// end kills the process and waits until it is gone.
func (l *lodger) end() error {
	if l.process == nil {
		return nil
	}
	if err := l.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		l.a.log.Warn("a process is hard to kill", zap.Int("worker", l.worker), zap.Error(err))
	}
	warn, give := time.NewTimer(reapWarning), time.NewTimer(reapMax)
	defer warn.Stop()
	defer give.Stop()
	for {
		select {
		case e := <-l.gone:
			l.exited(e)
			return nil
		case <-warn.C:
			l.a.log.Warn("a killed process does not end", zap.Int("worker", l.worker), zap.Int("pid", l.process.PID()))
		case <-give.C:
			return fmt.Errorf("supervise: worker %d, process %d, was killed and has not ended after %v", l.worker, l.process.PID(), reapMax)
		}
	}
}

// exited tells of an exit.
func (l *lodger) exited(e plane.Exit) {
	e.Worker, e.Incarnation, e.Host = l.worker, l.newest, l.a.o.Host
	if l.process != nil {
		e.PID = l.process.PID()
	}
	l.process, l.gone, l.last = nil, nil, &e
	l.a.p.Exit(e)
	l.a.log.Info(e.String(), zap.Any("words", e.Words))
	if l.a.o.Exited != nil {
		l.a.o.Exited(e)
	}
}
