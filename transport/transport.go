// Package transport moves named messages between ranks. It reads headers and bytes, never tensors.
package transport

import (
	"time"

	"phalanx/messages"
)

// Message is one whole message: a header (Chunk 0 of 1) and the payload it names.
//
// The layer above fills the name: Dst, Chan, Step, Microbatch, Op, Layer, Phase, Seq, DType, NDim and Shape. The link
// fills the rest: Kind, Src, the Identity, Chunk, Chunks, Len, Edge and PayloadCRC. A received header has the
// PayloadCRC of the whole payload, which the link has checked, or 0 where it has not looked; its Edge means something to the
// link only.
type Message struct {
	Header  messages.Header
	Payload []byte
}

// Link is one rank's way to the others. It is safe for concurrent use by the actors of its rank.
type Link interface {
	// Send takes the payload: the caller must not touch it again. It does not wait for the receiver; bytes beyond
	// the credits of the channel are queued, in order, until the receiver has taken earlier ones.
	Send(Message) error
	// Consumed says that the owner of this rank has taken a received message; its payload may be reused and the
	// sender gets its credit back. It must be called exactly once for each message, with the header and the payload
	// as they were received.
	Consumed(Message)
}

// Lender is a link whose messages can be kept. Keep is Consumed, but for the payload: that is the owner's, who may give it back
// with Recycle, when nobody looks at it any more, or leave it to the garbage collector.
type Lender interface {
	Keep(Message)
	Recycle(payload []byte)
}

// Handler is what a rank gives to Open. Receive gets whole messages, in order for one (source, channel); Fail gets
// what the link could not heal (a lost or corrupt piece, a broken connection) as a *LinkError. All are called from
// goroutines of the link, or of a sender, and must neither block nor close the network.
type Handler struct {
	Receive func(Message)
	Fail    func(error)
	// Lost makes the link a healing one, if the network has those: losses, damage, silence, outages and other lives of
	// a peer do not fail it. The way to or from the peer begins anew instead, and messages that were on it are gone:
	// the owner asks the peer for what it lacks. Every beginning calls Lost once at each end, when messages can cross
	// again. What follows may repeat what has been received, and does so in order.
	Lost func(peer int)
	// Control gets the bodies that peers have given to Controller.Control; nil throws them away. The body is its own.
	Control func(src int, body []byte)
}

// Controller is a link that carries bodies of the layer above beside the messages. They never wait behind data, and
// may be lost, repeated, or overtake each other. Control takes the body, and does not wait.
type Controller interface {
	Control(dst int, body []byte) error
}

// Network opens the links of one run. All ranks of a process open theirs before any of them sends.
type Network interface {
	Open(rank int, h Handler) (Link, error)
	// Close ends all links; nothing is received afterwards. What still waits in a queue of a sender is thrown away.
	Close() error
	// Name is what reports call this transport: "nats", "direct".
	Name() string
}

// Wire does harm to the frames that a network sends, for tests of what is above it. package faulty has one.
type Wire interface {
	// Send says what becomes of a frame of src to dst. It is called in the order in which frames are sent on a
	// connection. A frame that is not to go at once is a copy.
	Send(src, dst int, frame []byte) []Flight
}

// Flight is a frame on its way.
type Flight struct {
	Frame []byte
	At    time.Time // when it goes; zero: at once. Those of one time go in the order in which they were given
}

// Troubled is a network that can say what it is at pains with although no link has failed yet: a connection that is lost
// and being made again. It ends in nil or in a Fail, within the network's own limit.
type Troubled interface{ Trouble() error }

// Stats counts what the links of a network have done since it began.
type Stats struct {
	Messages      uint64 // whole messages sent
	Pieces        uint64 // pieces they went in
	Bytes         uint64 // payload bytes sent
	Credits       uint64 // credit messages sent
	SlowConsumers uint64 // pieces a client dropped for want of room; each one fails the run, unless the link heals
	Reconnects    uint64 // connections that were lost and came back

	// Of healing links.
	Lost     uint64 // edges from here that began anew
	Dropped  uint64 // messages that were thrown away with them, or while their receiver was away
	Fenced   uint64 // frames of earlier lives of a peer, dropped
	Corrupt  uint64 // damaged frames, dropped
	Foreign  uint64 // frames of another run or build, dropped
	Controls uint64 // control bodies sent
}

// Counter is a network that counts.
type Counter interface{ Stats() Stats }
