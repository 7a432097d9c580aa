// Package inproc runs all programs of all ranks of a job to their end in one goroutine: no clock, no transport, no
// goroutine of its own. Which message or program goes next is drawn from a seed, so that interleavings vary and any of
// them can be had again. It is for tests, and what a simulator grows from.
package inproc

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
)

// turnsMax bounds a run: programs that exchange for ever are a bug, and a test job takes far fewer turns.
const turnsMax = 1 << 26

// Options say how a job is run. The zero value is an order of its own, without an observer.
type Options struct {
	Seed uint64 // of the order in which messages arrive and programs go on
	// Overtake lets messages of one edge and channel overtake each other, as over a transport without order.
	Overtake bool
	// Sent is shown every message as it leaves. It must not keep or change the payload. Nil: nobody looks.
	Sent func(messages.Header, []byte)
}

// Run runs programs(rank) of every rank of a mesh until all have returned. The error is a *PanicError, one of
// package collective's, a *DeadlockError or a *LeftoverError; the other programs are unwound then.
func Run(sizes mesh.Sizes, programs func(rank int) []func(nn.Comm), o Options) error {
	j := newJob(sizes, programs, o)
	defer j.stop()
	return j.run(turnsMax)
}

// node is one program of one rank.
type node struct {
	rank    int
	program nn.Program
}

func (n node) String() string {
	return fmt.Sprintf("rank %d program %s", n.rank, collective.ProgramName(n.program))
}

// edge is a queue of messages: one channel from one rank to another.
type edge struct {
	src, dst, channel uint16
}

// port is a queue of values between two programs of a rank.
type port struct {
	to   node
	from nn.Program
	name string
}

// wake is a program that can go on, and the reply it waits for.
type wake struct {
	n     node
	reply any
}

// job is a run.
type job struct {
	o        Options
	rng      *rand.Rand
	nodes    []node // in rank and program order
	groups   map[groupKey]*collective.Group
	routines map[node]*collective.Routine
	pending  map[node]collective.Request
	ports    map[port][]any
	ready    []wake
	edges    []edge // those with messages
	queues   map[edge][]collective.Outgoing
	err      error
	sent     int
	read     int
}

type groupKey struct {
	rank int
	axis mesh.Axis
}

func newJob(sizes mesh.Sizes, programs func(rank int) []func(nn.Comm), o Options) *job {
	j := &job{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), groups: map[groupKey]*collective.Group{}, routines: map[node]*collective.Routine{},
		pending: map[node]collective.Request{}, ports: map[port][]any{}, queues: map[edge][]collective.Outgoing{}}
	for rank := range sizes.World() {
		place := collective.Place{Rank: rank, Sizes: sizes}
		for _, a := range mesh.Axes() {
			if sizes.Of(a) > 1 {
				j.groups[groupKey{rank, a}] = collective.NewGroup(place, a)
			}
		}
		for i, code := range programs(rank) {
			if code == nil {
				continue
			}
			n := node{rank, nn.Program(i)}
			j.nodes = append(j.nodes, n)
			j.routines[n] = collective.NewRoutine(place, n.program, code)
			j.ready = append(j.ready, wake{n, nil})
		}
	}
	return j
}

// run takes turns until nothing can go on.
func (j *job) run(most int) error {
	for turns := 0; j.err == nil && len(j.ready)+len(j.edges) > 0; turns++ {
		if turns == most {
			return fmt.Errorf("inproc: no end after %d turns: the programs exchange for ever", most)
		}
		j.turn()
	}
	if j.err != nil {
		return j.err
	}
	return j.ended()
}

// turn lets one program go on, or delivers one message.
func (j *job) turn() {
	i := j.rng.IntN(len(j.ready) + len(j.edges))
	if i < len(j.ready) {
		w := j.ready[i]
		j.ready = remove(j.ready, i)
		j.resume(w)
		return
	}
	j.deliver(i - len(j.ready))
}

// remove takes element i out; order does not matter, since the next choice is drawn.
func remove[E any](s []E, i int) []E {
	s[i] = s[len(s)-1]
	return s[:len(s)-1]
}

func (j *job) resume(w wake) {
	r := j.routines[w.n]
	q := r.Resume(w.reply)
	j.pending[w.n] = q
	for _, s := range r.Outbox() {
		to := node{w.n.rank, s.To}
		if j.routines[to] == nil {
			j.fail(fmt.Errorf("inproc: %s sends %q to %s, which does not exist", w.n, s.Name, to))
			return
		}
		p := port{to, w.n.program, s.Name}
		j.ports[p] = append(j.ports[p], s.V)
		j.answer(to)
	}
	switch q := q.(type) {
	case collective.Collective:
		g := j.groups[groupKey{w.n.rank, q.Op.Axis}]
		out, done, err := g.Begin(w.n.program, q.Op)
		j.took(g)
		j.send(out)
		if done != nil {
			j.completed(w.n.rank, *done)
		}
		j.fail(err)
	case collective.Receive:
		j.answer(w.n)
	case collective.Panicked:
		j.fail(&PanicError{Rank: w.n.rank, Program: w.n.program, Site: q.Site, Value: q.Value, Stack: q.Stack})
	}
}

// answer gives a waiting program its value, if it is there.
func (j *job) answer(n node) {
	q, waits := j.pending[n].(collective.Receive)
	if !waits {
		return
	}
	p := port{n, q.From, q.Name}
	if values := j.ports[p]; len(values) > 0 {
		j.pending[n] = nil
		j.ports[p] = values[1:]
		j.ready = append(j.ready, wake{n, values[0]})
	}
}

func (j *job) send(out []collective.Outgoing) {
	for _, m := range out {
		if j.o.Sent != nil {
			j.o.Sent(m.Header, m.Payload)
		}
		e := edge{m.Header.Src, m.Header.Dst, m.Header.Chan}
		if len(j.queues[e]) == 0 {
			j.edges = append(j.edges, e)
		}
		j.queues[e] = append(j.queues[e], m)
		j.sent++
	}
}

// deliver takes a message from edge i.
func (j *job) deliver(i int) {
	e := j.edges[i]
	q := j.queues[e]
	at := 0
	if j.o.Overtake {
		at = j.rng.IntN(len(q))
	}
	m := q[at]
	j.queues[e] = slices.Delete(q, at, at+1)
	if len(q) == 1 {
		j.edges = remove(j.edges, i)
	}
	g := j.groups[groupKey{int(e.dst), mesh.Axis(e.channel >> 8)}]
	out, done, err := g.Deliver(m.Header, m.Payload)
	j.took(g)
	j.send(out)
	for _, d := range done {
		j.completed(int(e.dst), d)
	}
	j.fail(err)
}

// completed lets a program go on whose operation is done.
func (j *job) completed(rank int, d collective.Completion) {
	n := node{rank, d.Program}
	j.pending[n] = nil
	j.ready = append(j.ready, wake{n, nil})
}

// took takes read payloads back. They are overwritten first: whoever still reads one reads nonsense.
func (j *job) took(g *collective.Group) {
	for _, m := range g.Released() {
		j.read++
		for i := range m.Payload {
			m.Payload[i] = 0x55
		}
		g.Recycle(m.Payload)
	}
}

func (j *job) fail(err error) {
	if j.err == nil && err != nil {
		j.err = err
	}
}

// stop unwinds what has not ended.
func (j *job) stop() {
	for _, n := range j.nodes {
		j.routines[n].Stop()
	}
}
