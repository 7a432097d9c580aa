// Package inproc runs all programs of all ranks of a job to their end in one goroutine: no clock, no transport, no
// goroutine of its own. Which message or program goes next is drawn from a seed, so that interleavings vary and any of
// them can be had again. It is for tests, and for what shows or counts
// the messages of a job.
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

// job is a run.
type job struct {
	o      Options
	rng    *rand.Rand
	ranks  []*collective.Rank
	ready  []node // programs that can go on
	edges  []edge // those with messages
	queues map[edge][]collective.Outgoing
	err    error
	sent   int
	read   int
}

func newJob(sizes mesh.Sizes, programs func(rank int) []func(nn.Comm), o Options) *job {
	j := &job{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), queues: map[edge][]collective.Outgoing{}}
	for rank := range sizes.World() {
		r := collective.NewRank(collective.Place{Rank: rank, Sizes: sizes}, programs(rank))
		j.ranks = append(j.ranks, r)
		j.wake(rank, r.Programs())
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
		n := j.ready[i]
		j.ready = remove(j.ready, i)
		j.resume(n)
		return
	}
	j.deliver(i - len(j.ready))
}

// remove takes element i out; order does not matter, since the next choice is drawn.
func remove[E any](s []E, i int) []E {
	s[i] = s[len(s)-1]
	return s[:len(s)-1]
}

func (j *job) resume(n node) {
	q, fx, err := j.ranks[n.rank].Resume(n.program)
	if q, failed := q.(collective.Panicked); failed {
		err = &PanicError{Rank: n.rank, Program: n.program, Site: q.Site, Value: q.Value, Stack: q.Stack}
	}
	j.do(n.rank, fx, err)
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
	rank := int(e.dst)
	fx, err := j.ranks[rank].Deliver(m.Header, m.Payload)
	j.do(rank, fx, err)
}

// do carries out what a rank's call led to. Read payloads are overwritten: whoever still reads one reads nonsense.
func (j *job) do(rank int, fx collective.Effects, err error) {
	for _, m := range fx.Read {
		j.read++
		for i := range m.Payload {
			m.Payload[i] = 0x55
		}
		j.ranks[rank].Recycle(m)
	}
	for _, m := range fx.Send {
		j.send(m)
	}
	j.wake(rank, fx.Ready)
	j.err = err
}

func (j *job) wake(rank int, programs []nn.Program) {
	for _, p := range programs {
		j.ready = append(j.ready, node{rank, p})
	}
}

func (j *job) send(m collective.Outgoing) {
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

// stop unwinds what has not ended.
func (j *job) stop() {
	for _, r := range j.ranks {
		r.Stop()
	}
}
