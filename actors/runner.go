package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
)

// portValuesMax bounds the values that wait in a program for their Recv: an MTP depth may be a few microbatches of a
// few values behind; a program that sends without end would fill the memory.
const portValuesMax = 4096

// runner drives one program: the Rank's is program 0, a Depth's is its own.
type runner struct {
	run     *run
	place   collective.Place
	name    string // in reports: "rank 3 (tp 1) program mtp.2"
	routine *collective.Routine
	member
	pending collective.Request
	ports   collective.Ports
}

// member is the rank that a program is of.
type member struct {
	rank     int
	life     life
	programs []*actor.PID // by program
	groups   []*actor.PID // by axis; nil: not split
}

func newRunner(r *run, of member, p nn.Program, code func(nn.Comm)) *runner {
	place := r.place(of.rank)
	return &runner{run: r, place: place, name: fmt.Sprintf("%s program %s", place, collective.ProgramName(p)),
		routine: r.desk.routine(place, p, code), member: of}
}

// resume is a turn: the program computes until it must wait for something that is not there.
func (w *runner) resume(ctx actor.Context, reply any) {
	defer w.run.turnBegan(w.name)()
	for {
		w.pending = w.run.timed(w.place.Rank, w.routine, reply)
		if !w.post(ctx, w.routine.Outbox()) {
			return
		}
		var more bool
		if reply, more = w.serve(ctx); !more {
			return
		}
	}
}

// timed is one turn of a routine, its time added to the job's.
func (r *run) timed(rank int, routine *collective.Routine, reply any) collective.Request {
	if r.job.Part != nil {
		defer func(began time.Time) { r.computed[rank].Add(int64(time.Since(began))) }(time.Now())
	}
	if r.desk != nil {
		return r.desk.resume(routine, reply)
	}
	if r.job.Compute != nil {
		defer func(began time.Time) { r.job.Compute.Add(int64(time.Since(began))) }(time.Now())
	}
	return routine.Resume(reply)
}

// serve acts on the pending request; more says that its reply is there already.
func (w *runner) serve(ctx actor.Context) (reply any, more bool) {
	switch q := w.pending.(type) {
	case collective.Collective:
		ctx.Send(w.groups[q.Op.Axis], begin{program: w.routine.Program(), op: q.Op, from: ctx.Self()})
	case collective.Receive:
		if int(q.From) >= len(w.programs) {
			w.fail(ctx, fmt.Errorf("%s, but there are only programs 0 to %d", q, len(w.programs)-1), nil)
			return nil, false
		}
		return w.ports.Take(q)
	case collective.Done:
		ctx.Send(w.programs[0], ended{w.routine.Program()})
	case collective.Panicked:
		w.fail(ctx, panicked(q.Value, q.Stack), q.Stack)
	case collective.Stopped: // the run is over
	}
	return nil, false
}

// post hands the sent values to their programs; false if one has no such address.
func (w *runner) post(ctx actor.Context, out []collective.Sent) bool {
	for _, s := range out {
		if int(s.To) >= len(w.programs) {
			w.fail(ctx, fmt.Errorf("%s, but there are only programs 0 to %d", s, len(w.programs)-1), nil)
			return false
		}
		v := value{w.routine.Program(), s}
		if s.To == w.routine.Program() {
			w.keep(ctx, v)
			continue
		}
		ctx.Send(w.programs[s.To], v)
	}
	return true
}

// keep stores a value until it is asked for.
func (w *runner) keep(ctx actor.Context, m value) bool {
	if n := w.ports.Len(); n >= portValuesMax {
		w.fail(ctx, fmt.Errorf("%d values wait in %s and %s came on top: it does not receive what it is sent", n, w.name, m), nil)
		return false
	}
	w.ports.Put(m.from, m.sent)
	return true
}

// receive is what Rank and Depth have in common; false if the message is none of it.
func (w *runner) receive(ctx actor.Context) bool {
	switch m := ctx.Message().(type) {
	case value:
		if !w.keep(ctx, m) {
			return true
		}
		if q, waits := w.pending.(collective.Receive); waits {
			if v, there := w.ports.Take(q); there {
				w.resume(ctx, v)
			}
		}
	case completed:
		q, waits := w.pending.(collective.Collective)
		if !waits || q.Op != m.op {
			panic(fmt.Sprintf("%s waits for %v and got %s", w.name, w.pending, m))
		}
		w.resume(ctx, nil)
	case *actor.Stopping:
		w.run.desk.do(w.routine.Stop)
	default:
		return false
	}
	return true
}

// answer says where the program stands.
func (w *runner) answer(ctx actor.Context, m ask, parts int) {
	ctx.Send(m.to, programAnswer{round: m.round, status: w.routine.Status(), parts: parts})
}

// fail reports a failure of this program.
func (w *runner) fail(ctx actor.Context, cause error, stack []byte) {
	w.run.lost(w.life, &RankError{Place: w.place, Part: "program " + collective.ProgramName(w.routine.Program()), Site: w.routine.Site(), Cause: cause, Stack: stack})
}

// emitter reports events of a rank to its stage.
func (r *run) emitter(rank int) func(messages.Event) {
	stage := r.system.NewLocalPID(r.stagePath(r.stageOf(rank)))
	return func(e messages.Event) { r.system.Root.Send(stage, report{rank, e}) }
}
