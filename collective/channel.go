package collective

import (
	"hash/crc32"

	"phalanx/messages"
)

// AheadMax bounds the early messages kept of one peer on one channel. Two members are at most one operation (two
// messages) apart, because each operation needs both; the rest is room for one-way operations.
const AheadMax = 64

// rememberMax is how many received messages of one peer and channel are remembered for comparison with a duplicate:
// a peer that resends does so from its last watermark, which trails by fewer messages than AheadMax.
const rememberMax = 2 * AheadMax

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// channel is the order of one program's operations on this axis.
type channel struct {
	exchange
	seq   uint64 // of the next operation's first message
	peers []peer // by member
	used  [rememberMax]usedSeq
}

// usedSeq is the operation that used a seq.
type usedSeq struct {
	set  bool
	seq  uint64
	name OpName
}

// peer is what a channel knows of one other member.
type peer struct {
	early map[uint64]Incoming // by seq
	seen  [rememberMax]seen
}

// seen is a received message.
type seen struct {
	set   bool
	seq   uint64
	name  OpName
	round int
	print Print
}

func printOf(payload []byte) Print {
	return Print{CRC: crc32.Checksum(payload, castagnoli), Len: len(payload)}
}

func newChannel(size int) *channel { return &channel{peers: make([]peer, size)} }

// verdict is what remember thinks of a message.
type verdict uint8

const (
	fresh     verdict = iota
	duplicate         // the same bytes under the same name, or too old to be compared
	divergent         // other bytes under the same seq
)

// remember notes a message and compares it with the one that had its seq before.
func (c *channel) remember(member int, h messages.Header, payload []byte) (verdict, seen) {
	return note(c.peers[member].seen[:], h, payload)
}

// note is remember in a ring of seen messages.
func note(ring []seen, h messages.Header, payload []byte) (verdict, seen) {
	now := seen{set: true, seq: h.Seq, name: NameIn(h), round: roundIn(h), print: printOf(payload)}
	slot := &ring[h.Seq%uint64(len(ring))]
	switch {
	case !slot.set || slot.seq < h.Seq:
		before := *slot
		*slot = now
		return fresh, before
	case slot.seq > h.Seq:
		return duplicate, *slot
	case *slot == now:
		return duplicate, *slot
	}
	return divergent, *slot
}

// keep stores an early message; false beyond the limit.
func (c *channel) keep(member int, m Incoming) bool {
	p := &c.peers[member]
	if len(p.early) >= AheadMax {
		return false
	}
	if p.early == nil {
		p.early = map[uint64]Incoming{}
	}
	p.early[m.Header.Seq] = m
	return true
}

// takeEarly is the kept message with that seq.
func (c *channel) takeEarly(member int, seq uint64) (Incoming, bool) {
	p := &c.peers[member]
	m, ok := p.early[seq]
	delete(p.early, seq)
	return m, ok
}

// enter remembers which operation uses the channel's next seqs, and takes them.
func (c *channel) enter() {
	for range c.rounds {
		c.used[c.seq%rememberMax] = usedSeq{true, c.seq, c.name}
		c.seq++
	}
}

// usedBy is the operation that had a seq; false if that is forgotten.
func (c *channel) usedBy(seq uint64) (OpName, bool) {
	t := c.used[seq%rememberMax]
	return t.name, t.set && t.seq == seq
}

// over says whether a seq is of an operation that is over.
func (c *channel) over(seq uint64) bool { return seq < c.seq && !c.current(seq) }

// current says whether a seq is of the operation the channel is in.
func (c *channel) current(seq uint64) bool {
	return c.op != nil && seq >= c.first && seq < c.first+uint64(c.rounds)
}
