package natslink

import (
	"phalanx/messages"
)

// An edge of a healing link can begin anew. Its beginnings are epochs, counted by the sender in the upper bits of
// Header.Edge; the pieces of an epoch are numbered from 0 in the lower ones. A link that does not heal stays in
// epoch 0.
const (
	pieceBits = 32
	pieceMax  = 1<<pieceBits - 1 // an epoch that has counted so far ends
)

// freshPhase is Header.Phase of a Hello whose epoch began because the receiver has begun a new life: all that was lost
// before it was lost to another life.
const freshPhase = 1

func edgeNumber(epoch uint32, piece uint64) uint64 { return uint64(epoch)<<pieceBits | piece }

func splitEdge(v uint64) (epoch uint32, piece uint64) {
	return uint32(v >> pieceBits), v & (1<<pieceBits - 1)
}

// begin starts an edge anew, in a later epoch: what waits in its queues is thrown away, and so is what is on the way.
func (s *outflow) begin(e *outEdge, epoch uint32) {
	for _, c := range e.order {
		s.gone += uint64(c.queue.len())
		c.queue = fifo[outMsg]{}
		c.window = window{size: s.lim.channel}
	}
	e.epoch = epoch // the 2³²nd is years away
	e.transit = window{size: s.lim.edge}
	e.pieces, e.acked, e.seenPieces, e.seenAcked = 0, 0, 0, 0
	e.asked, e.silent, e.spill, e.fresh = false, 0, false, false
	e.greet = true
	s.lost++
	s.begun = append(s.begun, e.dst)
	s.ask(e)
}

// ask makes a probe due.
func (s *outflow) ask(e *outEdge) {
	if !e.asking {
		e.asking = true
		s.asks.push(e)
	}
}

// reborn starts the edge to a peer that has begun a new life.
func (s *outflow) reborn(dst int) {
	e := s.edges[dst]
	if e == nil {
		s.begun = append(s.begun, dst)
		return
	}
	e.away = false
	s.begin(e, e.epoch+1)
	e.fresh = true
}

// refused takes a receiver's wish that the edge leave an epoch. A wish may come late.
func (s *outflow) refused(dst int, epoch uint32) {
	if e := s.edge(dst); epoch >= e.epoch {
		e.away = false
		s.begin(e, epoch+1)
	}
}

// answered takes a receiver's totals in an epoch. The edge begins anew if they cannot be, or if the peer was away and
// has missed something.
func (s *outflow) answered(dst int, epoch uint32, t totals) {
	e := s.edges[dst]
	if e == nil || epoch < e.epoch {
		return
	}
	missed := e.away && e.spill
	e.away, e.greet = false, false
	switch {
	case epoch > e.epoch: // of a life of this rank that was not told apart from this one
		s.begin(e, epoch+1)
	case s.credited(dst, t) != nil || missed:
		s.begin(e, e.epoch+1)
	}
}

// leave throws away what waits for a peer that does not answer, and keeps nothing more for it.
func (s *outflow) leave(e *outEdge) {
	if !e.away {
		s.begin(e, e.epoch+1)
		e.away = true
	}
}

// renew makes the edge one from a new life of its sender.
func (e *inEdge) renew(incarnation uint32) {
	e.begin(0)
	e.inc = incarnation
}

// begin is the receiver's side of a beginning. The owner may still have messages of earlier epochs: their channels are
// other ones.
func (e *inEdge) begin(epoch uint32) {
	e.epoch, e.pieces, e.bytes, e.told = epoch, 0, 0, 0
	e.chans, e.order = map[uint16]*inChan{}, nil
	e.due, e.full, e.failed, e.refuse = false, false, false, false
}

// refusing wants the sender to begin anew. Until it does nothing is taken.
func (e *inEdge) refusing() {
	e.failed, e.refuse = true, true
	e.chans, e.order = map[uint16]*inChan{}, nil // messages in the making with them
}

// admission is what a healing link does with a frame of an edge.
type admission struct {
	take bool // it is the piece that comes next
	lost bool // the edge has begun anew, and its owner is to ask for what was lost
}

// admit compares a piece or a probe with what must come next, and follows the sender into a new epoch.
func (e *inEdge) admit(h *messages.Header) (a admission) {
	if h.Incarnation != e.inc {
		e.renew(h.Incarnation)
	}
	hello := h.Kind == messages.Hello
	epoch, piece := splitEdge(h.Edge)
	if epoch > e.epoch {
		known := e.epoch > 0 || e.pieces > 0 || e.failed
		e.begin(epoch)
		a.lost = piece == 0 && (known || !hello || h.Phase != freshPhase) // else it is refused below
	}
	switch {
	case epoch < e.epoch:
		e.due, e.full = e.due || hello, e.full || hello // the sender learns of the later epoch
	case e.failed:
		e.refuse = e.refuse || hello
	case piece > e.pieces:
		e.refusing()
	case hello:
		e.due, e.full = true, true
	default:
		a.take = piece == e.pieces // else it has come twice
	}
	return a
}
