// Package direct is the network of ranks that live in one process: a payload changes owner, nothing is copied.
package direct

import (
	"fmt"
	"sync"
	"sync/atomic"

	"phalanx/transport"
)

// Network hands messages from rank to rank in memory. A message is received on the goroutine of its sender, before
// Send returns; so messages of one channel keep their order as long as one goroutine at a time sends on it. There
// are no credits: what a receiver has not taken waits in its own mailbox.
type Network struct {
	id       transport.Identity
	gate     transport.Gate
	mu       sync.RWMutex
	handlers map[int]transport.Handler
	messages atomic.Uint64
	bytes    atomic.Uint64
	controls atomic.Uint64
}

// New is a network without links. A zero identity is fine for ranks that can only be of one build.
func New(id transport.Identity) *Network {
	return &Network{id: id, handlers: map[int]transport.Handler{}}
}

// Name is "direct".
func (n *Network) Name() string { return "direct" }

// Stats counts messages and bytes; every message is one piece.
func (n *Network) Stats() transport.Stats {
	m := n.messages.Load()
	return transport.Stats{Messages: m, Pieces: m, Bytes: n.bytes.Load(), Controls: n.controls.Load()}
}

// Open makes the link of a rank.
func (n *Network) Open(rank int, h transport.Handler) (transport.Link, error) {
	switch {
	case rank < 0 || rank > 0xffff:
		return nil, fmt.Errorf("direct: found rank %d, expected 0 to 65535", rank)
	case h.Receive == nil || h.Fail == nil:
		return nil, fmt.Errorf("direct: rank %d: expected both Receive and Fail in the handler", rank)
	case n.gate.Closed():
		return nil, &transport.LinkError{Kind: transport.ErrClosed, Src: rank, Dst: transport.Unknown, Chan: transport.Unknown}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.handlers[rank]; ok {
		return nil, fmt.Errorf("direct: rank %d is open already; each rank opens one link", rank)
	}
	n.handlers[rank] = h
	return &link{net: n, rank: rank}, nil
}

// Close ends all links.
func (n *Network) Close() error {
	n.gate.Close()
	return nil
}

type link struct {
	net  *Network
	rank int
}

// Send hands the message to its destination.
func (l *link) Send(m transport.Message) error {
	fail := func(kind error, found, want string) error {
		return &transport.LinkError{Kind: kind, Src: l.rank, Dst: int(m.Header.Dst), Chan: int(m.Header.Chan), Found: found, Expected: want}
	}
	if uint64(len(m.Payload)) > 0xffffffff {
		return fail(transport.ErrTooLarge, fmt.Sprintf("%d bytes", len(m.Payload)), "at most 4294967295")
	}
	if err := l.net.id.Stamp(&m.Header, l.rank, len(m.Payload)); err != nil {
		return err
	}
	l.net.mu.RLock()
	h, ok := l.net.handlers[int(m.Header.Dst)]
	l.net.mu.RUnlock()
	if !ok {
		return fail(transport.ErrMisuse, "no such rank in this process", "one that was opened")
	}
	size := uint64(len(m.Payload))
	if !l.net.gate.Do(func() { h.Receive(m) }) {
		return fail(transport.ErrClosed, "", "")
	}
	l.net.messages.Add(1)
	l.net.bytes.Add(size)
	return nil
}

// Consumed does nothing: the payload belongs to its receiver, and nobody waits for credit.
func (l *link) Consumed(transport.Message) {}

// Control hands a body to its destination. It implements transport.Controller.
func (l *link) Control(dst int, body []byte) error {
	l.net.mu.RLock()
	h, ok := l.net.handlers[dst]
	l.net.mu.RUnlock()
	if !ok {
		return &transport.LinkError{Kind: transport.ErrMisuse, Src: l.rank, Dst: dst, Chan: transport.Unknown,
			Found: "no such rank in this process", Expected: "one that was opened"}
	}
	open := l.net.gate.Do(func() {
		if h.Control != nil {
			h.Control(l.rank, body)
		}
	})
	if !open {
		return &transport.LinkError{Kind: transport.ErrClosed, Src: l.rank, Dst: dst, Chan: transport.Unknown}
	}
	l.net.controls.Add(1)
	return nil
}

// GivesPayloads says that a received payload is the receiver's for good: nobody else holds it.
func (*Network) GivesPayloads() bool { return true }
