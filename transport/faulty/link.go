package faulty

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"phalanx/messages"
	"phalanx/transport"
)

// channel is where order is promised.
type channel struct{ dst, id uint16 }

type link struct {
	transport.Link
	net  *Network
	rank int

	mu   sync.Mutex
	nth  map[channel]int
	late map[channel]*transport.Message // at most one message of a channel waits to be passed
}

// Send sends the message as the plan wants it.
func (l *link) Send(m transport.Message) error {
	c := channel{m.Header.Dst, m.Header.Chan}
	m.Header.Src = uint16(l.rank)
	l.mu.Lock()
	nth, passed := l.nth[c], l.late[c]
	l.nth[c]++
	delete(l.late, c)
	fault := l.net.choose(&m.Header, nth)
	if fault == Delay && passed != nil {
		fault = None // this one does the passing
	}
	l.net.counts[fault].Add(1)
	if fault == Delay {
		l.hold(c, &m)
	}
	l.mu.Unlock()

	err := l.send(m, fault, nth)
	if passed != nil && err == nil {
		err = l.Link.Send(*passed)
	}
	return err
}

// Control passes a body on, unharmed. It implements transport.Controller if the inner link does.
func (l *link) Control(dst int, body []byte) error {
	c, ok := l.Link.(transport.Controller)
	if !ok {
		return &transport.LinkError{Kind: transport.ErrMisuse, Src: l.rank, Dst: dst, Chan: transport.Unknown,
			Found: fmt.Sprintf("a control body for a network that is %s", l.net.inner.Name()), Expected: "one whose links carry them"}
	}
	return c.Control(dst, body)
}

func (l *link) send(m transport.Message, fault Fault, nth int) error {
	switch fault {
	case Drop, Delay:
		return nil
	case Duplicate:
		twin := transport.Message{Header: m.Header, Payload: bytes.Clone(m.Payload)}
		if err := l.Link.Send(twin); err != nil {
			return err
		}
	case Corrupt:
		return l.corrupt(m, nth)
	}
	return l.Link.Send(m)
}

// hold keeps a message until a later one of its channel has passed it, or nothing comes. The caller holds the lock.
func (l *link) hold(c channel, m *transport.Message) {
	l.late[c] = m
	time.AfterFunc(l.net.plan.Wait, func() {
		l.mu.Lock()
		waits := l.late[c] == m
		if waits {
			delete(l.late, c)
		}
		l.mu.Unlock()
		if waits {
			l.net.gate.Do(func() { _ = l.Link.Send(*m) }) // an ended link needs no more faults
		}
	})
}

// corrupt flips one bit of the encoded message and hands it to the decoder, as a receiver would. So it is the real
// checksum that catches it; a flip it missed would arrive as a wrong value.
func (l *link) corrupt(m transport.Message, nth int) error {
	h := m.Header
	h.Seal(m.Payload)
	frame := make([]byte, messages.HeaderSize+len(m.Payload))
	h.Encode(frame)
	copy(frame[messages.HeaderSize:], m.Payload)
	bit := rand.New(rand.NewPCG(l.net.plan.Seed, uint64(nth))).IntN(len(frame) * 8)
	frame[bit/8] ^= 1 << (bit % 8)
	got, payload, err := messages.DecodeFrame(frame)
	if err == nil {
		return l.Link.Send(transport.Message{Header: got, Payload: payload})
	}
	l.net.mu.Lock()
	fail := l.net.fails[int(m.Header.Dst)]
	l.net.mu.Unlock()
	if fail == nil {
		return fmt.Errorf("faulty: rank %d is not in this process: its Fail cannot be called", m.Header.Dst)
	}
	l.net.gate.Do(func() {
		fail(&transport.LinkError{Kind: transport.ErrCorrupt, Src: l.rank, Dst: int(m.Header.Dst), Chan: int(m.Header.Chan), Cause: err})
	})
	return nil
}
