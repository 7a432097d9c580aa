package kernel

import "unsafe"

// Strips of A: up to mr rows for a block's k, read where they are (NN, NT and narrow TN) or packed.

// stripRows is the height of the next strip: mr, or the rest in one or two even strips, because a strip of one or two
// rows takes as long as one of four.
func stripRows(rest, mr int) int {
	switch {
	case rest <= mr:
		return rest
	case rest < 2*mr:
		return (rest + 1) / 2
	}
	return mr
}

// stripGap keeps the rows of a copied strip off each other's cache sets, in elements.
const stripGap = 16

// packPanels is the number of panels from which packing A pays.
const packPanels = 4

// placeA points the tile to the strip of A at row i for the block's k, packed when that pays, and gives the tile
// function for its order.
func (d *block[T]) placeA(i int) func(*tile[T]) {
	e, p, t := d.e, d.p, &d.s.tile
	t.rows = stripRows(p.m-i, e.mr)
	reused := d.count() >= packPanels
	switch {
	case p.tr == TN && (e.packA || reused && sharers(p.lda, t.k) > setLines):
		d.placeGroup(i)
		return e.colTile
	case p.tr == TN:
		t.a, t.lda = &p.a[d.k0*p.lda+i], p.lda
		return e.colTile
	case e.packA:
		e.transpose(d.s.a, e.aStep, p.a[i*p.lda+d.k0:], p.lda, t.k, t.rows)
		t.a, t.lda = &d.s.a[0], e.aStep
		return e.colTile
	case reused && sharers(p.lda, t.rows) > setLines:
		d.copyStrip(i)
	default:
		t.a, t.lda = &p.a[i*p.lda+d.k0], p.lda
	}
	return e.rowTile
}

// placeGroup packs the next strips of a TN product when none is left.
func (d *block[T]) placeGroup(i int) {
	e, p, t, distance, height := d.e, d.p, &d.s.tile, (d.k1-d.k0)*d.e.aStep, d.e.strips*d.e.mr
	if i >= d.packedTo {
		d.packedTo = min(i+height, p.m)
		strips := (d.packedTo - i + e.mr - 1) / e.mr
		e.group(d.s.a, distance, p.a[d.k0*p.lda+i:], p.lda, t.k, strips, d.packedTo-i-(strips-1)*e.mr)
		d.ahead = d.nextGroup()
	}
	t.rows = min(e.mr, p.m-i)
	t.a, t.lda = &d.s.a[i%height/e.mr*distance], e.aStep
}

// copyStrip copies the strip at row i, row-major.
func (d *block[T]) copyStrip(i int) {
	p, t := d.p, &d.s.tile
	t.a, t.lda = &d.s.a[0], roundUp(t.k, stripGap)+stripGap
	for r := range t.rows {
		from := (i+r)*p.lda + d.k0
		copy(d.s.a[r*t.lda:], p.a[from:from+t.k])
	}
}

// setLines is how many lines of one set of a first-level cache, which has 8 or 12, a strip may use.
const setLines = 7

// sharers is how many of rows rows, ld elements apart, begin in the same set of a first-level cache: it has 64 sets of
// 64-byte lines, so rows that are a power of two apart meet in few of them.
func sharers(ld, rows int) int { return rows * max(min(ld&-ld, 1024)/16, 1) / 64 }

// at is the address n elements after x, which may be outside of its slice: only for prefetching.
func at[T any](x *T, n int) uintptr {
	return uintptr(unsafe.Pointer(x)) + uintptr(n)*unsafe.Sizeof(*x)
}
