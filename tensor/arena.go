package tensor

// Arena hands out slices that live until Reset. A step's activations come from one arena, so a steady-state
// step allocates nothing from the heap. It is not safe for concurrent use; each program owns one.
type Arena[T Number] struct {
	slabs [][]T
	slab  int // index of the slab in use
	off   int // first free element of it
	peak  int
	used  int
}

// Slabs double from slabMin to slabUsual elements: a toy of a simulator needs a fraction of the first, a small model several of
// the last.
const (
	slabMin   = 1 << 12
	slabUsual = 1 << 20
)

// Alloc is n elements with undefined contents: an earlier step's values may still be there.
func (a *Arena[T]) Alloc(n int) []T {
	for a.slab < len(a.slabs) && a.off+n > len(a.slabs[a.slab]) {
		a.slab++
		a.off = 0
	}
	if a.slab == len(a.slabs) {
		a.slabs = append(a.slabs, make([]T, max(n, min(slabMin<<min(len(a.slabs), 8), slabUsual))))
		a.off = 0
	}
	s := a.slabs[a.slab][a.off : a.off+n : a.off+n]
	a.off += (n + 15) &^ 15
	a.off = min(a.off, len(a.slabs[a.slab]))
	a.used += n
	a.peak = max(a.peak, a.used)
	return s
}

// Zeros is n elements, all zero.
func (a *Arena[T]) Zeros(n int) []T {
	s := a.Alloc(n)
	clear(s)
	return s
}

// Mat is a rows×cols matrix with undefined contents.
func (a *Arena[T]) Mat(rows, cols int) Mat[T] {
	return Mat[T]{Rows: rows, Cols: cols, Data: a.Alloc(rows * cols)}
}

// Reset takes back everything handed out since the last Reset.
func (a *Arena[T]) Reset() { a.slab, a.off, a.used = 0, 0, 0 }

// Mark and Release bracket scratch memory: Release(Mark()) takes back what was handed out in between.
type Mark struct{ slab, off, used int }

// Mark is the present position.
func (a *Arena[T]) Mark() Mark { return Mark{a.slab, a.off, a.used} }

// Release goes back to a position.
func (a *Arena[T]) Release(m Mark) { a.slab, a.off, a.used = m.slab, m.off, m.used }

// PeakElements is the largest number of elements in use at once.
func (a *Arena[T]) PeakElements() int { return a.peak }
