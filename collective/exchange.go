package collective

import (
	"phalanx/messages"
	"phalanx/nn"
)

// SmallBytes is up to where an all-reduce takes one round: every member sends its whole value to every other. Beyond
// it the bytes matter more than the second round (reduce-scatter, then all-gather): N−1 whole values leave a member
// in one round, about two in two rounds. With 4 members on 2 cores both took the same time at 16 to 32 KiB, in memory
// and over NATS; at 64 KiB two rounds were up to twice as fast.
const SmallBytes = 16 << 10

// exchange is the operation a channel is in.
type exchange struct {
	op     *nn.Op // nil: in none
	name   OpName
	first  uint64 // seq of round 0; round 1 is the next
	rounds int
	folded bool
	fold   fold
	got    [2][]bool // by round and member
	left   [2]int    // messages still to come in a round
}

// begin sets the exchange up. small is SmallBytes, except in tests.
func (x *exchange) begin(op *nn.Op, seq uint64, size, self, small int) {
	x.op, x.name, x.first, x.rounds, x.folded = op, NameOf(op), seq, 1, true
	if op.Kind == nn.AllReduce && len(op.In) > small {
		x.rounds = 2
	}
	for round := range x.got {
		if len(x.got[round]) != size {
			x.got[round] = make([]bool, size)
		}
		clear(x.got[round])
		x.left[round] = 0
		if round < x.rounds {
			x.left[round] = size - 1
		}
	}
	if op.Kind == nn.Exchange {
		x.expect(size, self)
		return
	}
	if !x.gathers(0) {
		x.folded = false
		x.fold.start(op, size, self, x.contribution(self), x.target(self))
	}
}

// expect sets up an exchange of parts: only members that send one are waited for.
func (x *exchange) expect(size, self int) {
	for j := range size {
		if _, ok := partOf(x.op.From, x.op.Out, j); !ok && j != self {
			x.got[0][j] = true
			x.left[0]--
		}
	}
}

// partOf is member j's part of one side of an exchange.
func partOf(parts []nn.Part, whole []byte, j int) ([]byte, bool) {
	for _, p := range parts {
		if p.Member == j {
			return whole[:p.Bytes:p.Bytes], true
		}
		whole = whole[p.Bytes:]
	}
	return nil, false
}

// gathers says whether a round carries finished pieces (else parts to be combined).
func (x *exchange) gathers(round int) bool {
	return x.op.Kind == nn.AllGather || x.op.Kind == nn.Exchange || round == 1
}

// scattered says whether a member combines one piece (else the whole value).
func (x *exchange) scattered() bool { return x.op.Kind == nn.ReduceScatter || x.rounds == 2 }

// contribution is the part of In that member j combines.
func (x *exchange) contribution(j int) []byte {
	if !x.scattered() {
		return x.op.In
	}
	from, to := piece(x.op.Cuts, len(x.op.In), x.op.DType.Size(), len(x.got[0]), j)
	return x.op.In[from:to]
}

// slot is where member j's finished piece goes in Out.
func (x *exchange) slot(j int) []byte {
	if x.op.Kind == nn.Exchange {
		b, _ := partOf(x.op.From, x.op.Out, j)
		return b
	}
	from, to := piece(x.op.Cuts, len(x.op.Out), x.op.DType.Size(), len(x.got[0]), j)
	return x.op.Out[from:to]
}

// target is where this member's combined part goes.
func (x *exchange) target(self int) []byte {
	if x.rounds == 2 {
		return x.slot(self)
	}
	return x.op.Out
}

// outgoing is what this member sends to member j in a round; false if it sends nothing.
func (x *exchange) outgoing(round, self, j int) ([]byte, bool) {
	switch {
	case x.op.Kind == nn.Exchange:
		return partOf(x.op.To, x.op.In, j)
	case round == 1:
		return x.slot(self), true
	case x.op.Kind == nn.AllGather:
		return x.op.In, true
	}
	return x.contribution(j), true
}

// want is the number of bytes that member j sends to this one in a round.
func (x *exchange) want(round, self, j int) int {
	switch {
	case x.op.Kind == nn.Exchange:
		if b, ok := partOf(x.op.From, x.op.Out, j); ok {
			return len(b)
		}
		return unasked
	case x.gathers(round):
		return len(x.slot(j))
	}
	return len(x.contribution(self))
}

// take consumes one message of member j.
func (x *exchange) take(s *store, round, j int, m Incoming) {
	x.got[round][j] = true
	x.left[round]--
	if x.gathers(round) {
		copy(x.slot(j), m.Payload)
		s.release(m)
		return
	}
	x.fold.add(s, j, m)
}

// reduced folds what is there; true once, when the last part has been combined and written.
func (x *exchange) reduced(s *store) bool {
	if x.folded || !x.fold.advance(s) {
		return false
	}
	x.folded = true
	return true
}

// complete says that nothing is missing.
func (x *exchange) complete() bool { return x.folded && x.left[0] == 0 && x.left[1] == 0 }

// matches says whether a message belongs to this operation.
func (x *exchange) matches(h messages.Header) bool {
	return NameIn(h) == x.name && roundIn(h) == int(h.Seq-x.first)
}
