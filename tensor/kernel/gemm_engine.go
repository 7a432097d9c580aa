package kernel

import (
	"unsafe"

	"phalanx/tensor"
)

// tile is what a tile function computes: C[rows,cols] = A·B, or += if load is not zero. Assembly reads the fields by
// offset (asm/gemm/tile.go). Leading dimensions in elements. A is row-major with k contiguous, or k-major with the
// rows contiguous; B has cols contiguous.
type tile[T tensor.Float] struct {
	a, b, c       *T
	next          uintptr // address of the tile of C to come, to prefetch; never dereferenced
	lda, ldb, ldc int
	k, rows, cols int
	load          int
}

// engine is one way to compute products of T: a tile, its block sizes and its packing.
type engine[T tensor.Float] struct {
	mr, nr  int            // rows and columns of a full tile
	kc      int            // most k of a block
	panels  int            // most elements of a packed block of B: it must stay in the second-level cache
	packA   bool           // tiles read A packed and k-major only
	aWidth  int            // columns that copyRows writes for a row of packed A: mr rounded up to vectors
	direct  int            // up to so many rows, full panels of an untransposed B are read where they are; 0: never
	rowTile func(*tile[T]) // A row-major
	colTile func(*tile[T]) // A k-major
	// copyRows copies rows × cols values to a panel that is width wide, and fills up with zeros.
	copyRows func(dst []T, ldd, width int, src []T, lds, rows, cols int)
	// transpose writes dst[k·ldd+j] = src[j·lds+k] for j < cols and k < rows, and zeros for j from cols to width.
	transpose func(dst []T, ldd, width int, src []T, lds, rows, cols int)
	spare     *scratches[T]
}

var (
	spare32 scratches[float32]
	spare64 scratches[float64]

	// portable32 is the reference: the same blocks as the assembly, with fused multiply-adds in Go.
	portable32 = engine[float32]{mr: 4, nr: 16, kc: 256, panels: 64 << 10, aWidth: 4, packA: true, colTile: tile32,
		rowTile: tile32, copyRows: copyRows[float32], transpose: transpose[float32], spare: &spare32}
	portable64 = engine[float64]{mr: 2, nr: 4, kc: 256, panels: 32 << 10, aWidth: 2, packA: true, colTile: tile64,
		rowTile: tile64, copyRows: copyRows[float64], transpose: transpose[float64], spare: &spare64}
	engines32 = [...]*engine[float32]{Portable: &portable32, AVX2: &avx2Engine, AVX512: &avx512Engine}
)

// engineOf is the engine for T on the active path.
func engineOf[T tensor.Float]() *engine[T] {
	var z T
	if _, single := any(z).(float32); single {
		return any(engines32[active]).(*engine[T])
	}
	return any(&portable64).(*engine[T])
}

// split computes p in parts of rows or columns, never of k. Columns cost nothing extra; parts of rows pack B each, so
// they must be high.
func (e *engine[T]) split(p *product[T]) {
	const rowsMin, panelsMin = 128, 4
	if p.m > p.n && p.m >= 2*rowsMin || p.n < 2*panelsMin*e.nr {
		Parallel((p.m+e.mr-1)/e.mr, (rowsMin+e.mr-1)/e.mr, func(from, to int) {
			s := e.spare.take()
			s.part = p.rows(from*e.mr, min(to*e.mr, p.m))
			e.run(s, &s.part)
			e.spare.give(s)
		})
		return
	}
	Parallel((p.n+e.nr-1)/e.nr, panelsMin, func(from, to int) {
		s := e.spare.take()
		s.part = p.columns(from*e.nr, min(to*e.nr, p.n))
		e.run(s, &s.part)
		e.spare.give(s)
	})
}

// at is the address of x[i] moved by n elements, which may be outside: only for prefetching.
func at[T tensor.Float](x *T, n int) uintptr {
	return uintptr(unsafe.Pointer(x)) + uintptr(n)*unsafe.Sizeof(*x)
}
