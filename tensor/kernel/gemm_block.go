package kernel

import "phalanx/tensor"

// Blocks of a product. Columns are cut into blocks of up to nc, k into blocks of up to kc. For each, B is packed to
// panels [k, nr] that stay in the second-level cache, then strips of up to mr rows of A pass over all panels, a strip
// staying in the first-level cache. Blocks of k ascend and continue on C, so that cutting changes no bit.

// block is columns [j0, j1) and steps [k0, k1) of a product, with the panels of B.
type block[T tensor.Float] struct {
	e              *engine[T]
	s              *scratch[T]
	p              *product[T]
	j0, j1, k0, k1 int
	direct         bool // full panels of B are read where they are
}

// run computes p.
func (e *engine[T]) run(s *scratch[T], p *product[T]) {
	kc := evenBlock(p.k, e.kc, 8)
	nc := evenBlock(p.n, e.blockColumns(p.m, kc), e.nr)
	s.b = grown(s.b, kc*roundUp(min(nc, p.n), e.nr))
	s.a = grown(s.a, (kc+2*stripPad)*roundUp(e.mr, 16))
	d := block[T]{e: e, s: s, p: p, direct: p.tr != NT && p.m <= e.direct}
	for d.j0 = 0; d.j0 < p.n; d.j0 = d.j1 {
		d.j1 = min(d.j0+nc, p.n)
		for d.k0 = 0; d.k0 < p.k; d.k0 = d.k1 {
			d.k1 = min(d.k0+kc, p.k)
			d.pack()
			d.strips()
		}
	}
}

// blockColumns is the most columns of a block. With few rows a panel is used right after packing, while it is near.
func (e *engine[T]) blockColumns(m, kc int) int {
	if m <= 2*e.mr {
		return e.nr
	}
	return max(e.panels/kc/e.nr, 1) * e.nr
}

// evenBlock cuts total into the fewest equal blocks of up to limit, rounded up to a multiple of unit.
func evenBlock(total, limit, unit int) int {
	blocks := (total + limit - 1) / limit
	return min(roundUp((total+blocks-1)/blocks, unit), limit)
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// pack fills the panels of the block.
func (d *block[T]) pack() {
	e, p, kc := d.e, d.p, d.k1-d.k0
	for j := d.j0; j < d.j1; j += e.nr {
		cols := min(e.nr, d.j1-j)
		if d.direct && cols == e.nr {
			continue
		}
		panel := d.s.b[(j-d.j0)*kc:]
		if p.tr == NT {
			e.transpose(panel, e.nr, e.nr, p.b[j*p.ldb+d.k0:], p.ldb, kc, cols)
		} else {
			e.copyRows(panel, e.nr, e.nr, p.b[d.k0*p.ldb+j:], p.ldb, kc, cols)
		}
	}
}

// strips passes all rows over the panels.
func (d *block[T]) strips() {
	e, p, t := d.e, d.p, &d.s.tile
	t.k, t.ldc, t.load = d.k1-d.k0, p.ldc, 0
	if p.accumulate || d.k0 > 0 {
		t.load = 1
	}
	for i := 0; i < p.m; i += t.rows {
		t.rows = stripRows(p.m-i, e.mr)
		if d.placeA(i) {
			d.sweep(i, e.colTile)
		} else {
			d.sweep(i, e.rowTile)
		}
	}
}

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

// sweep computes the strip of rows from i on, panel by panel.
func (d *block[T]) sweep(i int, f func(*tile[T])) {
	e, p, t := d.e, d.p, &d.s.tile
	for j := d.j0; j < d.j1; j += e.nr {
		t.cols = min(e.nr, d.j1-j)
		if d.direct && t.cols == e.nr {
			t.b, t.ldb = &p.b[d.k0*p.ldb+j], p.ldb
		} else {
			t.b, t.ldb = &d.s.b[(j-d.j0)*t.k], e.nr
		}
		t.c = &p.c[i*p.ldc+j]
		switch {
		case j+e.nr < d.j1:
			t.next = at(t.c, e.nr)
		case i+t.rows < p.m:
			t.next = at(&p.c[i*p.ldc+d.j0], t.rows*p.ldc)
		default:
			t.next = at(t.c, 0)
		}
		f(t)
	}
}

// stripPad keeps the rows of a copied strip off each other's cache sets, in elements.
const stripPad = 16

// placeA points the tile to rows [i, i+rows) of A for the block's k, packing them when that pays, and reports whether
// they are k-major.
func (d *block[T]) placeA(i int) bool {
	e, p, t, a := d.e, d.p, &d.s.tile, d.s.a
	panels := (d.j1 - d.j0 + e.nr - 1) / e.nr
	if p.tr == TN {
		src := p.a[d.k0*p.lda+i:]
		if e.packA || panels >= 4 {
			e.copyRows(a, e.mr, e.aWidth, src, p.lda, t.k, t.rows)
			t.a, t.lda = &a[0], e.mr
		} else {
			t.a, t.lda = &src[0], p.lda
		}
		return true
	}
	src := p.a[i*p.lda+d.k0:]
	switch {
	case e.packA:
		e.transpose(a, e.mr, e.mr, src, p.lda, t.k, t.rows)
		t.a, t.lda = &a[0], e.mr
		return true
	case panels >= 4 && sameSets(p.lda):
		t.a, t.lda = &a[0], roundUp(t.k, stripPad)+stripPad
		for r := range t.rows {
			copy(a[r*t.lda:], src[r*p.lda:r*p.lda+t.k])
		}
	default:
		t.a, t.lda = &src[0], p.lda
	}
	return false
}

// sameSets reports whether rows lda apart fall on the same few sets of a first-level cache (64 lines of 64 bytes).
func sameSets(lda int) bool { return lda%1024 == 0 }
