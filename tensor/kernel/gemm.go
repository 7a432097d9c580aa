package kernel

import (
	"fmt"

	"phalanx/tensor"
)

//go:generate go run ./asm/gemm -pkg kernel -out gemm_amd64.s -stubs gemm_stub_amd64.go

// Trans says which operand of a product is stored transposed.
type Trans uint8

// The three products a layer needs: NN input gradient, NT forward (weights are [out, in]), TN weight gradient.
const (
	NN Trans = iota // A[m,k] · B[k,n]
	NT              // A[m,k] · B[n,k]ᵀ
	TN              // A[k,m]ᵀ · B[k,n]
)

// String names the product.
func (t Trans) String() string { return [...]string{"NN", "NT", "TN"}[t] }

// GemmFlops is the number of floating-point operations of a product, an FMA being two.
func GemmFlops(m, n, k int) float64 { return 2 * float64(m) * float64(n) * float64(k) }

// threadedFlops is the smallest product worth waking workers for: below, a wake-up costs as much as it saves.
const threadedFlops = 4e6

// Gemm computes C[m,n] = op(A)·op(B), or C += op(A)·op(B) if accumulate. All matrices are row-major; lda, ldb and ldc
// are the distances of rows in elements. NN: A[m,k], B[k,n]; NT: A[m,k], B[n,k]; TN: A[k,m], B[k,n]. Any size may be
// zero. C must not overlap A or B. Elements of C's rows beyond column n are not touched.
//
// Bits: each element of C is one chain in ascending k, starting from zero or from its old value. A float32 step is a
// fused multiply-add; a float64 step is float64(a·b) + c, rounded twice, which no compiler may fuse. So the bits
// depend on nothing but the inputs: not on blocks, instruction set or threads. (Which NaN a NaN is, is left open.)
func Gemm[T tensor.Float](tr Trans, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, accumulate bool) {
	e := engineOf[T]()
	s := e.spare.take()
	defer e.spare.give(s)
	p := &s.part
	*p = product[T]{tr: tr, m: m, n: n, k: k, a: a, lda: lda, b: b, ldb: ldb, c: c, ldc: ldc, accumulate: accumulate}
	p.check()
	switch {
	case m == 0 || n == 0:
	case k == 0:
		p.clear()
	case Threads() > 1 && GemmFlops(m, n, k) >= threadedFlops:
		e.split(p)
	default:
		e.run(s, p)
	}
}

// product is one call of Gemm, or a part of its rows and columns.
type product[T tensor.Float] struct {
	tr            Trans
	m, n, k       int
	a, b, c       []T
	lda, ldb, ldc int
	accumulate    bool
	turned        bool // C is transposed: element i, j is c[j·ldc+i]
}

// check panics unless the slices hold the matrices.
func (p *product[T]) check() {
	if p.tr > TN {
		panic(fmt.Sprintf("kernel: Gemm of kind %d with m %d, n %d, k %d: the kinds are NN, NT, TN", p.tr, p.m, p.n, p.k))
	}
	if p.m < 0 || p.n < 0 || p.k < 0 {
		panic(fmt.Sprintf("kernel: Gemm of kind %d with m %d, n %d, k %d: no size may be negative", p.tr, p.m, p.n, p.k))
	}
	checkMat("C", p.m, p.n, p.ldc, len(p.c))
	aRows, aCols, bRows, bCols := p.m, p.k, p.k, p.n
	if p.tr == TN {
		aRows, aCols = p.k, p.m
	}
	if p.tr == NT {
		bRows, bCols = p.n, p.k
	}
	checkMat("A", aRows, aCols, p.lda, len(p.a))
	checkMat("B", bRows, bCols, p.ldb, len(p.b))
}

func checkMat(name string, rows, cols, ld, length int) {
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols || length < cols || (length-cols)/ld < rows-1 {
		panic(fmt.Sprintf("kernel: Gemm operand %s is %d×%d with leading dimension %d, which does not fit %d elements",
			name, rows, cols, ld, length))
	}
}

// clear is the product with k = 0.
func (p *product[T]) clear() {
	if p.accumulate {
		return
	}
	for i := range p.m {
		clear(p.c[i*p.ldc : i*p.ldc+p.n])
	}
}

// rows is the part of the product that gives rows [from, to) of C.
func (p *product[T]) rows(from, to int) product[T] {
	q := *p
	q.m, q.c = to-from, p.c[from*p.ldc:]
	if p.tr == TN {
		q.a = p.a[from:]
	} else {
		q.a = p.a[from*p.lda:]
	}
	return q
}

// columns is the part of the product that gives columns [from, to) of C.
func (p *product[T]) columns(from, to int) product[T] {
	q := *p
	q.n, q.c = to-from, p.c[from:]
	if p.tr == NT {
		q.b = p.b[from*p.ldb:]
	} else {
		q.b = p.b[from:]
	}
	return q
}
