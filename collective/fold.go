package collective

import (
	"fmt"
	"math"
	"unsafe"

	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// fold combines the parts of all members in ascending rank order, whatever the order in which they come: one left
// fold per element, ((p0 ∘ p1) ∘ p2) …, so that one round and two rounds, and every transport, give the same bits.
type fold struct {
	dtype tensor.DType
	how   nn.ReduceKind
	self  int
	mine  []byte   // this member's part: read, never written
	parts [][]byte // by member; nil until it is there and after it was combined
	next  int      // the member to be combined next
	acc   []byte   // the members before it, combined
}

// start clears the machine for one reduction of a group of size members.
func (f *fold) start(op *nn.Op, size, self int, mine []byte) {
	f.dtype, f.how, f.self, f.mine, f.next, f.acc = op.DType, op.Reduce, self, mine, 0, nil
	if len(f.parts) != size {
		f.parts = make([][]byte, size)
	}
	clear(f.parts)
}

// add hands over a member's part; empty parts are not nil.
func (f *fold) add(member int, part []byte) { f.parts[member] = part[:len(part):len(part)] }

// advance combines what can be combined and reports whether all members are.
func (f *fold) advance(p *pool) bool {
	for ; f.next < len(f.parts); f.next++ {
		part := f.parts[f.next]
		switch {
		case f.next == f.self:
			f.take(p, f.mine, false)
		case part == nil:
			return false
		default:
			f.take(p, part, true)
			f.parts[f.next] = nil
		}
	}
	return true
}

// take is one step of the fold. owned: the part may be kept, and is recycled if it is not.
func (f *fold) take(p *pool, part []byte, owned bool) {
	if f.acc == nil {
		f.acc = part
		if !owned || !alignedFor(f.dtype, part) {
			f.acc = append(p.get(len(part))[:0], part...)
		}
		return
	}
	if !alignedFor(f.dtype, part) {
		copied := append(p.get(len(part))[:0], part...)
		combine(f.acc, copied, f.dtype, f.how)
		p.put(copied)
	} else {
		combine(f.acc, part, f.dtype, f.how)
	}
	if owned {
		p.put(part)
	}
}

// finish writes the result and gives the accumulator back.
func (f *fold) finish(p *pool, out []byte) {
	copy(out, f.acc)
	p.put(f.acc)
	f.acc, f.mine = nil, nil
}

// alignedFor says whether bytes may be viewed as elements. A transport may hand over the middle of a buffer.
func alignedFor(d tensor.DType, b []byte) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(&b[0]))%uintptr(d.Size()) == 0
}

// combine is the one place where values of different members meet: acc[i] = acc[i] ∘ part[i] (HOUSE §6).
func combine(acc, part []byte, d tensor.DType, how nn.ReduceKind) {
	switch {
	case d == tensor.F32 && how == nn.Sum:
		kernel.AddInto(tensor.View[float32](acc), tensor.View[float32](part))
	case d == tensor.F64 && how == nn.Sum:
		kernel.AddInto(tensor.View[float64](acc), tensor.View[float64](part))
	case d == tensor.I32 && how == nn.Sum:
		addInts(tensor.View[int32](acc), tensor.View[int32](part))
	case d == tensor.I64 && how == nn.Sum:
		addInts(tensor.View[int64](acc), tensor.View[int64](part))
	case d == tensor.F32:
		maxFloats(tensor.View[float32](acc), tensor.View[float32](part), math.Float32frombits(0x7fc00000))
	case d == tensor.F64:
		maxFloats(tensor.View[float64](acc), tensor.View[float64](part), math.Float64frombits(0x7ff8000000000000))
	case d == tensor.I32:
		maxInts(tensor.View[int32](acc), tensor.View[int32](part))
	case d == tensor.I64:
		maxInts(tensor.View[int64](acc), tensor.View[int64](part))
	case how == nn.Max && (d == tensor.U8 || d == tensor.Bool): // for BOOL, max is or
		maxInts(acc, part)
	default:
		panic(fmt.Sprintf("collective: no %s of %s; CheckOp must have refused it", how, d))
	}
}

func addInts[T int32 | int64](acc, part []T) {
	for i, v := range part {
		acc[i] += v
	}
}

func maxInts[T int32 | int64 | uint8](acc, part []T) {
	for i, v := range part {
		acc[i] = max(acc[i], v)
	}
}

// maxFloats: a NaN on any member is the one quiet NaN on all; +0 is above −0.
func maxFloats[T tensor.Float](acc, part []T, nan T) {
	for i, v := range part {
		m := max(acc[i], v)
		if m != m {
			m = nan
		}
		acc[i] = m
	}
}
