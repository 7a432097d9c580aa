package run

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"phalanx/actors"
)

// gate lets ranks pass from step to step until somebody asks for an end. All of them then finish the step that the
// furthest one has begun, so that none waits for another in a step that this one does not begin. It serves the ranks of
// one process.
type gate struct {
	mu     sync.Mutex
	begun  int // steps begun by the furthest rank
	closed bool
	end    int // steps to be done
}

// stops says whether step i (from 0) is not to begin.
func (g *gate) stops(i int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return i >= g.end
	}
	g.begun = max(g.begun, i+1)
	return false
}

// close lets no new step begin.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed, g.end = true, g.begun
	}
}

// endAt is the end that several processes have agreed upon.
func (g *gate) endAt(steps int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.end = true, steps
}

// stopped is the number of steps done by a run that was asked to end, and whether it was.
func (g *gate) stopped() (steps int, asked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end, g.closed
}

// errStop is the cause of an end that Options.Stop asked for.
var errStop = errors.New("asked to stop")

// stoppable listens to Options.Stop: a run that saves finishes its step, saves and ends; another ends at once. The
// returned function ends the listening.
func (j *job) stoppable(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-done:
		case <-j.o.Stop: // a nil channel is never ready
			switch {
			case j.saveDir() == "":
				cancel(errStop)
			case j.launched != nil:
				j.launched.ask()
			default:
				j.gate.close()
			}
		}
	}()
	return ctx, func() {
		close(done)
		<-heard
		cancel(nil)
	}
}

// cutShort is the error of a run that ended early because it was asked to; nil if it ran to its end or failed before.
func (j *job) cutShort(err error) error {
	steps, asked := j.gate.stopped()
	if err != nil || !asked || steps >= j.s.Train.TrainIters {
		return nil
	}
	return fmt.Errorf("%w: stopped after step %d of %d", actors.ErrInterrupted, steps, j.s.Train.TrainIters)
}
