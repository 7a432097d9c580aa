package natslink

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"phalanx/messages"
	"phalanx/transport"
)

// link is one rank's end. Four goroutines move it: NATS's two subscriptions (pieces, control), a writer that
// publishes pieces so that Send never waits for a socket, and a keeper that sends credits and control bodies and
// watches.
type link struct {
	net  *Network
	rank int
	h    transport.Handler
	gate transport.Gate

	data, ctrl *nats.Conn
	pieces     *nats.Subscription
	ended      sync.WaitGroup // NATS's own goroutines that call us

	mu     sync.Mutex
	out    outflow
	in     inflow
	opened bool              // both connections and subscriptions have been made
	absent bool              // without a server yet
	broken bool              // a failure of the whole link was reported
	bodies fifo[body]        // control bodies to send
	parts  map[int]*bodyPart // control bodies in the making
	seq    uint64            // control bodies sent; the keeper's

	lives   map[int]uint32 // incarnations of the peers that have spoken, as are the next two a healing link's
	strange bool           // a foreign frame was logged

	say  func(dst int, frame []byte) error // publishes on the control connection
	late *lateFrames                       // of a wire that does harm, or nil

	every  time.Duration // between ticks
	outage time.Duration // ticks add up to it before a server is given up

	pool  pool
	wake  chan struct{} // the writer has something to do
	due   chan struct{} // the keeper has
	stop  chan struct{}
	loops sync.WaitGroup
	down  int // ticks without a server; the keeper's
	drops atomic.Uint64
}

func newLink(n *Network, rank int, h transport.Handler, lim limits) *link {
	l := &link{
		net: n, rank: rank, h: h, every: n.opts.tick, outage: n.opts.Outage,
		lives: map[int]uint32{}, parts: map[int]*bodyPart{},
		out:  outflow{lim: lim, heals: h.Lost != nil, edges: map[int]*outEdge{}},
		in:   inflow{lim: lim, edges: map[int]*inEdge{}, owned: map[ownedKey]owned{}},
		pool: pool{bytesMax: max(64<<20, 2*int(lim.channel))},
		wake: make(chan struct{}, 1),
		due:  make(chan struct{}, 1),
		stop: make(chan struct{}),
	}
	every, outage := tickDefault, outageDefault
	if l.heals() {
		every, outage = tickHealing, outageHealing
	}
	l.say = func(dst int, frame []byte) error { return l.ctrl.Publish(n.controlSubject(dst), frame) }
	if n.opts.Wire != nil {
		l.harm()
	}
	setDefault(&l.every, every)
	setDefault(&l.outage, outage)
	return l
}

// connected says whether both connections stand.
func (l *link) connected() bool { return l.data.IsConnected() && l.ctrl.IsConnected() }

// setLimits follows a change of the number of ranks; edges that exist keep their windows.
func (l *link) setLimits(lim limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.lim, l.in.lim = lim, lim
	_ = l.pieces.SetPendingLimits(-1, lim.pending) // fails on a closed subscription only
}

// Send queues the message for the writer.
func (l *link) Send(m transport.Message) error {
	fail := func(kind, cause error) error {
		return &transport.LinkError{Kind: kind, Src: l.rank, Dst: int(m.Header.Dst), Chan: int(m.Header.Chan), Cause: cause}
	}
	if n := l.net.opts.Ranks; n > 0 && int(m.Header.Dst) >= n {
		return fail(transport.ErrMisuse, fmt.Errorf("found destination %d, expected one below %d", m.Header.Dst, n))
	}
	if l.gate.Closed() {
		return fail(transport.ErrClosed, nil)
	}
	if err := l.net.id.Stamp(&m.Header, l.rank, len(m.Payload)); err != nil {
		return err
	}
	l.mu.Lock()
	err := l.out.push(m.Header, m.Payload)
	l.mu.Unlock()
	if err != nil {
		return fail(transport.ErrTooLarge, err)
	}
	signal(l.wake)
	return nil
}

// Consumed gives the credit of a message back and keeps its buffer for another.
func (l *link) Consumed(m transport.Message) {
	if buf := l.settle(&m.Header); buf != nil {
		l.pool.put(buf)
	}
}

// Keep gives the credit of a message back and leaves its buffer to the owner.
func (l *link) Keep(m transport.Message) { l.settle(&m.Header) }

// Recycle takes a payload that was kept. Those of one piece are NATS's: the pool has no use for them.
func (l *link) Recycle(payload []byte) {
	l.mu.Lock()
	piece := l.in.lim.piece
	l.mu.Unlock()
	if len(payload) > piece {
		l.pool.put(payload)
	}
}

// settle gives the credit of a message back and returns its buffer, if it may be used again.
func (l *link) settle(h *messages.Header) []byte {
	l.mu.Lock()
	buf, e, err := l.in.consumed(h)
	due := err == nil && e.due
	l.mu.Unlock()
	if err != nil {
		l.fail(err)
	}
	if due {
		signal(l.due)
	}
	return buf
}

// receive takes a piece from NATS.
func (l *link) receive(m *nats.Msg) {
	src := lastToken(m.Subject)
	if l.net.opts.tamper == nil {
		l.frame(src, m.Data)
		return
	}
	for _, f := range l.net.opts.tamper(m.Data) {
		l.frame(src, f)
	}
}

// frame checks a piece, puts it in its place, and delivers the message it completes.
func (l *link) frame(src int, frame []byte) {
	h, payload, err := messages.DecodeFrame(frame)
	if err != nil && l.heals() {
		l.damaged(src)
		return
	}
	if err != nil {
		kind := transport.ErrCorrupt
		if errors.Is(err, messages.ErrVersion) {
			kind = transport.ErrForeign
		}
		ch := transport.Unknown
		if errors.Is(err, messages.ErrPayloadCRC) || errors.Is(err, messages.ErrLength) {
			ch = int(h.Chan)
		}
		l.failEdge(src, &transport.LinkError{Kind: kind, Src: src, Dst: l.rank, Chan: ch, Cause: err})
		return
	}
	if err := l.checkName(&h, src); err != nil {
		if l.heals() {
			l.stranger(err)
			return
		}
		l.failEdge(src, err)
		return
	}
	msg, done, err := l.accept(&h, payload)
	if err != nil {
		l.failEdge(src, err)
		return
	}
	if done {
		l.gate.Do(func() { l.h.Receive(msg) })
	}
}

// checkName compares who a header says it is from, for and of with where it was found.
func (l *link) checkName(h *messages.Header, src int) error {
	if err := l.net.id.Check(h); err != nil {
		return err
	}
	if int(h.Dst) != l.rank || int(h.Src) != src {
		return &transport.LinkError{Kind: transport.ErrForeign, Src: src, Dst: l.rank, Chan: int(h.Chan),
			Found: fmt.Sprintf("a header from %d to %d", h.Src, h.Dst), Expected: fmt.Sprintf("%d to %d", src, l.rank)}
	}
	return nil
}

// accept counts a piece and returns the message it completes.
func (l *link) accept(h *messages.Header, payload []byte) (msg transport.Message, done bool, err error) {
	l.mu.Lock()
	e := l.in.edge(int(h.Src), h.Incarnation)
	take, err := l.admit(e, h)
	if !take {
		l.unlock()
		return msg, false, err
	}
	c := e.channel(h.Chan)
	part := c.part
	l.unlock()

	if h.Kind != messages.Data {
		err = &transport.LinkError{Kind: transport.ErrDisorder, Src: int(h.Src), Dst: l.rank, Chan: int(h.Chan),
			Found: h.Kind.String(), Expected: "data or hello"}
	} else {
		part, err = place(part, h, payload, &l.pool)
	}
	l.mu.Lock()
	defer l.unlock()
	switch {
	case err == nil:
		done = l.in.count(e, c, part, h)
		return transport.Message{Header: part.header, Payload: part.buf}, done, nil
	case l.heals():
		e.refusing()
		err = nil
	}
	return msg, false, err
}

// admit compares a piece with what must come next; take: it does. A probe is answered, and not taken. Edges that come
// are changed by the data subscription alone, so that it can copy pieces without the lock. The caller has it.
func (l *link) admit(e *inEdge, h *messages.Header) (take bool, err error) {
	switch {
	case l.heals() && l.outdated(int(h.Src), h.Incarnation):
		return false, nil
	case l.heals():
		a := e.admit(h)
		if a.lost {
			l.in.begun = append(l.in.begun, e.src)
		}
		return a.take, nil
	case e.failed: // reported, and nothing that follows can be whole
		return false, nil
	}
	switch err := e.expect(h); {
	case err != nil:
		return false, err
	case h.Kind == messages.Hello: // nothing is missing: answer with all totals
		e.due, e.full = true, true
	default:
		return true, nil
	}
	return false, nil
}

// unlock lets go of the lock and does what has become due meanwhile.
func (l *link) unlock() {
	due := false
	for _, e := range l.in.order {
		due = due || e.due || e.refuse
	}
	begun := append(l.in.begun, l.out.begun...)
	l.in.begun, l.out.begun = nil, nil
	l.mu.Unlock()
	if due {
		signal(l.due)
	}
	l.begun(begun)
}

// failEdge reports the first failure of the way from src; the pieces that follow are dropped.
func (l *link) failEdge(src int, err error) {
	l.mu.Lock()
	e := l.in.edge(src, 0)
	first := !e.failed
	e.failed = true
	l.mu.Unlock()
	if first {
		l.fail(err)
	}
}

// failLink reports the first failure that is not of one edge.
func (l *link) failLink(kind error, cause error) {
	l.mu.Lock()
	first := !l.broken
	l.broken = true
	l.mu.Unlock()
	if first {
		l.fail(&transport.LinkError{Kind: kind, Src: transport.Unknown, Dst: l.rank, Chan: transport.Unknown, Cause: cause})
	}
}

func (l *link) fail(err error) {
	l.gate.Do(func() {
		l.net.log.Error("link failed", zap.Int("rank", l.rank), zap.Error(err))
		l.h.Fail(err)
	})
}

// close ends the link: first nothing is received any more, then all goroutines end.
func (l *link) close() {
	if !l.gate.Close() {
		return
	}
	close(l.stop)
	if l.late != nil {
		l.late.end()
	}
	l.data.Close()
	l.ctrl.Close()
	l.loops.Wait()
	wait(&l.ended, 5*time.Second)
}

// wait gives NATS's goroutines, which end by themselves, a moment to do so.
func wait(g *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// signal wakes a loop; one pending signal is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lastToken is the rank at the end of a subject.
func lastToken(subject string) int {
	n, err := strconv.Atoi(subject[strings.LastIndexByte(subject, '.')+1:])
	if err != nil {
		return transport.Unknown
	}
	return n
}
