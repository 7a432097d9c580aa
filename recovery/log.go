package recovery

import (
	"sort"
)

// outLog is what a rank has sent on one edge and a peer may ask for.
type outLog struct {
	floor   uint64 // number of entries[0]
	entries []Message
	told    uint64 // the peer has everything before this one
	slimmed uint64 // payloads before this one are forgotten
}

func (o *outLog) next() uint64 { return o.floor + uint64(len(o.entries)) }

// before is the number of the first message of a step or a later one.
func (o *outLog) before(step uint32) uint64 {
	return o.floor + uint64(sort.Search(len(o.entries), func(i int) bool { return o.entries[i].Header.Step >= step }))
}

// trim forgets what was sent before a step; it returns the bytes.
func (o *outLog) trim(step uint32) (bytes int64) {
	n := int(o.before(step) - o.floor)
	for i := range n {
		bytes += int64(len(o.entries[i].Payload))
		o.entries[i] = Message{}
	}
	o.entries, o.floor = o.entries[n:], o.floor+uint64(n)
	return bytes
}

// slim forgets the payloads of what was sent before a number; it returns the bytes. Their steps stay: Boundary counts them.
func (o *outLog) slim(before uint64) (bytes int64) {
	before = min(before, o.next())
	for n := max(o.slimmed, o.floor); n < before; n++ {
		m := &o.entries[n-o.floor]
		bytes += int64(len(m.Payload))
		m.Payload = nil
	}
	o.slimmed = max(o.slimmed, before)
	return bytes
}

// inbox is what a rank has received on one edge.
type inbox struct {
	need   uint64          // the next number
	kept   map[uint64]held // later ones
	first  uint64          // number of seen[0]
	seen   []print         // of delivered messages, for comparison and for Boundary
	handed int             // messages that the group has and has not read
	// While an answer to a request is on its way, or something could not be kept: the peer has more from until on.
	more  bool
	until uint64

	asked    int64 // time of the last request
	hasty    bool  // it was made because of the time, and the first duplicate after it says that it was in vain
	patience int64 // until the next
}

// later notes that the peer has more from a number on, which is to be asked for when everything before it is there.
func (in *inbox) later(from uint64) {
	if !in.more || from < in.until {
		in.more, in.until = true, from
	}
}

// held is a message that waits, with the checksum of its payload.
type held struct {
	Message
	crc uint32
}

// print is what is remembered of a delivered message.
type print struct{ step, crc uint32 }

// note says that a message is delivered.
func (in *inbox) note(m held) {
	in.seen = append(in.seen, print{m.Header.Step, m.crc})
	in.need++
	in.patience = 0
}

// crcOf is the checksum that a number had, if it is remembered.
func (in *inbox) crcOf(log uint64) (uint32, bool) {
	if m, ok := in.kept[log]; ok {
		return m.crc, true
	}
	if log < in.first || log >= in.first+uint64(len(in.seen)) {
		return 0, false
	}
	return in.seen[log-in.first].crc, true
}

// before is the number of the first message of a step or a later one.
func (in *inbox) before(step uint32) uint64 {
	return in.first + uint64(sort.Search(len(in.seen), func(i int) bool { return in.seen[i].step >= step }))
}

// trim forgets what was received before a step.
func (in *inbox) trim(step uint32) {
	n := in.before(step) - in.first
	in.seen, in.first = in.seen[n:], in.first+n
}
