package collective

import (
	"math/bits"
	"unsafe"
)

// poolBytesMax bounds what a group keeps for later: the pieces of one 16 MiB all-reduce of a few members, in and out.
// Beyond it a received buffer is left to the garbage collector.
const poolBytesMax = 64 << 20

// poolClassMin is the smallest buffer kept, 64 bytes: Go aligns such an allocation for every element type.
const poolClassMin = 6

// pool is a group's free list of payload buffers, by powers of two. A buffer that is sent is gone; those that arrive
// take its place, so in the steady state nothing is allocated.
type pool struct {
	free [40][][]byte // class k: capacity at least 2^k, below 2^(k+1)
	held int          // bytes of capacity
}

// get is a buffer of n bytes with undefined contents, never nil.
func (p *pool) get(n int) []byte {
	if n == 0 {
		return []byte{}
	}
	class := max(poolClassMin, bits.Len(uint(n-1))) // the smallest class whose every buffer holds n
	if list := p.free[class]; len(list) > 0 {
		b := list[len(list)-1]
		p.free[class] = list[:len(list)-1]
		p.held -= cap(b)
		return b[:n]
	}
	return make([]byte, n, 1<<class)
}

// put takes a buffer that nobody else uses. One from the middle of a transport's memory is not kept: it could not be
// viewed as elements later.
func (p *pool) put(b []byte) {
	if cap(b) < 1<<poolClassMin || p.held+cap(b) > poolBytesMax || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		return
	}
	class := bits.Len(uint(cap(b))) - 1
	p.free[class] = append(p.free[class], b[:0])
	p.held += cap(b)
}
