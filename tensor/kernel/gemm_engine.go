package kernel

import "phalanx/tensor"

// tile is what a tile function computes: C[rows,cols] = A·B, or += if load is not zero. Assembly reads the fields by
// offset (asm/gemm/tile.go). Leading dimensions in elements. A is row-major with k contiguous, or k-major with the
// rows contiguous; B has cols contiguous.
type tile[T tensor.Float] struct {
	a, b, c       *T
	next          uintptr // address of the tile of C to come, to prefetch; never dereferenced
	lda, ldb, ldc int
	k, rows, cols int
	load          int
	far, farEnd   uintptr // first and last of the lines that will be wanted later, to prefetch; never dereferenced
}

// engine is one way to compute products of T: a tile, its block sizes and its packing.
type engine[T tensor.Float] struct {
	mr, nr   int            // rows and columns of a full tile
	kc, kcTN int            // most k of a block; TN, whose strips are packed, does better with less
	panels   int            // most elements of a packed block of B: it must stay in the second-level cache
	nearRows int            // up to so many rows, a panel is used right after packing, while it is near
	strips   int            // strips of A that a TN product packs at once
	aStep    int            // elements from k to k of packed A, at least mr
	packA    bool           // the only tile is colTile with packed A and B
	rowTile  func(*tile[T]) // A row-major
	colTile  func(*tile[T]) // A k-major
	// panel copies rows × cols values to a panel of nr columns and fills up with zeros.
	panel func(dst, src []T, lds, rows, cols int)
	// group copies rows to packed strips of mr columns, distance apart. The last strip has cols columns.
	group func(dst []T, distance int, src []T, lds, rows, strips, cols int)
	// transpose writes dst[k·ldd+j] = src[j·lds+k] for j < cols and k < rows; dst has room for ldd columns.
	transpose func(dst []T, ldd int, src []T, lds, rows, cols int)
	// unpack writes dst[q·ldd+r] = src[r·lds+q] for r < cols and q < rows; src has room for 8 and 4 more. nil: the engine
	// does not turn products round.
	unpack func(dst []T, ldd int, src []T, lds, rows, cols int)
	spare  *scratches[T]
}

var (
	spare32 scratches[float32]
	spare64 scratches[float64]

	// portable32 is the reference: the same blocks as the assembly, with fused multiply-adds in Go.
	portable32 = engine[float32]{mr: 4, nr: 16, kc: 256, kcTN: 256, panels: 64 << 10, strips: 1, aStep: 4, packA: true,
		colTile: tile32, panel: panel[float32](16), group: group[float32](4), transpose: transpose[float32],
		spare: &spare32}
	portable64 = engine[float64]{mr: 2, nr: 4, kc: 256, kcTN: 256, panels: 32 << 10, strips: 1, aStep: 2, packA: true,
		colTile: tile64, panel: panel[float64](4), group: group[float64](2), transpose: transpose[float64],
		spare: &spare64}
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
			e.part(p.rows(from*e.mr, min(to*e.mr, p.m)))
		})
		return
	}
	Parallel((p.n+e.nr-1)/e.nr, panelsMin, func(from, to int) {
		e.part(p.columns(from*e.nr, min(to*e.nr, p.n)))
	})
}

// part computes p on the calling goroutine.
func (e *engine[T]) part(p product[T]) {
	s := e.spare.take()
	defer e.spare.give(s)
	s.part = p
	e.run(s, &s.part)
}
