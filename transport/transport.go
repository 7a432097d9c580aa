// Package transport moves named messages between ranks. It reads headers and bytes, never tensors.
package transport

import "phalanx/messages"

// Message is one whole message: a header (Chunk 0 of 1) and the payload it names.
type Message struct {
	Header  messages.Header
	Payload []byte
}

// Link is one rank's way to the others. It is safe for concurrent use by the actors of its rank.
type Link interface {
	// Send takes the payload: the caller must not touch it again. It does not wait for the receiver; bytes beyond
	// the credits of the edge are queued, in order, until the receiver has taken earlier ones.
	Send(Message) error
	// Consumed says that the owner of this rank has taken a received message; its payload may be reused and the
	// sender gets its credit back.
	Consumed(Message)
}

// Handler is what a rank gives to Open. Receive gets whole messages, in order for one (source, channel); Fail gets
// what the link could not heal (a lost or corrupt piece, a broken connection). Both are called from the link's
// goroutines and must not block.
type Handler struct {
	Receive func(Message)
	Fail    func(error)
}

// Network opens the links of one run. All ranks of a process open theirs before any of them sends.
type Network interface {
	Open(rank int, h Handler) (Link, error)
	// Close ends all links; nothing is received afterwards.
	Close() error
	// Name is what reports call this transport: "nats", "direct".
	Name() string
}
