package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestTileOffsets holds the struct to the offsets in asm/gemm/tile.go.
func TestTileOffsets(t *testing.T) {
	var x tile[float32]
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80}, []uintptr{
		unsafe.Offsetof(x.a), unsafe.Offsetof(x.b), unsafe.Offsetof(x.c), unsafe.Offsetof(x.next),
		unsafe.Offsetof(x.lda), unsafe.Offsetof(x.ldb), unsafe.Offsetof(x.ldc),
		unsafe.Offsetof(x.k), unsafe.Offsetof(x.rows), unsafe.Offsetof(x.cols), unsafe.Offsetof(x.load),
	})
}

// packCase is a random matrix and room for its packed form.
type packCase struct {
	src             []float32
	lds, rows, cols int
}

func newPackCase(r *rand.Rand, rows, cols int) packCase {
	c := packCase{lds: cols + r.IntN(5), rows: rows, cols: cols}
	c.src = make([]float32, matLen(rows, cols, c.lds))
	for i := range c.src {
		c.src[i] = r.Float32()
	}
	return c
}

// packed is what f leaves in room for rows of ldd, each width wide, and the guards behind.
func packed(f func(dst []float32), rows, ldd, width int) []float32 {
	dst := slices.Repeat([]float32{guard}, matLen(rows, width, ldd)+guardsMin)
	f(dst[:len(dst)-guardsMin])
	return dst
}

// TestPackingIsThePortablePacking: assembly copies and transposes like the Go functions, and writes not one element more.
func TestPackingIsThePortablePacking(t *testing.T) {
	r := newRand(5)
	for _, e := range []*engine[float32]{&avx2Engine, &avx512Engine} {
		if e == &avx512Engine && Best() < AVX512 {
			continue
		}
		for range 400 {
			width := []int{e.aWidth, e.nr}[r.IntN(2)]
			ldd, cols := width+r.IntN(3), 1+r.IntN(width)
			c := newPackCase(r, 1+r.IntN(40), cols)
			require.Equal(t,
				packed(func(dst []float32) { copyRows(dst, ldd, width, c.src, c.lds, c.rows, cols) }, c.rows, ldd, width),
				packed(func(dst []float32) { e.copyRows(dst, ldd, width, c.src, c.lds, c.rows, cols) }, c.rows, ldd, width),
				"copy %d×%d to width %d", c.rows, cols, width)
			ldd, cols = e.nr+r.IntN(3), 1+r.IntN(e.nr)
			c = newPackCase(r, cols, 1+r.IntN(300))
			require.Equal(t,
				packed(func(dst []float32) { transpose(dst, ldd, e.nr, c.src, c.lds, c.cols, cols) }, c.cols, ldd, e.nr),
				packed(func(dst []float32) { e.transpose(dst, ldd, e.nr, c.src, c.lds, c.cols, cols) }, c.cols, ldd, e.nr),
				"transpose %d×%d", c.rows, c.cols)
		}
	}
}

// TestPackedStripsMayOverlap: a strip of A has a stride below the width that is written; rows are written in order.
func TestPackedStripsMayOverlap(t *testing.T) {
	r := newRand(6)
	for p := AVX2; p <= Best(); p++ {
		e := engines32[p]
		for rows := 1; rows <= e.mr; rows++ {
			c := newPackCase(r, 9, rows)
			dst := make([]float32, 9*e.mr+e.aWidth)
			e.copyRows(dst, e.mr, e.aWidth, c.src, c.lds, c.rows, rows)
			for k := range 9 {
				require.Equal(t, c.src[k*c.lds:k*c.lds+rows], dst[k*e.mr:k*e.mr+rows], "%d rows on %s", rows, p)
			}
		}
	}
}
