package collective

import (
	"fmt"

	"phalanx/messages"
	"phalanx/nn"
)

// PutsMax bounds the messages of one peer that wait for their Get on one channel. A pipeline schedule lets a stage be
// its in-flight bound of microbatches ahead of the next, each with one message a depth and one more; 32 stages of 8
// chunks stay below.
const PutsMax = 512

// mailbox is the messages from one member to another of one program: Put and Get. They have an order of their own, by
// sender, and are taken by name: none is waited for to get at another.
type mailbox struct {
	op   *nn.Op // the Get that waits; nil: none
	name OpName // of what it waits for
	out  []uint64
	in   []inbox // by member
}

// inbox is what came from one member and waits for its Get.
type inbox struct {
	kept map[OpName]Incoming // by sizeless name
	seen [2 * PutsMax]seen
}

func newMailbox(size int) *mailbox {
	return &mailbox{out: make([]uint64, size), in: make([]inbox, size)}
}

// NameTwiceError says that a message came while another of the same name from the same peer waits to be taken.
type NameTwiceError struct {
	Self, Peer Place
	Name       OpName
	Seq        uint64
}

func (e *NameTwiceError) Error() string {
	return fmt.Sprintf("%s got message %d of %s, %s, while an earlier one of that name waits: a name may be used again when it has been taken",
		e.Self, e.Seq, e.Peer, e.Name)
}

// putName is the name of the message that an operation sends or takes.
func putName(op *nn.Op) OpName {
	n := NameOf(op)
	n.Kind = nn.Put
	return n
}

// sizeless is a name by which a message is found: one of another size is found too, and refused.
func (n OpName) sizeless() OpName {
	n.Elements = 0
	return n
}

func (g *Group) mailbox(p nn.Program) *mailbox {
	if g.mail[p] == nil {
		g.mail[p] = newMailbox(len(g.ranks))
	}
	return g.mail[p]
}

// beginPut sends: the program can go on at once.
func (g *Group) beginPut(p nn.Program, op *nn.Op) ([]Outgoing, *Completion, error) {
	to := op.To[0].Member
	m, name := g.mailbox(p), putName(op)
	h := name.header(p, 0)
	payload := g.store.copyOf(op.In)
	h.Seq, h.Src, h.Dst, h.Len = m.out[to], uint16(g.place.Rank), uint16(g.ranks[to]), uint32(len(payload))
	m.out[to]++
	n := g.counter(OpCount{Axis: g.axis, Tag: op.Tag, Kind: nn.Put, Depth: op.Site.Depth})
	n.Count++
	n.Bytes += int64(len(payload))
	return []Outgoing{{h, payload}}, &Completion{Program: p, Op: op}, nil
}

// beginGet takes the message if it is there.
func (g *Group) beginGet(p nn.Program, op *nn.Op) ([]Outgoing, *Completion, error) {
	m := g.mailbox(p)
	m.op, m.name = op, putName(op)
	j := op.From[0].Member
	in, ok := m.in[j].kept[m.name.sizeless()]
	if !ok {
		return nil, nil, nil
	}
	delete(m.in[j].kept, m.name.sizeless())
	done, err := g.get(p, m, j, in)
	return nil, done, err
}

// get gives a message to the Get that waits for it.
func (g *Group) get(p nn.Program, m *mailbox, j int, in Incoming) (*Completion, error) {
	if len(in.Payload) != len(m.op.Out) {
		return nil, &PayloadError{Self: g.place, Peer: g.place.Of(g.ranks[j]), Name: m.name, Found: len(in.Payload), Want: len(m.op.Out)}
	}
	copy(m.op.Out, in.Payload)
	g.store.release(in)
	done := &Completion{Program: p, Op: m.op}
	m.op = nil
	return done, nil
}

// deliverPut takes a message that one member put.
func (g *Group) deliverPut(j int, in Incoming) ([]Completion, error) {
	h, p := in.Header, nn.Program(in.Header.Chan)
	m, name := g.mailbox(p), NameIn(in.Header)
	box := &m.in[j]
	switch v, before := note(box.seen[:], h, in.Payload); v {
	case duplicate:
		g.dropped++
		g.store.release(in)
		return nil, nil
	case divergent:
		return nil, g.divergence(before, in)
	}
	if m.op != nil && m.op.From[0].Member == j && m.name.sizeless() == name.sizeless() {
		done, err := g.get(p, m, j, in)
		if err != nil {
			return nil, err
		}
		return []Completion{*done}, nil
	}
	switch _, twice := box.kept[name.sizeless()]; {
	case twice:
		return nil, &NameTwiceError{Self: g.place, Peer: g.place.Of(int(h.Src)), Name: name, Seq: h.Seq}
	case len(box.kept) >= PutsMax:
		return nil, &AheadError{Self: g.place, Peer: g.place.Of(int(h.Src)), Name: name, Limit: PutsMax}
	case box.kept == nil:
		box.kept = map[OpName]Incoming{}
	}
	box.kept[name.sizeless()] = in
	g.waiting = max(g.waiting, len(box.kept))
	return nil, nil
}

// divergence is the error of a message whose seq was used for other bytes.
func (g *Group) divergence(before seen, in Incoming) error {
	return &DivergenceError{Self: g.place, Peer: g.place.Of(int(in.Header.Src)), Name: before.name, Seq: in.Header.Seq,
		First: before.print, Second: printOf(in.Payload)}
}

// PutsWaiting is the largest number of messages of one peer that have waited for their Get at once.
func (g *Group) PutsWaiting() int { return g.waiting }

// isPut says whether a message was put by one member, no part of a collective.
func isPut(h messages.Header) bool { return nn.OpKind(h.Op>>kindShift) == nn.Put }
