package collective

import (
	"cmp"
	"fmt"
	"slices"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
)

// Outgoing is a message to be sent. Its payload is given away. The sender adds Run, Topology, Build and Incarnation.
type Outgoing struct {
	Header  messages.Header
	Payload []byte
}

// Incoming is a message that was received, exactly as the transport handed it over.
type Incoming struct {
	Header  messages.Header
	Payload []byte
}

// Completion says that a program's operation is done: Out is written, In and Out are the program's again.
type Completion struct {
	Program nn.Program
	Op      *nn.Op
}

func (c Completion) String() string {
	return fmt.Sprintf("completed %s of %s", c.Op, ProgramName(c.Program))
}

// OpCount counts one sort of operation of one axis.
type OpCount struct {
	Axis  mesh.Axis
	Tag   nn.Tag
	Kind  nn.OpKind
	Depth int
	// Count is operations of the group: member 0 counts them, so that a sum over ranks counts each once. A Put is
	// counted by its sender.
	Count int64
	Bytes int64 // payload that left this member
}

func (c OpCount) String() string {
	return fmt.Sprintf("%s %s %s depth=%d count=%d bytes=%d", c.Axis, c.Kind, c.Tag, c.Depth, c.Count, c.Bytes)
}

// Group is one member's side of the exchanges of one group. Every program of the rank has a channel of its own in it.
//
// The exchange is direct: in a reduction member j gets everybody's piece j (or whole value, if small) and combines
// in ascending rank order; in a gather each sends its piece to all.
type Group struct {
	place    Place
	axis     mesh.Axis
	self     int         // place in ranks
	ranks    []int       // of the members, ascending
	member   map[int]int // the inverse
	small    int         // SmallBytes
	channels map[nn.Program]*channel
	mail     map[nn.Program]*mailbox
	waiting  int // see PutsWaiting
	store    store
	counts   map[OpCount]*OpCount // key: Count and Bytes are 0
	received uint64
	dropped  uint64
}

// NewGroup is the machine of the group that place's rank is in on an axis.
func NewGroup(place Place, a mesh.Axis) *Group {
	ranks := place.Sizes.Group(place.Rank, a)
	g := &Group{place: place, axis: a, ranks: ranks, self: slices.Index(ranks, place.Rank), small: SmallBytes,
		member: map[int]int{}, channels: map[nn.Program]*channel{}, mail: map[nn.Program]*mailbox{}, counts: map[OpCount]*OpCount{}}
	for j, r := range ranks {
		g.member[r] = j
	}
	return g
}

// Begin enters an operation of a program. The completion is there at once if the other members are ahead. The
// errors are *OpError (the program's fault) and those of Deliver, for messages that were here before.
func (g *Group) Begin(p nn.Program, op *nn.Op) ([]Outgoing, *Completion, error) {
	if op.Axis != g.axis {
		return nil, nil, &OpError{Op: describe(op), Problem: fmt.Sprintf("it came to the %s group of %s", g.axis, g.place)}
	}
	if err := CheckOp(op, len(g.ranks), g.self); err != nil {
		return nil, nil, err
	}
	if m := g.mail[p]; m != nil && m.op != nil {
		return nil, nil, &OpError{Op: describe(op), Problem: fmt.Sprintf("program %s of %s is still in the get of %s", ProgramName(p), g.place, m.name)}
	}
	switch op.Kind {
	case nn.Put:
		return g.beginPut(p, op)
	case nn.Get:
		return g.beginGet(p, op)
	}
	c := g.channel(p)
	if c.op != nil {
		return nil, nil, &OpError{Op: describe(op), Problem: fmt.Sprintf("program %s of %s is still in %s", ProgramName(p), g.place, c.name)}
	}
	c.begin(op, c.seq, len(g.ranks), g.self, g.small)
	c.enter()
	out := g.send(nil, p, c, 0)
	if op.Kind == nn.AllGather {
		copy(c.slot(g.self), op.In) // after the copies for the others: In may lie in Out
	}
	g.count(c, 1, 0)
	if err := g.takeEarly(p, c); err != nil {
		return out, nil, err
	}
	return g.advance(out, p, c)
}

// takeEarly applies the messages of this operation that came before it began.
func (g *Group) takeEarly(p nn.Program, c *channel) error {
	for round := range c.rounds {
		for j := range g.ranks {
			if m, ok := c.takeEarly(j, c.first+uint64(round)); ok {
				if err := g.apply(p, c, j, m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Deliver takes a message. Its payload is read until Released returns it, and never changed. The errors are
// *MismatchError, *DivergenceError, *PayloadError, *AheadError, *LateError, *NameTwiceError and *AddressError; after one the
// group is of no more use.
func (g *Group) Deliver(h messages.Header, payload []byte) ([]Outgoing, []Completion, error) {
	j, isMember := g.member[int(h.Src)]
	if !isMember || j == g.self || int(h.Dst) != g.place.Rank || mesh.Axis(h.Chan>>8) != g.axis {
		return nil, nil, &AddressError{Self: g.place, Axis: g.axis.String(), Header: h}
	}
	g.received++
	m := Incoming{h, payload}
	p := nn.Program(h.Chan)
	if isPut(h) {
		done, err := g.deliverPut(j, m)
		return nil, done, err
	}
	c := g.channel(p)
	switch v, before := c.remember(j, h, payload); v {
	case duplicate:
		g.dropped++
		g.store.release(m)
		return nil, nil, nil
	case divergent:
		return nil, nil, g.divergence(before, m)
	}
	if c.over(h.Seq) {
		return nil, nil, g.tooLate(p, c, m)
	}
	if !c.current(h.Seq) {
		if !c.keep(j, m) {
			return nil, nil, &AheadError{Self: g.place, Peer: g.place.Of(int(h.Src)), Name: NameIn(h), Limit: AheadMax}
		}
		return nil, nil, nil
	}
	if err := g.apply(p, c, j, m); err != nil {
		return nil, nil, err
	}
	out, done, err := g.advance(nil, p, c)
	if done == nil {
		return out, nil, err
	}
	return out, []Completion{*done}, err
}

// tooLate is the error of a first message of an operation that ended without it: the peer is in another operation, or
// sent what was not asked for.
func (g *Group) tooLate(p nn.Program, c *channel, m Incoming) error {
	peer, theirs := g.place.Of(int(m.Header.Src)), NameIn(m.Header)
	ours, known := c.usedBy(m.Header.Seq)
	switch {
	case !known:
		return &LateError{Self: g.place, Peer: peer, Name: theirs, Seq: m.Header.Seq, Next: c.seq}
	case ours != theirs:
		return &MismatchError{Self: g.place, Peer: peer, Program: ProgramName(p), Ours: ours, Theirs: theirs, Over: true}
	}
	return &PayloadError{Self: g.place, Peer: peer, Name: ours, Found: len(m.Payload), Want: unasked}
}

// Released takes the messages that have been read since the last call: their payloads are their owner's again.
func (g *Group) Released() []Incoming {
	read := g.store.read
	g.store.read = nil
	return read
}

// Recycle hands over a buffer that nobody else uses, for a later payload: a released one, where the transport has
// given it to the receiver for good.
func (g *Group) Recycle(b []byte) { g.store.put(b) }

// apply checks a message of the current operation and takes it.
func (g *Group) apply(p nn.Program, c *channel, j int, m Incoming) error {
	peer := g.place.Of(g.ranks[j])
	if !c.matches(m.Header) {
		return &MismatchError{Self: g.place, Peer: peer, Program: ProgramName(p), Ours: c.name, Theirs: NameIn(m.Header)}
	}
	round := roundIn(m.Header)
	if want := c.want(round, g.self, j); len(m.Payload) != want {
		return &PayloadError{Self: g.place, Peer: peer, Name: c.name, Found: len(m.Payload), Want: want}
	}
	c.take(&g.store, round, j, m)
	return nil
}

// advance does what the messages that are there allow.
func (g *Group) advance(out []Outgoing, p nn.Program, c *channel) ([]Outgoing, *Completion, error) {
	if c.reduced(&g.store) && c.rounds == 2 {
		out = g.send(out, p, c, 1)
	}
	if !c.complete() {
		return out, nil, nil
	}
	done := &Completion{Program: p, Op: c.op}
	c.op = nil
	return out, done, nil
}

// send is one round's messages to all others, starting with the member after this one, so that not everybody's
// first message goes to member 0.
func (g *Group) send(out []Outgoing, p nn.Program, c *channel, round int) []Outgoing {
	h := c.name.header(p, round)
	h.Seq = c.first + uint64(round)
	h.Src = uint16(g.place.Rank)
	var sent int64
	for i := 1; i < len(g.ranks); i++ {
		j := (g.self + i) % len(g.ranks)
		from, sends := c.outgoing(round, g.self, j)
		if !sends {
			continue
		}
		payload := g.store.copyOf(from)
		h.Dst, h.Len = uint16(g.ranks[j]), uint32(len(payload))
		out = append(out, Outgoing{h, payload})
		sent += int64(len(payload))
	}
	g.count(c, 0, sent)
	return out
}

func (g *Group) channel(p nn.Program) *channel {
	c := g.channels[p]
	if c == nil {
		c = newChannel(len(g.ranks))
		g.channels[p] = c
	}
	return c
}

func (g *Group) count(c *channel, ops, bytes int64) {
	key := OpCount{Axis: g.axis, Tag: c.name.Tag, Kind: c.name.Kind, Depth: c.name.Site.Depth}
	n := g.counter(key)
	n.Bytes += bytes
	if g.self == 0 {
		n.Count += ops
	}
}

func (g *Group) counter(key OpCount) *OpCount {
	n := g.counts[key]
	if n == nil {
		n = &OpCount{Axis: key.Axis, Tag: key.Tag, Kind: key.Kind, Depth: key.Depth}
		g.counts[key] = n
	}
	return n
}

// Counts is what this member has done so far, in a fixed order.
func (g *Group) Counts() []OpCount {
	all := make([]OpCount, 0, len(g.counts))
	for _, n := range g.counts {
		all = append(all, *n)
	}
	return SumCounts(all)
}

// SumCounts adds counts of the same sort, in a fixed order: axis, depth, tag, kind.
func SumCounts(lists ...[]OpCount) []OpCount {
	sums := map[OpCount]OpCount{}
	for _, n := range slices.Concat(lists...) {
		key := n
		key.Count, key.Bytes = 0, 0
		n.Count += sums[key].Count
		n.Bytes += sums[key].Bytes
		sums[key] = n
	}
	all := make([]OpCount, 0, len(sums))
	for _, n := range sums {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b OpCount) int {
		return cmp.Or(cmp.Compare(a.Axis, b.Axis), cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// Missing is the ranks that have not arrived in the operation a program is in. If all have, it is those whose second
// round is outstanding: they wait for somebody themselves.
func (g *Group) Missing(p nn.Program) []int {
	if m := g.mail[p]; m != nil && m.op != nil {
		return []int{g.ranks[m.op.From[0].Member]}
	}
	c := g.channels[p]
	if c == nil || c.op == nil {
		return nil
	}
	for round := range c.rounds {
		var missing []int
		for j, r := range g.ranks {
			if j != g.self && !c.got[round][j] {
				missing = append(missing, r)
			}
		}
		if len(missing) > 0 {
			return missing
		}
	}
	return nil
}

// Received counts the messages that have come in: a stall detector's sign of life.
func (g *Group) Received() uint64 { return g.received }

// Dropped counts the duplicates among them.
func (g *Group) Dropped() uint64 { return g.dropped }
