package natslink

import (
	"fmt"

	"phalanx/messages"
	"phalanx/transport"
)

// inflow is the receiving half of a link: piece numbers, messages in the making, and the credit that is owed. It is a
// plain machine; the link locks it. The bytes of a message in the making belong to the one goroutine that receives.
type inflow struct {
	lim   limits
	edges map[int]*inEdge
	order []*inEdge // as they were made
	owned map[ownedKey]owned
	begun []int // peers of edges that began anew, until the link has told its owner
}

// inEdge is the way from one rank.
type inEdge struct {
	src    int
	inc    uint32 // incarnation of the first piece; every other must have it, or the link heals
	epoch  uint32 // beginnings before this one
	pieces uint64 // arrived
	bytes  uint64 // of them
	told   uint64 // bytes, the last time credit was sent
	chans  map[uint16]*inChan
	order  []*inChan
	due    bool // credit is to be sent
	full   bool // with all totals, not only what is new
	failed bool // nothing more is taken, in this epoch
	refuse bool // the sender is to be told so
}

// inChan is one channel of an edge.
type inChan struct {
	id       uint16
	credited uint64 // bytes given back, in all
	told     uint64 // the last time credit was sent
	waiting  int    // complete messages the owner has not taken
	part     *partial
}

// partial is a message in the making.
type partial struct {
	header messages.Header // as it will be delivered
	buf    []byte
	pooled bool   // buf is the link's
	piece  int    // bytes of a full piece
	crc    uint32 // of the pieces so far
	chunk  uint16 // next
	held   uint64 // cost of its pieces that is not given back yet
}

// ownedKey names a delivered message by its last piece, which no other message shares.
type ownedKey struct {
	src  uint16
	inc  uint32
	edge uint64
}

// owned is what a delivered message holds until Consumed.
type owned struct {
	edge *inEdge
	ch   *inChan
	buf  []byte // to reuse, or nil
	held uint64
}

// totals is the body of a credit: everything that arrived and was given back on an edge since the beginning.
type totals struct {
	inc           uint32 // of the sender and
	epoch         uint32 // of the edge that they are of; in the header of the credit
	pieces, bytes uint64
	chans         []chanTotal
}

type chanTotal struct {
	id       uint16
	credited uint64
}

func (r *inflow) edge(src int, incarnation uint32) *inEdge {
	e := r.edges[src]
	if e == nil {
		e = &inEdge{src: src, inc: incarnation, chans: map[uint16]*inChan{}}
		r.edges[src] = e
		r.order = append(r.order, e)
	}
	return e
}

func (e *inEdge) channel(id uint16) *inChan {
	c := e.chans[id]
	if c == nil {
		c = &inChan{id: id}
		e.chans[id] = c
		e.order = append(e.order, c)
	}
	return c
}

// expect compares the piece number and the incarnation of a header with those that must come next.
func (e *inEdge) expect(h *messages.Header) error {
	fail := func(kind error, found, want string) error {
		return &transport.LinkError{Kind: kind, Src: int(h.Src), Dst: int(h.Dst), Chan: int(h.Chan), Found: found, Expected: want}
	}
	switch {
	case h.Incarnation != e.inc:
		return fail(transport.ErrForeign, fmt.Sprintf("incarnation %d", h.Incarnation), fmt.Sprint(e.inc))
	case h.Edge > e.pieces && h.Kind == messages.Hello:
		return fail(transport.ErrLost, fmt.Sprintf("%d pieces", e.pieces), fmt.Sprintf("%d, as many as were sent", h.Edge))
	case h.Edge > e.pieces:
		return fail(transport.ErrLost, fmt.Sprintf("piece number %d", h.Edge), fmt.Sprint(e.pieces))
	case h.Edge < e.pieces:
		return fail(transport.ErrDisorder, fmt.Sprintf("piece number %d again", h.Edge), fmt.Sprint(e.pieces))
	}
	return nil
}

// count takes a piece that was put in its place into the totals, and says whether its message is complete.
func (r *inflow) count(e *inEdge, c *inChan, part *partial, h *messages.Header) (last bool) {
	n := cost(int(h.Len))
	e.pieces++
	e.bytes += n
	part.held += n
	last = part.chunk == h.Chunks
	if last {
		o := owned{edge: e, ch: c, held: part.held}
		if part.pooled {
			o.buf = part.buf
		}
		r.owned[ownedKey{h.Src, h.Incarnation, h.Edge}] = o
		c.waiting++
		c.part = nil
	} else {
		c.part = part
		c.release()
	}
	r.mark(e, c)
	return last
}

// release gives the pieces of an incomplete message back while the owner has none to take: without them it cannot
// become complete when it is larger than the window.
func (c *inChan) release() {
	if c.waiting == 0 && c.part != nil {
		c.credited += c.part.held
		c.part.held = 0
	}
}

// consumed gives a message back and returns its buffer, if the link may reuse it.
func (r *inflow) consumed(h *messages.Header) ([]byte, *inEdge, error) {
	key := ownedKey{h.Src, h.Incarnation, h.Edge}
	o, ok := r.owned[key]
	if !ok {
		return nil, nil, &transport.LinkError{Kind: transport.ErrMisuse, Src: int(h.Src), Dst: int(h.Dst), Chan: int(h.Chan),
			Found: fmt.Sprintf("Consumed of message %d", h.Edge), Expected: "one that was received, once"}
	}
	delete(r.owned, key)
	if o.edge.chans[o.ch.id] != o.ch { // the edge has begun anew since: nobody waits for this credit
		return o.buf, o.edge, nil
	}
	o.ch.credited += o.held
	o.ch.waiting--
	o.ch.release()
	r.mark(o.edge, o.ch)
	return o.buf, o.edge, nil
}

// mark makes credit due when a quarter of a window has come together.
func (r *inflow) mark(e *inEdge, c *inChan) {
	if 4*(e.bytes-e.told) >= r.lim.edge || 4*(c.credited-c.told) >= r.lim.channel {
		e.due = true
	}
}

// owe takes the credit that is due on an edge, in bodies of at most creditChansMax channels.
func (e *inEdge) owe() []totals {
	if !e.due {
		return nil
	}
	var chans []chanTotal
	for _, c := range e.order {
		if e.full || c.credited != c.told {
			chans = append(chans, chanTotal{c.id, c.credited})
			c.told = c.credited
		}
	}
	e.due, e.full, e.told = false, false, e.bytes
	var out []totals
	for {
		n := min(len(chans), creditChansMax)
		out = append(out, totals{inc: e.inc, epoch: e.epoch, pieces: e.pieces, bytes: e.bytes, chans: chans[:n]})
		if chans = chans[n:]; len(chans) == 0 {
			return out
		}
	}
}
