package collective

import (
	"fmt"
	"iter"
	"runtime/debug"

	"phalanx/nn"
)

// Request is why a program gave control back.
type Request interface {
	// String is one line.
	String() string
}

// Collective asks for one operation; the program owns Op.In and Op.Out again when it is resumed (reply: nil).
type Collective struct{ Op *nn.Op }

// Receive asks for the next value of that name from a program of this rank (reply: the value).
type Receive struct {
	From nn.Program
	Name string
}

// Done says that the program has returned.
type Done struct{}

// Stopped says that the program was unwound because its rank stops.
type Stopped struct{}

// Panicked says that the program failed. Site is that of its last operation; Site.Phase is 0 before the first one.
type Panicked struct {
	Value any
	Stack []byte
	Site  nn.Site
}

func (q Collective) String() string { return "collective " + q.Op.String() }
func (q Receive) String() string {
	return fmt.Sprintf("receive %q from %s", q.Name, ProgramName(q.From))
}
func (Done) String() string       { return "done" }
func (Stopped) String() string    { return "stopped" }
func (q Panicked) String() string { return fmt.Sprintf("panicked at %s: %v", q.Site, q.Value) }

// Sent is a value that a program handed to another program of its rank.
type Sent struct {
	To   nn.Program
	Name string
	V    any
}

func (s Sent) String() string { return fmt.Sprintf("send %q to %s", s.Name, ProgramName(s.To)) }

// Routine is one program as a coroutine. It is for one goroutine at a time: that of the actor whose turn it is.
type Routine struct {
	place   Place
	program nn.Program
	rank    *Rank // that it is a program of; nil: it is driven by itself
	code    func(nn.Comm)

	next func() (Request, bool)
	stop func()

	yield    func(Request) bool
	reply    any
	outbox   []Sent
	pending  Request // why it is suspended; nil before the first turn
	final    Request // Done, Stopped or Panicked; nil until then
	site     nn.Site
	progress uint64
	stopping bool
	unwound  bool // the sentinel has been thrown once
}

// NewRoutine is a program that has not begun: the first Resume starts it.
func NewRoutine(self Place, p nn.Program, code func(nn.Comm)) *Routine {
	r := &Routine{place: self, program: p, code: code}
	r.next, r.stop = iter.Pull(r.run)
	return r
}

// Resume runs the program until it suspends or ends. reply answers the request of the last suspension. Once the
// program has ended, it returns that end again.
func (r *Routine) Resume(reply any) (q Request) {
	if r.final != nil {
		return r.final
	}
	defer r.escaped(&q)
	r.reply, r.pending = reply, nil
	q, suspended := r.next()
	if !suspended {
		return r.final
	}
	r.pending = q
	return q
}

// Outbox takes what the program has sent since the last call.
func (r *Routine) Outbox() []Sent {
	out := r.outbox
	r.outbox = nil
	return out
}

// Stop unwinds a suspended program: its deferred functions run, nothing else of it does. Safe to call again.
func (r *Routine) Stop() {
	var q Request
	defer r.escaped(&q)
	r.stopping = true
	r.stop()
	if r.final == nil {
		r.final = Stopped{} // it never began
	}
}

// Program is which program of the rank this is.
func (r *Routine) Program() nn.Program { return r.program }

// Site is the site of the last operation.
func (r *Routine) Site() nn.Site { return r.site }

// run is the body of the coroutine. It ends in final, whatever the program does: a panic is kept here, where its
// stack still exists (iter.Pull hands on the value only).
func (r *Routine) run(yield func(Request) bool) {
	r.yield = yield
	returned := false
	defer func() {
		v := recover()
		goexit := v == nil && !returned
		switch {
		case r.stopping:
			r.final = Stopped{}
		case goexit:
			r.final = Panicked{Value: errGoexit, Stack: debug.Stack(), Site: r.site}
		case v != nil:
			r.final = Panicked{Value: v, Stack: debug.Stack(), Site: r.site}
		default:
			r.final = Done{}
		}
		if goexit {
			panic(errGoexit) // iter.Pull would end the goroutine that resumed us; a panic it hands on, see escaped
		}
	}()
	r.code(comm{r})
	returned = true
}

// errGoexit is the cause when a program ends its goroutine, as testing.T.FailNow does.
var errGoexit = fmt.Errorf("the program called runtime.Goexit (testing's FailNow does): a program ends by returning or by panic")

// escaped turns what run lets through iter.Pull into the final request.
func (r *Routine) escaped(q *Request) {
	if v := recover(); v != nil {
		if v != errGoexit {
			panic(v)
		}
		*q = r.final
	}
}
