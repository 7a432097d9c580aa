package natslink

import (
	"fmt"

	"phalanx/messages"
	"phalanx/transport"
)

// cost is what a piece takes from the windows. An empty message costs its header, so that a flood of them is bounded.
func cost(payloadBytes int) uint64 { return messages.HeaderSize + uint64(payloadBytes) }

// window bounds the bytes that were let out and not given back. Both are totals since the beginning.
type window struct{ size, out, back uint64 }

func (w *window) fits(n uint64) bool { return w.out-w.back+n <= w.size }

// give takes the receiver's total. An older total than the last changes nothing.
func (w *window) give(total uint64) error {
	if total > w.out {
		return fmt.Errorf("credit for %d bytes, %d were sent", total, w.out)
	}
	w.back = max(w.back, total)
	return nil
}

// outflow is the sending half of a link: queues, windows and piece numbers. It is a plain machine; the link locks it.
type outflow struct {
	lim   limits
	edges map[int]*outEdge
	order []*outEdge // as they were made
	ready fifo[*outChan]
	asks  fifo[*outEdge] // edges whose probe is due
	heals bool           // edges begin anew, and nothing is kept for a peer that is away
	lost  uint64         // edges that began anew
	begun []int          // their peers, until the link has told its owner
	gone  uint64         // messages that were thrown away
}

// outEdge is the way to one rank.
type outEdge struct {
	dst     int
	transit window
	pieces  uint64 // let out
	acked   uint64 // of them, known to have arrived
	chans   map[uint16]*outChan
	order   []*outChan

	asking     bool   // waits in asks
	asked      bool   // a probe is out and unanswered
	seenPieces uint64 // pieces and acked at the last tick
	seenAcked  uint64
	silent     int // ticks since an unanswered probe

	epoch uint32 // beginnings before this one; the pieces of each are numbered from 0
	greet bool   // the peer has not answered in this epoch
	fresh bool   // it began with a life of the peer, which asks by itself
	away  bool   // the peer has been silent for long: nothing is kept for it
	spill bool   // something was not kept
}

// outChan is one channel of an edge: its messages go out in order.
type outChan struct {
	edge   *outEdge
	window window
	queue  fifo[outMsg]
	listed bool // waits in ready
}

type outMsg struct {
	header  messages.Header
	payload []byte
	piece   int // bytes of a full piece
	chunk   int // next piece
	chunks  int
}

// piece is what goes out next: a piece of a message, or a probe.
type piece struct {
	header  messages.Header
	payload []byte
	last    bool // of its message
}

func (s *outflow) edge(dst int) *outEdge {
	e := s.edges[dst]
	if e == nil {
		e = &outEdge{dst: dst, transit: window{size: s.lim.edge}, chans: map[uint16]*outChan{}}
		s.edges[dst] = e
		s.order = append(s.order, e)
	}
	return e
}

func (s *outflow) channel(dst int, id uint16) *outChan {
	e := s.edge(dst)
	c := e.chans[id]
	if c == nil {
		c = &outChan{edge: e, window: window{size: s.lim.channel}}
		e.chans[id] = c
		e.order = append(e.order, c)
	}
	return c
}

// push queues a message behind the others of its channel.
func (s *outflow) push(h messages.Header, payload []byte) error {
	chunks, err := s.lim.chunksFor(len(payload))
	if err != nil {
		return err
	}
	c := s.channel(int(h.Dst), h.Chan)
	if c.edge.away {
		c.edge.spill = true
		s.gone++
		return nil
	}
	c.queue.push(outMsg{header: h, payload: payload, piece: s.lim.piece, chunks: chunks})
	s.list(c)
	return nil
}

func (s *outflow) list(c *outChan) {
	if !c.listed && c.queue.len() > 0 {
		c.listed = true
		s.ready.push(c)
	}
}

// next takes the piece that goes out next, channels in turn. A channel without room leaves the turn until credit
// comes. Pieces must be published in the order in which next returns them.
func (s *outflow) next(id transport.Identity, rank int) (piece, bool) {
	if e, ok := s.asks.pop(); ok {
		e.asking, e.asked = false, true
		h := messages.Header{Dst: uint16(e.dst)}
		_ = id.Stamp(&h, rank, 0) // nothing in it can contradict
		h.Kind, h.Edge = messages.Hello, edgeNumber(e.epoch, e.pieces)
		if e.fresh {
			h.Phase = freshPhase
		}
		return piece{header: h}, true
	}
	for {
		c, ok := s.ready.pop()
		if !ok {
			return piece{}, false
		}
		c.listed = false
		if c.queue.len() == 0 { // the edge has begun anew since
			continue
		}
		if s.heals && c.edge.pieces == pieceMax {
			s.begin(c.edge, c.edge.epoch+1)
			continue
		}
		m := c.queue.front()
		part := m.payload[m.chunk*m.piece : min((m.chunk+1)*m.piece, len(m.payload))]
		n := cost(len(part))
		if !c.window.fits(n) || !c.edge.transit.fits(n) {
			continue
		}
		c.window.out += n
		c.edge.transit.out += n
		p := piece{header: m.header, payload: part, last: m.chunk == m.chunks-1}
		p.header.Chunk, p.header.Chunks, p.header.Edge = uint16(m.chunk), uint16(m.chunks), edgeNumber(c.edge.epoch, c.edge.pieces)
		c.edge.pieces++
		m.chunk++
		if p.last {
			c.queue.pop()
		}
		s.list(c)
		return p, true
	}
}

// credited applies a receiver's totals and puts channels with new room back into the turn.
func (s *outflow) credited(src int, t totals) error {
	e := s.edges[src]
	if e == nil {
		return fmt.Errorf("credit from rank %d, nothing was sent there", src)
	}
	if t.pieces > e.pieces {
		return fmt.Errorf("credit for %d pieces, %d were sent", t.pieces, e.pieces)
	}
	e.acked = max(e.acked, t.pieces)
	e.asked, e.silent = false, 0
	if err := e.transit.give(t.bytes); err != nil {
		return err
	}
	for _, ct := range t.chans {
		c := e.chans[ct.id]
		if c == nil {
			return fmt.Errorf("credit on channel 0x%04x, nothing was sent there", ct.id)
		}
		if err := c.window.give(ct.credited); err != nil {
			return err
		}
	}
	for _, c := range e.order {
		s.list(c)
	}
	return nil
}

// tick asks for a probe on every edge that stands still with something unanswered or unsent, and returns the edges
// whose peer has left that many ticks of probes unanswered.
func (s *outflow) tick(silentMax int) (silent []*outEdge) {
	for _, e := range s.order {
		still := e.pieces == e.seenPieces && e.acked == e.seenAcked
		e.seenPieces, e.seenAcked = e.pieces, e.acked
		if e.asked {
			if e.silent++; e.silent == silentMax {
				silent = append(silent, e)
			}
		}
		if still && !e.asking && (e.acked < e.pieces || e.greet || e.waits()) {
			e.asking = true
			s.asks.push(e)
		}
	}
	return silent
}

// waits says whether a message is queued on the edge.
func (e *outEdge) waits() bool {
	for _, c := range e.order {
		if c.queue.len() > 0 {
			return true
		}
	}
	return false
}

// fifo is a queue on a slice.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) front() *T { return &q.items[q.head] }

func (q *fifo[T]) push(v T) {
	if q.head > 32 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) pop() (v T, ok bool) {
	if q.len() == 0 {
		return v, false
	}
	var zero T
	v, q.items[q.head] = q.items[q.head], zero
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v, true
}
