package actors

import (
	"errors"
	"sync"
	"time"

	"phalanx/transport"
)

// memnet is the smallest Network. It is as strict as the contract allows: a payload is overwritten as soon as its
// receiver has called Consumed, and a message consumed twice or never received is noted.
type memnet struct {
	delay func(transport.Message) time.Duration // nil: delivered by the sender; else in order of (src, dst, chan)
	lose  func(transport.Message) bool          // nil: nothing is lost
	gives bool                                  // payloads are the receiver's: nothing is overwritten

	mu       sync.Mutex
	handlers map[int]transport.Handler
	lanes    map[lane]chan transport.Message
	lent     map[lentKey]int
	misuse   []string
	closed   bool
	wg       sync.WaitGroup
	done     chan struct{}
	openErr  error
	closeErr error
	slow     time.Duration // of Close
	trouble  error
	again    uint64 // connections made again
}

type lane struct{ src, dst, channel uint16 }

type lentKey struct {
	lane
	seq uint64
}

func newMemnet() *memnet {
	return &memnet{handlers: map[int]transport.Handler{}, lanes: map[lane]chan transport.Message{}, lent: map[lentKey]int{}, done: make(chan struct{})}
}

func (n *memnet) Name() string { return "memory" }

func (n *memnet) GivesPayloads() bool { return n.gives }

func (n *memnet) Trouble() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trouble
}

func (n *memnet) Stats() transport.Stats { return transport.Stats{Reconnects: n.again} }

func (n *memnet) Open(rank int, h transport.Handler) (transport.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers[rank] = h
	if rank > 0 && n.openErr != nil {
		return nil, n.openErr
	}
	return &memlink{n, rank}, nil
}

func (n *memnet) Close() error {
	time.Sleep(n.slow)
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return errors.New("closed twice")
	}
	n.closed = true
	close(n.done)
	n.mu.Unlock()
	n.wg.Wait()
	return n.closeErr
}

func (n *memnet) fail(rank int, err error) {
	n.mu.Lock()
	h := n.handlers[rank]
	n.mu.Unlock()
	h.Fail(err)
}

type memlink struct {
	n    *memnet
	rank int
}

func (l *memlink) Send(m transport.Message) error {
	n := l.n
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return transport.ErrClosed
	}
	m.Header.Src = uint16(l.rank)
	if n.lose != nil && n.lose(m) {
		n.mu.Unlock()
		return nil
	}
	k := lane{m.Header.Src, m.Header.Dst, m.Header.Chan}
	n.lent[lentKey{k, m.Header.Seq}]++
	if n.delay == nil {
		h := n.handlers[int(m.Header.Dst)]
		n.mu.Unlock()
		h.Receive(m)
		return nil
	}
	q := n.lanes[k]
	if q == nil {
		q = make(chan transport.Message, 1<<12)
		n.lanes[k] = q
		n.wg.Add(1)
		go n.carry(q)
	}
	n.mu.Unlock()
	q <- m
	return nil
}

func (n *memnet) carry(q chan transport.Message) {
	defer n.wg.Done()
	for {
		select {
		case <-n.done:
			return
		case m := <-q:
			if d := n.delay(m); d > 0 {
				t := time.NewTimer(d)
				select {
				case <-n.done:
					t.Stop()
					return
				case <-t.C:
				}
			}
			n.mu.Lock()
			h := n.handlers[int(m.Header.Dst)]
			n.mu.Unlock()
			h.Receive(m)
		}
	}
}

func (l *memlink) Consumed(m transport.Message) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	k := lentKey{lane{m.Header.Src, m.Header.Dst, m.Header.Chan}, m.Header.Seq}
	if l.n.lent[k]--; l.n.lent[k] < 0 || int(m.Header.Dst) != l.rank || len(m.Payload) != int(m.Header.Len) {
		l.n.misuse = append(l.n.misuse, "Consumed of "+received{m}.String())
	}
	if !l.n.gives {
		for i := range m.Payload {
			m.Payload[i] = 0x55
		}
	}
}

// unconsumed is the number of messages that were received and never given back.
func (n *memnet) unconsumed() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.lent {
		count += c
	}
	return count
}
