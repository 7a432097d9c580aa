package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/tensor"
)

// gemmShape is a product: C[m,n] = or += op(A)·op(B). Strides exceed the lengths of rows by the pads.
type gemmShape struct {
	tr               Trans
	m, n, k          int
	padA, padB, padC int
	acc              bool
}

func (s gemmShape) String() string {
	acc := ""
	if s.acc {
		acc = "+="
	}
	return fmt.Sprintf("%s_%dx%dx%d%s", s.tr, s.m, s.n, s.k, acc)
}

// gemmCase is a product with its operands. A and B end with their last element; C sits in a room with guards.
type gemmCase[T tensor.Float] struct {
	gemmShape
	lda, ldb, ldc int
	a, b          []T
	room          []T // guardsMin, C with its gaps, guardsMin
}

// guard is what elements outside C hold, and guardsMin how many are before and after it.
const (
	guard     = 12345
	guardsMin = 37
)

// newGemmCase draws the operands, and C's old value, from next.
func newGemmCase[T tensor.Float](s gemmShape, next func() T) *gemmCase[T] {
	g := &gemmCase[T]{gemmShape: s, lda: s.k + s.padA, ldb: s.n + s.padB, ldc: s.n + s.padC}
	ar, ac, br, bc := s.m, s.k, s.k, s.n
	if s.tr == TN {
		ar, ac, g.lda = s.k, s.m, s.m+s.padA
	}
	if s.tr == NT {
		br, bc, g.ldb = s.n, s.k, s.k+s.padB
	}
	g.a, g.b = slices.Repeat([]T{guard}, matLen(ar, ac, g.lda)), slices.Repeat([]T{guard}, matLen(br, bc, g.ldb))
	g.room = slices.Repeat([]T{guard}, matLen(s.m, s.n, g.ldc)+2*guardsMin)
	fillMat(g.a, ar, ac, g.lda, next)
	fillMat(g.b, br, bc, g.ldb, next)
	fillMat(g.room[guardsMin:], s.m, s.n, g.ldc, next)
	return g
}

// matLen is the fewest elements that hold a matrix.
func matLen(rows, cols, ld int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*ld + cols
}

func fillMat[T tensor.Float](x []T, rows, cols, ld int, next func() T) {
	for i := range rows {
		for j := range cols {
			x[i*ld+j] = next()
		}
	}
}

// unitDraw draws from −1..1.
func unitDraw[T tensor.Float](r *rand.Rand) func() T {
	return func() T { return T(2*r.Float64() - 1) }
}

// anySpecial draws from −1..1 and, every odds-th time, one of the values at which instructions differ if anything does.
func anySpecial[T tensor.Float](r *rand.Rand, odds int) func() T {
	return func() T {
		if r.IntN(odds) == 0 {
			return T(specials[r.IntN(len(specials))])
		}
		return T(2*r.Float64() - 1)
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// run computes the product into a copy of the room and gives the copy.
func (g *gemmCase[T]) run() []T {
	room := slices.Clone(g.room)
	Gemm(g.tr, g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb, room[guardsMin:len(room)-guardsMin], g.ldc, g.acc)
	return room
}

// terms calls f with the factors of C[i,j] in ascending k.
func (g *gemmCase[T]) terms(i, j int, f func(a, b T)) {
	for k := range g.k {
		ai, bi := i*g.lda+k, k*g.ldb+j
		if g.tr == TN {
			ai = k*g.lda + i
		}
		if g.tr == NT {
			bi = j*g.ldb + k
		}
		f(g.a[ai], g.b[bi])
	}
}

// old is what the chain of C[i,j] starts from.
func (g *gemmCase[T]) old(i, j int) T {
	if g.acc {
		return g.room[guardsMin+i*g.ldc+j]
	}
	return 0
}

// chain is the definition of C[i,j]: one chain in ascending k.
func (g *gemmCase[T]) chain(i, j int) T {
	acc := g.old(i, j)
	g.terms(i, j, func(a, b T) {
		if is32[T]() {
			acc = T(fma32(float32(a), float32(b), float32(acc)))
		} else {
			acc = T(float64(float64(a)*float64(b)) + float64(acc))
		}
	})
	return acc
}

// chains is the room as the definition has it: every element of C its chain, everything else as it was.
func (g *gemmCase[T]) chains() []T {
	room := slices.Clone(g.room)
	for i := range g.m {
		for j := range g.n {
			room[guardsMin+i*g.ldc+j] = g.chain(i, j)
		}
	}
	return room
}

// sameBits reports whether x and y are the same bits, a NaN being any NaN.
func sameBits[T tensor.Float](x, y T) bool {
	return x == y && (x != 0 || math.Signbit(float64(x)) == math.Signbit(float64(y))) || x != x && y != y
}

// requireSame holds got to want bit for bit and names the first place that differs.
func (g *gemmCase[T]) requireSame(t require.TestingT, want, got []T, what ...any) {
	for at := range want {
		if !sameBits(want[at], got[at]) {
			at -= guardsMin
			require.FailNow(t, "other bits", "%s, strides %d %d %d, offset %d of C (row %d, column %d): want %v, got %v; %s",
				g, g.lda, g.ldb, g.ldc, at, at/max(g.ldc, 1), at%max(g.ldc, 1), want[at+guardsMin], got[at+guardsMin], fmt.Sprint(what...))
		}
	}
}

// eachPath runs f with every path that this CPU has.
func eachPath(f func(p Path)) {
	for p := Portable; p <= Best(); p++ {
		onPath(p, func() { f(p) })
	}
}

// withThreads is SetThreads for one test.
func withThreads(t testing.TB, n int) {
	before := Threads()
	SetThreads(n)
	t.Cleanup(func() { SetThreads(before) })
}
