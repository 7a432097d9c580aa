package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/recovery"
)

// ErrOrphaned says that the agent of a worker's host has gone.
var ErrOrphaned = errors.New("the agent that started this worker gives no sign of life")

const (
	beatEveryDefault   = 100 * time.Millisecond
	orphanAfterDefault = 30 * time.Second
)

// WorkerOptions say who a worker is. Report and Fenced are called from goroutines of their own.
type WorkerOptions struct {
	Worker      int
	Incarnation uint32
	Host        string
	Every       time.Duration // between heartbeats; default 100 ms
	// Report fills in what the ranks do. It must not wait for what computes.
	Report func() (ranks []RankBeat, rssBytes uint64)
	// Alarms are those of this process so far; nil: none.
	Alarms func() []string
	// Links are what links have healed; nil: nobody says.
	Links func() Links
	// Claim is what there is to say to the end that was heard of; nil: nothing.
	Claim func() recovery.Claim
	// Fenced is called once, when this life is over: a later incarnation exists (ErrFenced), or there is no agent any more
	// (ErrOrphaned). The process should end then, and need not hurry: nothing that lasts is taken from it.
	Fenced func(error)
	// OrphanAfter is how long the agent may be silent while there is a connection; default 30 s.
	OrphanAfter time.Duration
}

// Worker is the worker's side of the control plane: it sends heartbeats and learns that it has been replaced.
type Worker struct {
	p      *Plane
	o      WorkerOptions
	record Record
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	once   sync.Once

	mu    sync.Mutex
	pulse time.Time // last sign of the agent
}

// Work begins as an incarnation of a worker. It waits until the record of it can be read; ErrFenced: a later one exists.
func (p *Plane) Work(ctx context.Context, o WorkerOptions) (*Worker, error) {
	if o.Every <= 0 {
		o.Every = beatEveryDefault
	}
	if o.OrphanAfter <= 0 {
		o.OrphanAfter = orphanAfterDefault
	}
	w := &Worker{p: p, o: o, pulse: time.Now()}
	var err error
	if w.record, err = w.own(ctx); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	stop, err := p.Pulses(w.heard)
	if err != nil {
		w.cancel()
		return nil, err
	}
	context.AfterFunc(w.ctx, stop)
	w.wait.Go(w.beats)
	w.wait.Go(w.watch)
	return w, nil
}

// own waits for the worker's own record.
func (w *Worker) own(ctx context.Context) (own Record, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := false
	err = w.p.WatchRecord(ctx, w.o.Worker, func(r Record, _ Revision) {
		if r.Incarnation >= w.o.Incarnation {
			own, found = r, true
			cancel()
		}
	})
	switch {
	case !found:
		return own, err
	case own.Incarnation > w.o.Incarnation:
		return own, w.fencedBy(own)
	}
	return own, nil
}

func (w *Worker) fencedBy(r Record) error {
	return fmt.Errorf("plane: worker %d: %w: found incarnation %d, ours is %d", w.o.Worker, ErrFenced, r.Incarnation, w.o.Incarnation)
}

// Record is that of this life: why the one before ended, and when this one was decided.
func (w *Worker) Record() Record { return w.record }

// Check says whether this is still the newest life; ErrFenced: no. To be asked before an effect that lasts.
func (w *Worker) Check(ctx context.Context) error {
	r, _, err := w.p.Record(ctx, w.o.Worker)
	switch {
	case errors.Is(err, ErrMissing): // a server that has lost its files says nothing against us
		return nil
	case err != nil:
		return err
	case r.Incarnation > w.o.Incarnation:
		return w.fencedBy(r)
	}
	return nil
}

// Beat sends a heartbeat now, beside those of the clock.
func (w *Worker) Beat() {
	ranks, rss := w.o.Report()
	var alarms []string
	if w.o.Alarms != nil {
		alarms = w.o.Alarms()
	}
	var links Links
	if w.o.Links != nil {
		links = w.o.Links()
	}
	var claim recovery.Claim
	if w.o.Claim != nil {
		claim = w.o.Claim()
	}
	w.p.Beat(Beat{Alarms: alarms, Links: links, Claim: claim, Worker: w.o.Worker, Incarnation: w.o.Incarnation, PID: os.Getpid(), RSSBytes: rss, Ranks: ranks})
}

// Close ends heartbeats and watching.
func (w *Worker) Close() {
	w.cancel()
	w.wait.Wait()
}

func (w *Worker) beats() {
	tick := time.NewTicker(w.o.Every)
	defer tick.Stop()
	for {
		w.Beat()
		w.orphan()
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Worker) watch() {
	err := w.p.WatchRecord(w.ctx, w.o.Worker, func(r Record, _ Revision) {
		if r.Incarnation > w.o.Incarnation {
			w.fence(w.fencedBy(r))
		}
	})
	if err != nil && w.ctx.Err() == nil {
		w.p.log.Warn("no longer watching for a later life", zap.Error(err))
	}
}

func (w *Worker) heard(pulse Pulse) {
	if pulse.Host != w.o.Host {
		return
	}
	w.mu.Lock()
	w.pulse = time.Now()
	w.mu.Unlock()
}

// orphan gives up when the agent has been silent for long. Without a connection nobody can be heard.
func (w *Worker) orphan() {
	w.mu.Lock()
	if !w.p.Connected() {
		w.pulse = time.Now()
	}
	silent := time.Since(w.pulse)
	w.mu.Unlock()
	if silent > w.o.OrphanAfter {
		w.fence(fmt.Errorf("plane: worker %d: %w for %v", w.o.Worker, ErrOrphaned, silent.Round(time.Second)))
	}
}

// fence tells once, beside the caller: whoever is told may close the worker.
func (w *Worker) fence(err error) {
	w.once.Do(func() {
		if w.o.Fenced != nil {
			go w.o.Fenced(err)
		}
	})
}
