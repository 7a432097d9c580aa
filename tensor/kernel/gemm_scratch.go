package kernel

import (
	"sync"

	"phalanx/tensor"
)

// scratch is what one running product needs: its tile and its pack buffers. It has one owner at a time and is kept
// for the next product, so that nothing is allocated in a steady state.
type scratch[T tensor.Float] struct {
	tile tile[T]
	a, b []T
	c    []T // a tile of a turned product
	part product[T]
}

// scratches is a bounded stack of scratches without an owner.
type scratches[T tensor.Float] struct {
	mu   sync.Mutex
	free []*scratch[T]
}

// scratchesMax bounds the spare scratches, about 1 MiB each: more callers at once than this allocate.
const scratchesMax = 16

func (f *scratches[T]) take() *scratch[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.free); n > 0 {
		s := f.free[n-1]
		f.free = f.free[:n-1]
		return s
	}
	return new(scratch[T])
}

// give puts s back. It forgets the operands, so that the garbage collector may have them.
func (f *scratches[T]) give(s *scratch[T]) {
	s.tile, s.part = tile[T]{}, product[T]{}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.free) < scratchesMax {
		f.free = append(f.free, s)
	}
}

// scratchMin is the smallest pack buffer: allocations of this size start on a page, so that panels are aligned.
const scratchMin = 1 << 14

// grown is buf with room for n elements; the content is not kept.
func grown[T tensor.Float](buf []T, n int) []T {
	if len(buf) >= n {
		return buf
	}
	size := scratchMin
	for size < n {
		size *= 2
	}
	return make([]T, size)
}
