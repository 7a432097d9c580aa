package kernel

import (
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// fence is memory whose first and last page may not be touched.
type fence struct{ mem []byte }

// newFence gives room for at least n float32 between forbidden pages.
func newFence(t *testing.T, n int) *fence {
	page := syscall.Getpagesize()
	size := (4*n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mem)) })
	require.NoError(t, syscall.Mprotect(mem[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(mem[page+size:], syscall.PROT_NONE))
	return &fence{mem[page : page+size]}
}

// of is a copy of x right before the page at the end, or right after the one at the start.
func (f *fence) of(x []float32, atEnd bool) []float32 {
	all := unsafe.Slice((*float32)(unsafe.Pointer(&f.mem[0])), len(f.mem)/4)
	to := all[:len(x):len(x)]
	if atEnd {
		to = all[len(all)-len(x):]
	}
	copy(to, x)
	return to
}

// TestGemmTouchesOnlyItsOperands has operands end, or begin, at pages that may not be read: packing, masked moves and
// unrolled loops must not reach beyond, not even to throw away what they read.
func TestGemmTouchesOnlyItsOperands(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	const most = 1 << 15
	fa, fb, fc := newFence(t, most), newFence(t, most), newFence(t, most)
	eachPath(func(p Path) {
		for i, s := range fencedShapes() {
			g := newGemmCase(s, unitDraw[float32](newRand(uint64(i))))
			want, atEnd := g.run(), i%2 == 0
			a, b, c := fa.of(g.a, atEnd), fb.of(g.b, atEnd), fc.of(g.room[guardsMin:len(g.room)-guardsMin], atEnd)
			require.NotPanics(t, func() { Gemm(g.tr, g.m, g.n, g.k, a, g.lda, b, g.ldb, c, g.ldc, g.acc) }, "%s on %s", g, p)
			copy(g.room[guardsMin:], c)
			g.requireSame(t, want, g.room, p)
		}
	})
}

// fencedShapes come in pairs, for operands at the end and at the start.
func fencedShapes() (out []gemmShape) {
	for _, m := range []int{1, 3, 6, 7, 13, 14, 15, 29, 33} {
		for _, n := range []int{1, 7, 8, 15, 16, 17, 31, 32, 33, 70} {
			for _, k := range []int{1, 3, 4, 7, 8, 13, 16, 31} {
				for tr := NN; tr <= TN; tr++ {
					s := gemmShape{tr: tr, m: m, n: n, k: k, padA: k % 4, padB: m % 3, padC: n % 5, acc: k%3 == 0}
					out = append(out, s, s)
				}
			}
		}
	}
	return out
}
