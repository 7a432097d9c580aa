package actors

import (
	"runtime"
	"sync/atomic"
	"time"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
)

// desk is one OS thread for the turns of all programs, one after the other, so that a clock of that thread measures their
// computing and nothing else: neither links nor the collector of garbage, which would else run in the middle of a turn. A turn
// waits for nobody, so none waits here for ever.
type desk struct {
	work  chan func()
	clock func() time.Duration
	spent *atomic.Int64 // nanoseconds
	since time.Duration // the turn that computes is counted up to here; for the thread
}

// newDesk is the thread of a job that wants its computing measured, until gone is closed and no turn is to come; nil: the job
// does not want it.
func newDesk(clock func() time.Duration, spent *atomic.Int64, gone <-chan struct{}) *desk {
	if clock == nil {
		return nil
	}
	d := &desk{work: make(chan func()), clock: clock, spent: spent}
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with this
		for {
			select {
			case f := <-d.work:
				f()
			case <-gone:
				return
			}
		}
	}()
	return d
}

// do runs f on the thread and waits for it. What f panics with, its caller panics with.
func (d *desk) do(f func()) {
	if d == nil {
		f()
		return
	}
	done := make(chan any)
	d.work <- func() {
		defer func() { done <- recover() }()
		f()
	}
	if v := <-done; v != nil {
		panic(v)
	}
}

// routine is a program that has not begun. A coroutine belongs to the thread it is made on.
func (d *desk) routine(self collective.Place, p nn.Program, code func(nn.Comm)) (r *collective.Routine) {
	d.do(func() { r = collective.NewRoutine(self, p, code) })
	return r
}

// resume is a turn of a program, measured.
func (d *desk) resume(r *collective.Routine, reply any) (q collective.Request) {
	d.do(func() {
		d.since = d.clock()
		q = r.Resume(reply)
		d.count()
	})
	return q
}

// emitter is emit for programs: what a turn has cost is counted before it tells of something.
func (d *desk) emitter(emit func(messages.Event)) func(messages.Event) {
	if d == nil {
		return emit
	}
	return func(e messages.Event) {
		d.count()
		emit(e)
	}
}

// count adds what the turn has computed so far. For the thread, in a turn.
func (d *desk) count() {
	now := d.clock()
	d.spent.Add(int64(now - d.since))
	d.since = now
}
