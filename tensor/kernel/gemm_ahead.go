package kernel

// Prefetching. Data from beyond the second-level cache is latency-bound, above all where packing touches many pages.
// A tile function has time to fetch one line each few steps of k, besides the next tile of C: it walks over the lines
// from far to farEnd. They are whatever is next of: C for the next strip, where the product reads C (or A of a turned
// product, the large operand); A for the next group of strips (TN); B for the next block. Nothing here changes a bit.

// stepsPerLine is how many steps of k a tile function does for each far line.
const stepsPerLine = 4

// farElements is the size of a C that does not stay in the second-level cache.
const farElements = 1 << 17

// lookAhead starts to prefetch for the strips after the one at row i.
func (d *block[T]) lookAhead(i int) {
	p, t := d.p, &d.s.tile
	if next := i + t.rows; p.turned && next < p.m {
		d.aheadC = walkOver(&p.a[next*p.lda+d.k0], min(t.rows, p.m-next), t.k, p.lda)
	} else if t.load != 0 && next < p.m && p.m*p.n > farElements {
		d.aheadC = walkOver(&p.c[next*p.ldc+d.j0], min(t.rows, p.m-next), d.j1-d.j0, p.ldc)
	}
	if i >= d.bFrom && d.ahead.empty() {
		d.ahead, d.bFrom = d.nextB(), p.m
	}
}

// rowForB is the row from which the tiles left just suffice to fetch the next block of B; before, it would push out
// this block. It is m when there is nothing to fetch, or not worth it.
func (d *block[T]) rowForB() int {
	e, p, lines := d.e, d.p, d.s.tile.k/stepsPerLine
	if lines == 0 || p.m <= 2*e.mr || d.j1 == p.n && d.k1 == p.k {
		return p.m
	}
	w := d.nextB()
	return max(0, p.m-(w.takes(lines)*4/3/d.count()+1)*e.mr)
}

// nextB is what the next block will read of B. There is one.
func (d *block[T]) nextB() walk {
	p, j, k := d.p, d.j0, d.k1
	if k == p.k {
		j, k = d.j1, 0
	}
	cols, rows := min(d.j1-d.j0, p.n-j), min(d.k1-d.k0, p.k-k)
	if p.tr == NT {
		return walkOver(&p.b[j*p.ldb+k], cols, rows, p.ldb)
	}
	return walkOver(&p.b[k*p.ldb+j], rows, cols, p.ldb)
}

// nextGroup is what will be packed after the strips up to packedTo (TN).
func (d *block[T]) nextGroup() walk {
	p := d.p
	left := min(p.m-d.packedTo, d.e.strips*d.e.mr)
	if left <= 0 {
		return walk{}
	}
	return walkOver(&p.a[d.k0*p.lda+d.packedTo], d.k1-d.k0, left, p.lda)
}

// takeAhead gives the tile its far lines.
func (d *block[T]) takeAhead() {
	t := &d.s.tile
	lines := t.k / stepsPerLine
	switch {
	case lines > 0 && !d.aheadC.empty():
		t.far, t.farEnd = d.aheadC.take(lines)
	case lines > 0 && !d.ahead.empty():
		t.far, t.farEnd = d.ahead.take(lines)
	default:
		t.far, t.farEnd = t.next, t.next
	}
}

// walk hands out the cache lines of some rows of a matrix, row by row: each new page costs a walk of the page tables.
type walk struct {
	top    uintptr // address of the next row
	rows   int     // rows left, the one at top included
	bytes  int     // length of a row
	stride int     // bytes from row to row
	done   int     // bytes of the row at top that are done
}

// lineBytes is the size of a cache line.
const lineBytes = 64

// walkOver covers rows of cols elements, ld apart, from top on; rows without gaps are one long row.
func walkOver[T any](top *T, rows, cols, ld int) walk {
	if cols == ld {
		rows, cols = 1, cols*rows
	}
	size := int(at(top, 1) - at(top, 0))
	return walk{top: at(top, 0), rows: rows, bytes: cols * size, stride: ld * size}
}

// empty reports whether nothing is left.
func (w *walk) empty() bool { return w.rows == 0 }

// takes is how often take with n lines gives something.
func (w *walk) takes(n int) int { return w.rows * ((w.bytes + n*lineBytes - 1) / (n * lineBytes)) }

// take gives the first and the last line of the next piece of a row, of up to n lines.
func (w *walk) take(n int) (first, last uintptr) {
	first = w.top + uintptr(w.done)
	size := min(n*lineBytes, w.bytes-w.done)
	if w.done += size; w.done >= w.bytes {
		w.top, w.rows, w.done = w.top+uintptr(w.stride), w.rows-1, 0
	}
	return first, first + uintptr((size-1)&^(lineBytes-1))
}
