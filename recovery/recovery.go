// Package recovery is one rank's part in restarting ranks alone: what it has sent, what it has received, which of its
// steps are durable, and which step all ranks can go back to. It is a pure machine: messages, control messages and the
// time go in, effects come out.
//
// A rank receives by name and adds in a fixed order, so what it sends follows from its state and its inputs. The sender
// keeps what it sent in memory; a receiver that misses something asks for it by number; a restarted rank computes again
// what it had sent, and its peers drop what they have.
//
// Numbers. The messages of a program to one rank on one axis are an edge: (peer, channel). They are numbered densely in
// the order of the program (Header.Log), which is the same in every life of the rank.
package recovery

import (
	"fmt"
	"slices"

	"phalanx/messages"
)

// Edge is one channel to or from a peer.
type Edge struct {
	Peer uint16
	Chan uint16
}

// String reads "3/0x0400".
func (e Edge) String() string { return fmt.Sprintf("%d/%#04x", e.Peer, e.Chan) }

// Compare orders edges by peer, then by channel.
func (e Edge) Compare(o Edge) int {
	if e.Peer != o.Peer {
		return int(e.Peer) - int(o.Peer)
	}
	return int(e.Chan) - int(o.Chan)
}

// Message is a data message. A payload is never changed, and is kept until no rank can ask for it.
type Message struct {
	Header  messages.Header
	Payload []byte
}

// Options say who a rank is.
type Options struct {
	Rank, World int
	Incarnation uint32 // of this life, from the supervisor; above those of all earlier lives
	// Window is the most messages of one edge that answer a request; 0: WindowDefault.
	Window int
	// Patience is how long a rank waits for a message before it asks for it, in the unit of the times given; doubled
	// with every request in vain up to PatienceMax. 0: the defaults.
	Patience, PatienceMax int64
	// Collector is the peer that the ranks' reports go to and that never dies; 0: there is none, since rank 0 is a rank. It
	// takes part in the commit: its durable steps are those before which it has every report. What it has it cannot ask
	// for again, so the log keeps no payload of it.
	Collector int
	// Every is the number of steps between snapshots, see Due; 0: there are none.
	Every uint32
	// LogMax is how many bytes the log should have at most; above it snapshots come closer together. 0: any number.
	LogMax int64
	// Planted are deliberate bugs, for tests of the tests.
	Planted Bug
}

// WindowDefault bounds an answer: a peer of a restarted rank is a few steps of messages ahead, and what is still missing
// after an answer is asked for at once.
const WindowDefault = 64

// The default patience, in nanoseconds.
const (
	PatienceDefault    = 50_000_000
	PatienceMaxDefault = 2_000_000_000
)

// KeptMax bounds the messages of one edge that are kept out of order. Members of a group are a few operations apart; a sender
// that waits for nobody can be further ahead, and what cannot be kept is asked for again.
const KeptMax = 1024

// HandMax bounds the messages of one edge that a group has been handed and has not read. A rank that computes again
// gets steps of messages at once, and a group keeps a few operations of them.
const HandMax = 32

// Rank is the machine.
type Rank struct {
	o     Options
	out   map[Edge]*outLog
	in    map[Edge]*inbox
	peers []peer
	start uint32            // step at which this life began
	has   map[uint16]uint64 // what the collector has, as it has told this life: numbers by channel; nil: it has not yet
	gen   uint32            // all ranks can go back to the beginning of this step
	ready bool
	done  bool

	every uint32 // steps between snapshots, as far as this rank knows
	rto   int64  // patience with a message that is due: more where requests were in vain
	calm  int    // messages delivered since rto last changed

	asked    int64 // time at which it last told that it is done
	patience int64 // until it tells that again; 0: it has not yet

	bytes             int64  // in the log
	first, last       uint32 // steps of messages in it: from first on, and last is the greatest that was sent
	peak              Peak
	dropped, replayed uint64
	requests, vain    uint64
}

// peer is what a rank knows of another.
type peer struct {
	incarnation uint32
	durable     []uint32 // ascending
	done        bool
}

// State is what a snapshot of a rank holds of this machine: how far every edge was at the beginning of a step.
type State struct {
	Step uint32
	Sent map[Edge]uint64 // number of the next message
	Need map[Edge]uint64
}

// New is a rank at the beginning of a step: State{} of the first one, or what Boundary returned when the snapshot was
// taken. durable are its own snapshots that can be read, gen the last step that was committed.
func New(o Options, at State, gen uint32, durable []uint32) *Rank {
	if o.Window == 0 {
		o.Window = WindowDefault
	}
	if o.Patience == 0 {
		o.Patience, o.PatienceMax = PatienceDefault, PatienceMaxDefault
	}
	r := &Rank{o: o, out: map[Edge]*outLog{}, in: map[Edge]*inbox{}, peers: make([]peer, o.World), gen: gen, start: at.Step, first: at.Step, last: at.Step, every: o.Every, rto: o.Patience}
	r.peers[o.Rank].durable = sorted(durable)
	r.peers[o.Rank].incarnation = o.Incarnation
	for e, n := range at.Sent {
		r.out[e] = &outLog{floor: n}
	}
	for e, n := range at.Need {
		r.in[e] = &inbox{need: n, first: n}
	}
	return r
}

// Effects are what a call wants done, in this order.
type Effects struct {
	// Deliver goes to the groups, in this order, and all of it before what a later call delivers: Read may be called when
	// the last of a list has been handed over, not in between.
	Deliver []Message
	Publish []Message // to the link
	Control []Control // to peers
	// Committed says that the generation moved: snapshots and log entries before Generation can go.
	Committed bool
	// Every, if not 0, says that snapshots are that many steps apart from now on, see Due.
	Every uint32
	// Jump says that this life is too old: the rank starts again from its own snapshot of that step.
	Jump   bool
	JumpTo uint32
}

// DivergenceError says that one number came twice with different bytes.
type DivergenceError struct {
	Rank          int
	Edge          Edge
	Log           uint64
	First, Second uint32 // CRC-32C
	Header        messages.Header
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("rank %d got message %d of edge %s twice: first with crc %08x, then %08x (%s); a rank must send the same bytes in every life: run the same build everywhere",
		e.Rank, e.Log, e.Edge, e.First, e.Second, e.Header.String())
}

// LostError says that a rank needs what nobody has any more.
type LostError struct {
	Rank              int
	Edge              Edge
	Need, Floor       uint64
	Start, Generation uint32
}

func (e *LostError) Error() string {
	return fmt.Sprintf("rank %d, restarted at step %d, needs message %d of edge %s, which has those from %d: generation %d was committed, and the rank has no later snapshot than the one it began with",
		e.Rank, e.Start, e.Need, e.Edge, e.Floor, e.Generation)
}

// Start ends recovery: groups and programs are there, and what has come so far is delivered. Peers are told of the new
// life and asked for what is missing. Nothing is delivered before it.
func (r *Rank) Start() (fx Effects) {
	r.ready = true
	for p := range r.o.World {
		if p != r.o.Rank {
			fx.Control = append(fx.Control, r.control(Hello, p), r.needs(p))
		}
	}
	for _, e := range edges(r.in) {
		r.deliver(e, &fx)
	}
	return fx
}

// Send numbers a message of a program, keeps it, and publishes it unless the peer has it already.
func (r *Rank) Send(m Message) (fx Effects) {
	e := Edge{m.Header.Dst, m.Header.Chan}
	o := r.out[e]
	if o == nil {
		o = &outLog{}
		r.out[e] = o
	}
	m.Header.Log, m.Header.Incarnation = o.next(), r.o.Incarnation
	if m.Header.Log >= o.told {
		fx.Publish = append(fx.Publish, m)
	} else if r.collects(e.Peer) {
		m.Payload = nil // it never asks for it
	}
	o.entries = append(o.entries, m)
	r.hold(m)
	r.adapt(m.Header.Step, &fx)
	return fx
}

// collects reports whether a peer is the collector.
func (r *Rank) collects(peer uint16) bool { return r.o.Collector > 0 && int(peer) == r.o.Collector }

// Receive takes a message of a peer.
func (r *Rank) Receive(m Message) (fx Effects, err error) {
	e := Edge{m.Header.Src, m.Header.Chan}
	in := r.in[e]
	if in == nil {
		in = &inbox{}
		r.in[e] = in
	}
	crc := m.Header.PayloadCRC // as the link has checked it
	if crc == 0 {
		crc = messages.Checksum(m.Payload)
	}
	if before, known := in.crcOf(m.Header.Log); known && before != crc {
		return fx, &DivergenceError{Rank: r.o.Rank, Edge: e, Log: m.Header.Log, First: before, Second: crc, Header: m.Header}
	}
	if m.Header.Log < in.need {
		r.dropped++
		r.hasty(in)
		if r.o.Planted == DoubleApply && r.ready {
			fx.Deliver = append(fx.Deliver, m)
		}
		return fx, nil
	}
	if m.Header.Log >= in.need+KeptMax {
		in.later(m.Header.Log)
		return fx, nil
	}
	if _, twice := in.kept[m.Header.Log]; twice {
		r.dropped++
		return fx, nil
	}
	if in.kept == nil {
		in.kept = map[uint64]held{}
	}
	in.kept[m.Header.Log] = held{m, crc}
	r.deliver(e, &fx)
	return fx, nil
}

// deliver hands on what is next in order, once recovery is over.
func (r *Rank) deliver(e Edge, fx *Effects) {
	if !r.ready && r.o.Planted != EarlyApply {
		return
	}
	in := r.in[e]
	for in.handed < HandMax {
		m, ok := in.kept[in.need]
		if !ok {
			return
		}
		in.handed++
		delete(in.kept, in.need)
		in.note(m)
		r.relax()
		fx.Deliver = append(fx.Deliver, m.Message)
		if in.more && in.need >= in.until {
			in.more = false
			fx.Control = append(fx.Control, r.needs(int(e.Peer)))
		}
	}
}

// Read says that a group has read a message of an edge: it can be handed another.
func (r *Rank) Read(e Edge) (fx Effects) {
	r.in[e].handed--
	r.deliver(e, &fx)
	return fx
}

// Boundary is the state at the beginning of a step: every message of earlier steps has been used, none of later ones. It
// is right from the end of the step before until the generation passes it.
func (r *Rank) Boundary(step uint32) State {
	s := State{Step: step, Sent: map[Edge]uint64{}, Need: map[Edge]uint64{}}
	for e, o := range r.out {
		s.Sent[e] = o.before(step)
	}
	for e, in := range r.in {
		s.Need[e] = in.before(step)
	}
	return s
}

// Saved says that the snapshot of a step is durable.
func (r *Rank) Saved(step uint32) (fx Effects) {
	me := &r.peers[r.o.Rank]
	me.durable = sorted(append(me.durable, step))
	r.gossip(&fx)
	r.commit(&fx)
	return fx
}

func (r *Rank) gossip(fx *Effects) {
	for p := range r.o.World {
		if p != r.o.Rank {
			fx.Control = append(fx.Control, r.control(Durable, p))
		}
	}
}

// Lost says that everything on the way from and to a peer may be lost, in both directions: their link has begun anew. It
// tells the peer what this rank has, which asks for the rest. The other end is told the same.
func (r *Rank) Lost(peer int) (fx Effects) {
	if r.ready {
		fx.Control = append(fx.Control, r.needs(peer))
	}
	return fx
}

// Finish says that the rank's programs have ended. It goes on answering until Over.
func (r *Rank) Finish() (fx Effects) {
	r.done = true
	r.peers[r.o.Rank].done = true
	for p := range r.o.World {
		if p != r.o.Rank {
			fx.Control = append(fx.Control, r.control(Done, p))
		}
	}
	return fx
}

// Over reports whether every peer is known to be done, the collector too: nobody will ask for anything. Others may not know
// it yet, so a process ends when it is told to, not by itself.
func (r *Rank) Over() bool {
	return !slices.ContainsFunc(r.peers, func(p peer) bool { return !p.done })
}

// Generation is the step that all ranks can go back to.
func (r *Rank) Generation() uint32 { return r.gen }

// Ready reports whether recovery is over.
func (r *Rank) Ready() bool { return r.ready }

// Stats are figures for reports.
type Stats struct {
	LogBytes          int64
	Peak              Peak   // of the log, in this life
	Dropped, Replayed uint64 // messages that came again; messages that were sent again
	Asked, Hasty      uint64 // requests by Tick; those of them that were in vain: the message was on its way
}

// Stats are the figures so far.
func (r *Rank) Stats() Stats {
	return Stats{r.bytes, r.peak, r.dropped, r.replayed, r.requests, r.vain}
}

// edges are the keys of a map in order: nothing depends on the order of maps.
func edges[V any](m map[Edge]V) []Edge {
	list := make([]Edge, 0, len(m))
	for e := range m {
		list = append(list, e)
	}
	slices.SortFunc(list, Edge.Compare)
	return list
}

func sorted(steps []uint32) []uint32 {
	s := slices.Clone(steps)
	slices.Sort(s)
	return slices.Compact(s)
}

// Floor is the number that the log of an edge begins with: what is before it is freed.
func (r *Rank) Floor(e Edge) uint64 {
	if o := r.out[e]; o != nil {
		return o.floor
	}
	return 0
}

// Sent is the number of messages that this rank has sent on an edge, in all of its lives up to here.
func (r *Rank) Sent(e Edge) uint64 {
	if o := r.out[e]; o != nil {
		return o.next()
	}
	return 0
}
