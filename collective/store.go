package collective

import (
	"math/bits"
	"unsafe"

	"phalanx/tensor"
)

// storeBytesMax bounds what a group keeps for later: the pieces of one 16 MiB all-reduce of a few members, in and
// out. Beyond it a buffer is left to the garbage collector.
const storeBytesMax = 64 << 20

// classMin is the smallest buffer kept, 64 bytes: Go aligns such an allocation for every element type.
const classMin = 6

// store is a group's free list of payload buffers, by powers of two, and the messages that have been read. A buffer
// that is sent is gone; one that was received may take its place, see Group.Recycle.
type store struct {
	free [40][][]byte // class k: capacity at least 2^k, below 2^(k+1)
	held int          // bytes of capacity
	read []Incoming
}

// get is a buffer of n bytes with undefined contents, never nil.
func (s *store) get(n int) []byte {
	if n == 0 {
		return []byte{}
	}
	class := max(classMin, bits.Len(uint(n-1))) // the smallest class whose every buffer holds n
	if list := s.free[class]; len(list) > 0 {
		b := list[len(list)-1]
		s.free[class] = list[:len(list)-1]
		s.held -= cap(b)
		return b[:n]
	}
	return make([]byte, n, 1<<class)
}

// copyOf is a buffer with the same contents.
func (s *store) copyOf(b []byte) []byte { return append(s.get(len(b))[:0], b...) }

// put takes a buffer that nobody else uses. One from the middle of a transport's memory is not kept: it could not be
// viewed as elements later.
func (s *store) put(b []byte) {
	if cap(b) < 1<<classMin || s.held+cap(b) > storeBytesMax || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		return
	}
	class := bits.Len(uint(cap(b))) - 1
	s.free[class] = append(s.free[class], b[:0])
	s.held += cap(b)
}

// release notes that a message is of no more use.
func (s *store) release(m Incoming) { s.read = append(s.read, m) }

// part makes a message ready to be combined: as it lies, if its bytes can be viewed as elements, else copied.
func (s *store) part(d tensor.DType, m Incoming) part {
	switch {
	case len(m.Payload) == 0:
		return part{bytes: []byte{}, message: m, held: true}
	case alignedFor(d, m.Payload):
		return part{bytes: m.Payload, message: m, held: true}
	}
	s.release(m)
	return part{bytes: s.copyOf(m.Payload)}
}
