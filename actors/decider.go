package actors

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// who is what the supervision knows about an actor.
type who struct {
	path string // "run/stage.0/rank.3/tp"
	rank int    // -1: not of one rank
	part string // "shell tp"
	life life
}

// props are those of every actor of a run: own decider for its children, own middleware around it.
func (r *run) props(w who, produce func() actor.Actor, more ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(produce, append(more, actor.WithSupervisor(decider{r}), actor.WithDispatcher(&r.workers), actor.WithReceiverMiddleware(r.guard(w)))...)
}

// guard keeps what the runtime loses when a shell panics: the message and the stack. In messages whose failure the
// runtime does not supervise (it would leave a half-stopped actor that its parent waits for, for ever) the panic
// ends here and is reported.
func (r *run) guard(w who) actor.ReceiverMiddleware {
	return func(next actor.ReceiverFunc) actor.ReceiverFunc {
		return func(ctx actor.ReceiverContext, env *actor.MessageEnvelope) {
			defer r.leave(w, env.Message)
			if r.job.trap != nil {
				r.job.trap(w, env.Message)
			}
			next(ctx, env)
		}
	}
}

// leave is the deferred end of a shell's turn.
func (r *run) leave(w who, message any) {
	v := recover()
	if _, last := message.(*actor.Stopped); last && w.path == supervisorName {
		defer close(r.gone)
	}
	if v == nil {
		return
	}
	stack := debug.Stack()
	err := &ShellError{Actor: w.path, Message: describe(message), Cause: panicked(v, stack), Stack: stack}
	failure := error(err)
	if w.rank >= 0 {
		failure = &RankError{Place: r.place(w.rank), Part: w.part, Cause: err, Stack: stack}
	}
	switch message.(type) {
	case *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
		r.fail(failure)
		return
	}
	if e, ok := failure.(*RankError); ok && w.life.keeper != nil {
		panic(&shellDeath{e, w.life})
	}
	panic(failure) // to the decider of the parent
}

// describe is a message in one line.
func describe(message any) string {
	if s, ok := message.(fmt.Stringer); ok {
		if _, system := message.(actor.SystemMessage); !system {
			return s.String()
		}
	}
	return fmt.Sprintf("%T", message)
}

// decider is the supervision strategy of the whole tree, the guardian of the root included: a failed shell ends the
// run. It is stopped, not restarted: its state is gone, and the default would restart it silently ten times.
type decider struct{ r *run }

// HandleFailure implements actor.SupervisorStrategy.
func (d decider) HandleFailure(_ *actor.ActorSystem, parent actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, message any) {
	if e, ok := reason.(*shellDeath); ok {
		d.r.lost(e.life, e.RankError)
		parent.StopChildren(child)
		return
	}
	err, ok := reason.(error)
	if !ok {
		err = &ShellError{Actor: child.Id, Message: describe(message), Cause: &PanicError{Value: reason}}
	}
	d.r.fail(err)
	parent.StopChildren(child)
}

// quietly configures protoactor: its log is ours to write, and a dead letter after the end is nothing.
func quietly() *actor.Config {
	return actor.Configure(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond), // a goroutine sleeps that long after one
	)
}
