package kernel

// Turned products. NT with few rows would transpose all of B, which is large, to use it a few times. Turned round, as
// Cᵀ[n,m] = B[n,k] · A[m,k]ᵀ, it transposes A, reads B where it is, and transposes each tile of C instead. The chains
// stay the same: a product does not care which factor comes first.

// turns reports whether p is better turned, by measured times in 32nds of a cycle: a step of a tile takes as many as it
// has rows or columns but no less than 4 (or, turned, 20, whole vectors), transposing an element of A or B 14, and one
// of C, for each way, 32. A large C would be written in bits and pieces, far from the caches.
func (e *engine[T]) turns(p *product[T]) bool {
	if e.unpack == nil || p.tr != NT || p.turned || p.n*p.m > farElements {
		return false
	}
	width := roundUp(p.m, 32)
	if rest := p.m % 32; rest > 0 && rest <= 16 {
		width -= 32 - 20
	}
	ways := 2*((p.k+e.kc-1)/e.kc) - 1 // each block of k but the first reads C too
	return p.n*p.k*(max(p.m, 4)+14-width) > p.m*p.k*14+p.m*p.n*32*ways
}

// turn turns p round.
func (p *product[T]) turn() {
	p.m, p.n, p.turned = p.n, p.m, true
	p.a, p.b, p.lda, p.ldb = p.b, p.a, p.ldb, p.lda
}

// turnedTile computes the tile at row i and column j of a turned product.
func (d *block[T]) turnedTile(i, j int, f func(*tile[T])) {
	e, p, t, c := d.e, d.p, &d.s.tile, d.s.c
	to := p.c[j*p.ldc+i:]
	if t.load != 0 {
		e.transpose(c, e.nr, to, p.ldc, t.rows, t.cols)
	}
	t.c, t.ldc, t.next = &c[0], e.nr, at(&c[0], 0)
	d.takeAhead()
	f(t)
	e.unpack(to, p.ldc, c, e.nr, t.cols, t.rows)
}
