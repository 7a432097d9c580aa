// Package faulty does harm on purpose. Wrap puts a seeded plan before a network, by which chosen messages are lost,
// repeated, delayed or damaged: the layers above must notice. A Wire does the same to the frames that healing links
// send, on both of their connections, and cuts them: the links must heal. Wires are what faults of scenarios become.
package faulty

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"phalanx/messages"
	"phalanx/transport"
)

// Fault is what happens to a message.
type Fault uint8

// The faults.
const (
	None      Fault = iota
	Drop            // it never arrives, and nobody is told: only the layer above can notice
	Duplicate       // it arrives twice
	Delay           // it arrives after later messages of its channel
	Corrupt         // one bit of header or payload flips under the checksums: the receiver's Fail is called
)

// Plan says which messages suffer. The choice depends on the seed and on the message's place in its channel, never on
// the order in which channels run.
type Plan struct {
	Seed                            uint64
	Drop, Duplicate, Delay, Corrupt float64 // probabilities; their sum is at most 1
	// Choose decides alone when it is set. Nth counts the messages of (Src, Dst, Chan) from 0.
	Choose func(h messages.Header, nth int) Fault
	// Wait is the longest time a delayed message waits for later ones to pass it; default 20 ms.
	Wait time.Duration
}

const waitDefault = 20 * time.Millisecond

// Network is a network with faults.
type Network struct {
	inner  transport.Network
	plan   Plan
	gate   transport.Gate
	mu     sync.Mutex
	fails  map[int]func(error) // by rank of this process
	counts [Corrupt + 1]atomic.Uint64
}

// Wrap puts faults in front of a network. It owns the network from then on.
func Wrap(inner transport.Network, plan Plan) *Network {
	if plan.Wait == 0 {
		plan.Wait = waitDefault
	}
	return &Network{inner: inner, plan: plan, fails: map[int]func(error){}}
}

// Name is the inner network's name with "faulty " in front.
func (n *Network) Name() string { return "faulty " + n.inner.Name() }

// Count is how many messages have met a fault so far.
func (n *Network) Count(f Fault) uint64 { return n.counts[f].Load() }

// Trouble is the inner network's.
func (n *Network) Trouble() error {
	if t, ok := n.inner.(transport.Troubled); ok {
		return t.Trouble()
	}
	return nil
}

// Open opens a link that misbehaves when it sends.
func (n *Network) Open(rank int, h transport.Handler) (transport.Link, error) {
	inner, err := n.inner.Open(rank, h)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails[rank] = h.Fail
	return &link{Link: inner, net: n, rank: rank, nth: map[channel]int{}, late: map[channel]*transport.Message{}}, nil
}

// Close ends the inner network; delayed messages are thrown away.
func (n *Network) Close() error {
	n.gate.Close()
	return n.inner.Close()
}

// choose is the fault of a message: drawn from its name's hash, so that it is the same in every run.
func (n *Network) choose(h *messages.Header, nth int) Fault {
	if n.plan.Choose != nil {
		return n.plan.Choose(*h, nth)
	}
	key := uint64(h.Src)<<48 | uint64(h.Dst)<<32 | uint64(h.Chan)
	x := rand.New(rand.NewPCG(n.plan.Seed^key, uint64(nth))).Float64()
	for i, p := range []float64{n.plan.Drop, n.plan.Duplicate, n.plan.Delay, n.plan.Corrupt} {
		if x < p {
			return Drop + Fault(i)
		}
		x -= p
	}
	return None
}
