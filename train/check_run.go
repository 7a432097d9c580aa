package train

import (
	"fmt"
	"slices"

	"phalanx/mesh"
)

// stop is a place in the schedules.
type stop struct{ rank, pass int }

// nowhere is the place of what is missing.
var nowhere = stop{-1, -1}

// book knows for each message where it is sent and where it is taken, by its name.
type book struct {
	microbatches, chunks int
	gives, takes         []stop
}

func newBook(p Pipeline, l mesh.Layout) *book {
	b := &book{microbatches: p.Microbatches, chunks: len(l.Chunks)}
	b.gives = slices.Repeat([]stop{nowhere}, b.size())
	b.takes = slices.Repeat([]stop{nowhere}, b.size())
	return b
}

// size is the number of names.
func (b *book) size() int { return 2 * b.chunks * b.microbatches }

func (b *book) index(kind OpKind, microbatch, chunk int) int {
	return (int(kind)*b.chunks+chunk)*b.microbatches + microbatch
}

func (b *book) of(m Message) int { return b.index(m.Kind, m.Microbatch, m.Chunk) }

// put writes down a place; the error names two places of one message, or a message for a pass that there is none of.
func (b *book) put(places []stop, m Message, at stop, c *planCheck, verb string) error {
	if m.Microbatch < 0 || m.Microbatch >= b.microbatches || m.Chunk < 0 || m.Chunk >= b.chunks {
		return fmt.Errorf("rank %d in %s %s %s; expected microbatches 0 to %d, chunks 0 to %d", at.rank, c.op(at), verb, m, b.microbatches-1, b.chunks-1)
	}
	if was := places[b.of(m)]; was != nowhere {
		return fmt.Errorf("rank %d in %s %s %s, and so does rank %d in %s; expected one", at.rank, c.op(at), verb, m, was.rank, c.op(was))
	}
	places[b.of(m)] = at
	return nil
}

// cost is the time of a pass in the model of a step: a backward pass has twice the products of a forward one.
func cost(kind OpKind) int {
	if kind == BackwardOp {
		return 2
	}
	return 1
}

// sent is a message under way: when it was sent, what its sender knew, and how many passes of its receiver's rank were
// certainly over.
type sent struct {
	there bool
	time  int
	knows []int // passes of each rank that came before; nil once taken
	over  int   // knows[receiver]
}

// runner runs every pass as soon as its messages are there. Clocks are vectors: how many passes of each rank came before.
type runner struct {
	*planCheck
	next  []int   // pass of each rank
	time  []int   // at which each rank is free
	knows [][]int // clock of each rank
	sent  []sent  // by name
}

func newRunner(c *planCheck) *runner {
	r := &runner{planCheck: c, next: make([]int, c.l.PP), time: make([]int, c.l.PP), knows: make([][]int, c.l.PP), sent: make([]sent, c.book.size())}
	for i := range r.knows {
		r.knows[i] = make([]int, c.l.PP)
	}
	return r
}

// round runs what can be run on each rank and reports whether anything was.
func (r *runner) round() bool {
	any := false
	for rank := range r.passes {
		for r.next[rank] < len(r.passes[rank]) && r.ready(r.passes[rank][r.next[rank]]) {
			r.pass(rank, r.passes[rank][r.next[rank]])
			any = true
		}
	}
	return any
}

func (r *runner) ready(p Pass) bool {
	return !slices.ContainsFunc(p.Takes, func(m Message) bool { return !r.sent[r.book.of(m)].there })
}

// pass runs one pass: takes, time, gives.
func (r *runner) pass(rank int, p Pass) {
	for _, m := range p.Takes {
		s := &r.sent[r.book.of(m)]
		r.time[rank] = max(r.time[rank], s.time)
		for i, n := range s.knows {
			r.knows[rank][i] = max(r.knows[rank][i], n)
		}
		s.knows = nil
	}
	r.time[rank] += cost(p.Kind)
	r.next[rank]++
	r.knows[rank][rank] = r.next[rank]
	for _, m := range p.Gives {
		r.sent[r.book.of(m)] = sent{there: true, time: r.time[rank], knows: slices.Clone(r.knows[rank]), over: r.knows[rank][m.To]}
	}
}

// mailbox is the most messages of an edge between their sending and their taking. When the i-th is sent, an earlier one
// can still be there unless the pass that takes it is among those over by then in every run.
func (r *runner) mailbox(e Edge) int {
	takes, over := r.of(e)
	most, gone := 0, 0
	for i := range over {
		for gone < len(takes) && takes[gone] < over[i] {
			gone++
		}
		most = max(most, i+1-gone)
	}
	return most
}

// of are, for an edge's messages, the passes that take them, and how many passes of the receiver were over when they were
// sent: each in ascending order, which for the second is the order of sending, since a clock never goes back.
func (r *runner) of(e Edge) (takes, over []int) {
	first := r.book.index(e.Kind, 0, e.To)
	for m := range r.p.Microbatches {
		takes = append(takes, r.book.takes[first+m].pass)
		over = append(over, r.sent[first+m].over)
	}
	slices.Sort(takes)
	slices.Sort(over)
	return takes, over
}
