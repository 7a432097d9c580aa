package natslink

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"phalanx/messages"
	"phalanx/transport"
)

// retryWait is how often the writer looks whether a lost connection is back.
const retryWait = 10 * time.Millisecond

// write publishes pieces until the link stops. The frame is its own buffer: NATS copies it before Publish returns.
func (l *link) write() {
	defer l.loops.Done()
	var frame []byte
	subjects := map[uint16]string{}
	for {
		l.mu.Lock()
		p, ok := l.out.next(l.net.id, l.rank)
		l.mu.Unlock()
		if !ok {
			select {
			case <-l.wake:
				continue
			case <-l.stop:
				return
			}
		}
		frame = encodeFrame(frame, &p.header, p.payload)
		subject, ok := subjects[p.header.Dst]
		if !ok {
			subject = l.net.dataSubject(int(p.header.Dst), l.rank)
			subjects[p.header.Dst] = subject
		}
		if l.late != nil {
			ok = l.fly(&p.header, subject, frame)
		} else {
			ok = l.publish(subject, frame)
		}
		if !ok {
			return
		}
		if p.header.Kind == messages.Data {
			l.net.pieceSent(&p)
		}
	}
}

// encodeFrame seals a header and puts it and its payload into one buffer, that of dst if it is large enough.
func encodeFrame(dst []byte, h *messages.Header, payload []byte) []byte {
	n := messages.HeaderSize + len(payload)
	if cap(dst) < n {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	copy(dst[messages.HeaderSize:], payload)
	h.Seal(dst[messages.HeaderSize:])
	h.Encode(dst)
	return dst
}

// publish hands a frame to NATS. While the connection is away it waits: nothing is buffered for a server that may
// never come. It says false when the link has ended or failed.
func (l *link) publish(subject string, frame []byte) bool {
	for {
		err := l.data.Publish(subject, frame)
		switch {
		case err == nil:
			return true
		case errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected):
		case l.gate.Closed():
			return false
		case l.data.IsClosed() || errors.Is(err, nats.ErrMaxPayload):
			l.failLink(transport.ErrConnection, fmt.Errorf("a piece of %d bytes: %w", len(frame), err))
			return false
		}
		select {
		case <-time.After(retryWait):
		case <-l.stop:
			return false
		}
	}
}

// keep sends control bodies and credits when they are due, and looks at the state of things once a tick.
func (l *link) keep() {
	defer l.loops.Done()
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-l.due:
		case <-ticker.C:
			l.tick()
		case <-l.stop:
			return
		}
		l.sendBodies()
		l.sendCredits()
	}
}

// tick counts how long the server has been away and starts probes. Ticks are counted, not time: a process that was
// stopped for an hour has missed an hour, and not waited for one.
func (l *link) tick() {
	ticks := int(max(1, l.outage/l.every))
	switch {
	case l.connected():
		l.down = 0
	case l.down <= ticks:
		l.down++
	}
	if l.heals() {
		l.watch(ticks)
		return
	}
	if l.down > 0 {
		if l.down == ticks {
			l.failLink(transport.ErrConnection, fmt.Errorf("no server at %s for %v", l.net.where, l.outage))
		}
		return
	}
	var failures []error
	l.mu.Lock()
	for _, e := range l.out.tick(silenceOutages * ticks) {
		failures = append(failures, &transport.LinkError{Kind: transport.ErrSilent, Src: l.rank, Dst: e.dst, Chan: transport.Unknown,
			Found:    fmt.Sprintf("%d pieces acknowledged after %d probes", e.acked, e.silent),
			Expected: fmt.Sprintf("%d", e.pieces)})
	}
	l.mu.Unlock()
	signal(l.wake)
	for _, err := range failures {
		l.fail(err)
	}
}
