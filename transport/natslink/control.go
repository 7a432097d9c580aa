package natslink

import (
	"errors"
	"fmt"

	"phalanx/messages"
	"phalanx/transport"
)

const (
	bodyBytesMax = 16 << 20 // of a control body; they are kilobytes
	bodiesMax    = 1024     // control bodies that wait to be sent; older ones are lost
)

// body is a control body of the owner that waits to be sent.
type body struct {
	dst   int
	bytes []byte
}

// bodyPart is a control body in the making.
type bodyPart struct {
	inc  uint32
	seq  uint64
	next uint16
	buf  []byte
}

// Control queues a body of the owner for the control connection. It implements transport.Controller.
func (l *link) Control(dst int, b []byte) error {
	fail := func(kind, cause error) error {
		return &transport.LinkError{Kind: kind, Src: l.rank, Dst: dst, Chan: transport.Unknown, Cause: cause}
	}
	switch {
	case dst < 0 || dst > l.net.rankMax():
		return fail(transport.ErrMisuse, fmt.Errorf("found destination %d, expected 0 to %d", dst, l.net.rankMax()))
	case len(b) > bodyBytesMax:
		return fail(transport.ErrTooLarge, fmt.Errorf("found a control body of %d bytes, expected at most %d", len(b), bodyBytesMax))
	case l.gate.Closed():
		return fail(transport.ErrClosed, nil)
	}
	l.mu.Lock()
	if l.bodies.len() == bodiesMax {
		l.bodies.pop()
	}
	l.bodies.push(body{dst, b})
	l.mu.Unlock()
	signal(l.due)
	return nil
}

// sendBodies publishes what the owner has queued. What cannot go now is lost, as the interface says.
func (l *link) sendBodies() {
	for {
		l.mu.Lock()
		b, ok := l.bodies.pop()
		piece := l.out.lim.piece
		l.mu.Unlock()
		if !ok {
			return
		}
		if l.sendBody(b, piece) == nil {
			l.net.controls.Add(1)
		}
	}
}

func (l *link) sendBody(b body, piece int) error {
	l.seq++
	chunks := max(1, (len(b.bytes)+piece-1)/piece)
	for i := range chunks {
		part := b.bytes[i*piece : min((i+1)*piece, len(b.bytes))]
		h := messages.Header{Kind: messages.Control, Dst: uint16(b.dst), Seq: l.seq, Chunk: uint16(i), Chunks: uint16(chunks)}
		if err := l.sendControl(h, part); err != nil {
			return err
		}
	}
	return nil
}

// sendControl publishes a frame on the control connection.
func (l *link) sendControl(h messages.Header, body []byte) error {
	h.Run, h.Topology, h.Build, h.Incarnation = l.net.id.Run, l.net.id.Topology, l.net.id.Build, l.net.id.Incarnation
	h.Src = uint16(l.rank)
	return l.say(int(h.Dst), encodeFrame(nil, &h, body))
}

// heard takes a frame of the control connection.
func (l *link) heard(frame []byte) {
	h, payload, err := messages.DecodeFrame(frame)
	switch {
	case err != nil && l.heals():
		l.net.corrupt.Add(1)
		return
	case err == nil:
		if err = l.checkName(&h, int(h.Src)); err == nil && int(h.Src) > l.net.rankMax() {
			err = fmt.Errorf("found rank %d, expected at most %d", h.Src, l.net.rankMax())
		}
		if err != nil && l.heals() {
			l.stranger(err)
			return
		}
	}
	if err == nil {
		err = l.controlled(&h, payload)
	}
	if err != nil {
		l.fail(&transport.LinkError{Kind: transport.ErrDisorder, Src: l.rank, Dst: int(h.Src), Chan: transport.Unknown, Cause: err})
		return
	}
	signal(l.wake)
}

// controlled does what a control frame of this run asks for.
func (l *link) controlled(h *messages.Header, payload []byte) error {
	l.mu.Lock()
	if l.heals() && l.outdated(int(h.Src), h.Incarnation) {
		l.mu.Unlock()
		return nil
	}
	mine := h.Step == l.net.id.Incarnation // what it says is about this life
	epoch, _ := splitEdge(h.Edge)
	var whole []byte
	var err error
	switch h.Kind {
	case messages.Credit:
		err = l.credit(int(h.Src), mine, epoch, payload)
	case messages.Reset:
		if mine && l.heals() {
			l.out.refused(int(h.Src), epoch)
		}
	case messages.Control:
		whole = l.collect(h, payload)
	}
	l.unlock()
	if whole != nil && l.h.Control != nil {
		l.gate.Do(func() { l.h.Control(int(h.Src), whole) })
	}
	return err
}

// credit takes a receiver's totals. The caller has the lock.
func (l *link) credit(src int, mine bool, epoch uint32, payload []byte) error {
	t, err := decodeTotals(payload)
	switch {
	case err != nil:
		return err
	case !l.heals():
		return l.out.credited(src, t)
	case mine:
		l.out.answered(src, epoch, t)
	}
	return nil
}

// collect puts a piece of a control body in its place; whole: it was the last. A gap loses the body. The caller has
// the lock.
func (l *link) collect(h *messages.Header, payload []byte) (whole []byte) {
	if h.Chunks <= 1 {
		return payload
	}
	src := int(h.Src)
	p := l.parts[src]
	if h.Chunk == 0 {
		p = &bodyPart{inc: h.Incarnation, seq: h.Seq}
		l.parts[src] = p
	}
	if p == nil || p.inc != h.Incarnation || p.seq != h.Seq || p.next != h.Chunk || len(p.buf)+len(payload) > bodyBytesMax {
		delete(l.parts, src)
		return nil
	}
	p.buf = append(p.buf, payload...)
	if p.next++; p.next < h.Chunks {
		return nil
	}
	delete(l.parts, src)
	return p.buf
}

// sendCredits publishes what is due on all edges: credit, or the wish that one begin anew. What cannot go now is due
// again, with all totals.
func (l *link) sendCredits() {
	for i := 0; ; i++ {
		l.mu.Lock()
		if i >= len(l.in.order) {
			l.mu.Unlock()
			return
		}
		e := l.in.order[i]
		owed := e.owe()
		refuse, reset := e.refuse, messages.Header{Kind: messages.Reset, Dst: uint16(e.src), Step: e.inc, Edge: edgeNumber(e.epoch, 0)}
		e.refuse = false
		l.mu.Unlock()
		var err error
		if refuse {
			err = l.sendControl(reset, nil) // a tick says it again
		}
		for _, t := range owed {
			err = errors.Join(err, l.sendCredit(e.src, &t))
		}
		if err != nil {
			l.mu.Lock()
			e.due, e.full = true, true // the next tick tries again
			l.mu.Unlock()
		}
	}
}

func (l *link) sendCredit(dst int, t *totals) error {
	h := messages.Header{Kind: messages.Credit, Dst: uint16(dst), Step: t.inc, Edge: edgeNumber(t.epoch, 0)}
	if err := l.sendControl(h, t.encode()); err != nil {
		return err
	}
	l.net.credits.Add(1)
	return nil
}
