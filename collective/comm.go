package collective

import (
	"fmt"
	"runtime"

	"phalanx/mesh"
	"phalanx/nn"
)

// comm is the door a program sees.
type comm struct{ r *Routine }

var _ nn.Comm = comm{}

// Size is the number of members of this rank's group on a.
func (c comm) Size(a mesh.Axis) int { return c.r.place.Sizes.Of(a) }

// Rank is this rank's place in it.
func (c comm) Rank(a mesh.Axis) int { return c.r.place.Sizes.Coord(c.r.place.Rank).Of(a) }

// Do is one collective. A wrong one panics here, in the program that asked for it, as *OpError. Where the axis is
// not split it is a copy, without a suspension.
func (c comm) Do(op *nn.Op) {
	c.r.alive()
	size := c.Size(op.Axis)
	if err := CheckOp(op, size, c.Rank(op.Axis)); err != nil {
		panic(err)
	}
	c.r.site = op.Site
	if size == 1 {
		copy(op.Out, op.In)
	} else {
		c.r.suspend(Collective{op})
	}
	c.r.progress++
}

// Send does not suspend: the value leaves with the next request. One for a program that is not on the rank panics here.
func (c comm) Send(to nn.Program, name string, v any) {
	c.r.alive()
	if rank := c.r.rank; rank != nil && !rank.has(to) {
		panic(fmt.Errorf("%s sends %q to %s, which does not exist", rank.name(c.r.program), name, rank.name(to)))
	}
	c.r.outbox = append(c.r.outbox, Sent{To: to, Name: name, V: v})
}

// Recv suspends until the value is there.
func (c comm) Recv(from nn.Program, name string) any {
	c.r.alive()
	v := c.r.suspend(Receive{From: from, Name: name})
	c.r.progress++
	return v
}

// sentinel unwinds a stopped program.
type sentinel struct{}

func (sentinel) Error() string { return "this rank stops: let this panic pass" }

// suspend gives control back and returns the reply.
func (r *Routine) suspend(q Request) any {
	if !r.yield(q) {
		r.stopping = true
		r.unwind()
	}
	v := r.reply
	r.reply = nil
	return v
}

// alive does not return on a stopped rank. Every call asks again, so a program whose recover has swallowed the
// sentinel gets no further than its next call.
func (r *Routine) alive() {
	if !r.stopping && r.place.Stopped != nil && r.place.Stopped() {
		r.stopping = true
	}
	if r.stopping {
		r.unwind()
	}
}

// unwind throws the sentinel; the second time (swallowed, or asked by a deferred function) it uses what no recover
// can stop, so a loop around a recover ends too.
func (r *Routine) unwind() {
	if r.unwound {
		runtime.Goexit()
	}
	r.unwound = true
	panic(sentinel{})
}
