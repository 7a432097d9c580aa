package kernel

import (
	"unsafe"

	"phalanx/tensor"
)

// Blocks of a product. Columns are cut into blocks, k into blocks of up to kc. For each, B is packed to panels [k, nr]
// that stay in the second-level cache, then strips of up to mr rows of A pass over all panels, a strip staying in the
// first-level cache. Blocks of k ascend and continue on C, so that no cut changes a bit.

// block is columns [j0, j1) and steps [k0, k1) of a product, with the panels of B.
type block[T tensor.Float] struct {
	e              *engine[T]
	s              *scratch[T]
	p              *product[T]
	j0, j1, k0, k1 int
	direct         bool // full panels of B are read where they are
	packedTo       int  // rows of A up to here are packed (TN)
	ahead          walk // what will be packed next, to prefetch
	aheadC         walk // C, or A if turned, for the next strip, to prefetch
	bFrom          int  // strips from this row on fetch B for the next block
}

// run computes p.
func (e *engine[T]) run(s *scratch[T], p *product[T]) {
	if e.turns(p) {
		p.turn()
	}
	limit := e.kc
	if p.tr == TN {
		limit = e.kcTN
	}
	d := block[T]{e: e, s: s, p: p, direct: e.readsB(p)}
	kc := evenBlock(p.k, limit, 8)
	nc := max(e.panels/kc/e.nr, 1) * e.nr
	if p.m <= e.nearRows && !d.direct {
		nc = e.nr
	}
	nc = evenBlock(p.n, nc, e.nr)
	if p.turned {
		s.c = grown(s.c, roundUp(e.mr, 8)*e.nr)
	}
	s.b = grown(s.b, kc*roundUp(min(nc, p.n), e.nr))
	s.a = grown(s.a, max(e.strips*kc*e.aStep, e.mr*(kc+2*stripGap)))
	for d.j0 = 0; d.j0 < p.n; d.j0 = d.j1 {
		d.j1 = min(d.j0+nc, p.n)
		for d.k0 = 0; d.k0 < p.k; d.k0 = d.k1 {
			d.k1 = min(d.k0+kc, p.k)
			d.packB()
			d.strips()
		}
	}
}

// readsB reports whether full panels of B are read where they are. With few rows packing costs more than the slower
// loads; with some more it still does if no load crosses a line and the rows of B do not all share a cache set.
func (e *engine[T]) readsB(p *product[T]) bool {
	if e.packA || p.tr == NT {
		return false
	}
	aligned := uintptr(unsafe.Pointer(&p.b[0]))%lineBytes == 0 && p.ldb%16 == 0
	return p.m <= 2*e.mr || p.m <= 8*e.mr && aligned && p.ldb%1024 != 0
}

// evenBlock cuts total into the fewest equal blocks of up to limit, rounded up to a multiple of unit.
func evenBlock(total, limit, unit int) int {
	blocks := (total + limit - 1) / limit
	return min(roundUp((total+blocks-1)/blocks, unit), limit)
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// count is the number of panels of the block.
func (d *block[T]) count() int { return (d.j1 - d.j0 + d.e.nr - 1) / d.e.nr }

// packB fills the panels of the block.
func (d *block[T]) packB() {
	e, p, kc := d.e, d.p, d.k1-d.k0
	for j := d.j0; j < d.j1; j += e.nr {
		cols := min(e.nr, d.j1-j)
		if d.direct && cols == e.nr {
			continue
		}
		panel := d.s.b[(j-d.j0)*kc:]
		if p.tr == NT {
			e.transpose(panel, e.nr, p.b[j*p.ldb+d.k0:], p.ldb, kc, cols)
		} else {
			e.panel(panel, p.b[d.k0*p.ldb+j:], p.ldb, kc, cols)
		}
	}
}

// strips passes all rows over the panels.
func (d *block[T]) strips() {
	p, t := d.p, &d.s.tile
	t.k, t.ldc, t.load = d.k1-d.k0, p.ldc, 0
	d.packedTo, d.ahead, d.aheadC = 0, walk{}, walk{}
	if p.accumulate || d.k0 > 0 {
		t.load = 1
	}
	d.bFrom = d.rowForB()
	for i := 0; i < p.m; i += t.rows {
		f := d.placeA(i)
		d.lookAhead(i)
		d.sweep(i, f)
	}
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
		if p.turned {
			d.turnedTile(i, j, f)
			continue
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
		d.takeAhead()
		f(t)
	}
}
