package kernel

import (
	"math"
	"math/rand/v2"

	"phalanx/tensor"
)

// gemmCase is a product with its operands for tests: C sits in a larger slice whose gaps hold guards.
type gemmCase[T tensor.Float] struct {
	tr            Trans
	m, n, k       int
	lda, ldb, ldc int
	acc           bool
	a, b, c       []T
}

// guard is what elements outside C hold.
const guard = 12345

// newGemmCase draws operands from −1..1 with strides that exceed the row lengths by pad, pad+1 and pad+2 (pad > 0).
func newGemmCase[T tensor.Float](r *rand.Rand, tr Trans, m, n, k, pad int, acc bool) *gemmCase[T] {
	g := &gemmCase[T]{tr: tr, m: m, n: n, k: k, acc: acc, ldc: n + pad}
	ar, ac, br, bc := m, k, k, n
	if tr == TN {
		ar, ac = k, m
	}
	if tr == NT {
		br, bc = n, k
	}
	if pad > 0 {
		pad++
	}
	g.lda, g.ldb = ac+pad, bc+pad
	draw := func(x []T) []T {
		for i := range x {
			x[i] = T(2*r.Float32() - 1)
		}
		return x
	}
	g.a, g.b, g.c = draw(make([]T, ar*g.lda)), draw(make([]T, br*g.ldb)), draw(make([]T, m*g.ldc))
	for i := range g.c {
		if i%g.ldc >= n {
			g.c[i] = guard
		}
	}
	return g
}

// run computes the product into a copy of C.
func (g *gemmCase[T]) run() []T {
	c := append([]T(nil), g.c...)
	Gemm(g.tr, g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb, c, g.ldc, g.acc)
	return c
}

// element is C[i,j] and the sum of the absolute values of its terms, by another order of summation in float64.
func (g *gemmCase[T]) element(i, j int) (sum, abs float64) {
	for k := g.k - 1; k >= 0; k-- {
		ai, bi := i*g.lda+k, k*g.ldb+j
		if g.tr == TN {
			ai = k*g.lda + i
		}
		if g.tr == NT {
			bi = j*g.ldb + k
		}
		x := float64(g.a[ai]) * float64(g.b[bi])
		sum, abs = sum+x, abs+math.Abs(x)
	}
	if g.acc {
		sum, abs = sum+float64(g.c[i*g.ldc+j]), abs+math.Abs(float64(g.c[i*g.ldc+j]))
	}
	return sum, abs
}
