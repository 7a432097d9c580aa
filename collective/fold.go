package collective

import (
	"phalanx/nn"
	"phalanx/tensor"
)

// fold combines the parts of all members in ascending rank order, whatever the order in which they come: one left
// fold per element, ((p0 ∘ p1) ∘ p2) …, so that one round and two rounds, and every transport, give the same bits.
// Received parts are read where they lie; the result goes straight to its target where that is possible.
type fold struct {
	dtype  tensor.DType
	how    nn.ReduceKind
	self   int
	mine   []byte // this member's part: never written, unless target is the same bytes
	target []byte
	direct bool // target may be written as soon as mine has been read
	parts  []part
	next   int    // the member to be combined next
	left   []byte // the members before it, combined
	first  part   // member 0's part, while left is that
	buffer []byte // of the store, when neither part 0 nor target may hold left
}

// part is what a member contributes: the payload of a message to be released, or a buffer of the store.
type part struct {
	bytes   []byte
	message Incoming
	held    bool // bytes are the message's
}

// start clears the machine for one reduction of a group of size members.
func (f *fold) start(op *nn.Op, size, self int, mine, target []byte) {
	parts := f.parts
	if len(parts) != size {
		parts = make([]part, size)
	}
	clear(parts)
	same := len(mine) == 0 || &mine[0] == &target[0]
	*f = fold{dtype: op.DType, how: op.Reduce, self: self, mine: mine, target: target, parts: parts,
		direct: alignedFor(op.DType, target) && (same || !overlap(mine, target))}
}

// add hands over a member's part.
func (f *fold) add(s *store, member int, m Incoming) {
	f.parts[member] = s.part(f.dtype, m)
}

// advance combines what can be combined and reports whether all members are; the target is written then.
func (f *fold) advance(s *store) bool {
	for ; f.next < len(f.parts); f.next++ {
		p := f.parts[f.next]
		if f.next == f.self {
			p.bytes = f.mine
			if !alignedFor(f.dtype, p.bytes) {
				p.bytes = s.copyOf(p.bytes)
			}
		} else if p.bytes == nil {
			return false
		}
		f.take(s, p)
		f.parts[f.next] = part{}
	}
	f.finish(s)
	return true
}

// take is one step of the fold.
func (f *fold) take(s *store, p part) {
	if f.next == 0 {
		f.left, f.first = p.bytes, p
		return
	}
	to := f.target
	if !f.direct || f.next < f.self {
		if f.buffer == nil {
			f.buffer = s.get(len(f.target))
		}
		to = f.buffer
	}
	combine(to, f.left, p.bytes, f.dtype, f.how)
	f.left = to
	f.drop(s, p)
	if f.next == 1 {
		f.drop(s, f.first)
		f.first = part{}
	}
}

// drop lets go of a part that has been read.
func (f *fold) drop(s *store, p part) {
	switch {
	case p.held:
		s.release(p.message)
	case len(p.bytes) > 0 && (len(f.mine) == 0 || &p.bytes[0] != &f.mine[0]):
		s.put(p.bytes)
	}
}

// finish puts the result in its place and gives the buffer back.
func (f *fold) finish(s *store) {
	if !f.direct {
		copy(f.target, f.left)
	}
	if f.buffer != nil {
		s.put(f.buffer)
	}
	f.left, f.buffer, f.mine, f.target = nil, nil, nil, nil
}
