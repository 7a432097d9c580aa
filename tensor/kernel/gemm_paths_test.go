package kernel

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goldenGemm is the FNV-1a hash of the products in TestGemmGoldenBits. A new hash is a change of the definition: name
// it in the changelog, because logs recorded before it no longer replay.
var goldenGemm = map[Trans]string{
	NN: "724ca69381d87020",
	NT: "ab2b9fafd0de88b4",
	TN: "d4b21253e64b4f14",
}

// TestGemmGoldenBits pins the definition itself, on every path: it fails with a CPU or a compiler that gives other
// bits, and when a change of blocks or tiles changes a bit.
func TestGemmGoldenBits(t *testing.T) {
	eachPath(func(p Path) {
		for tr := NN; tr <= TN; tr++ {
			h := fnv.New64a()
			for i, s := range [][3]int{{1, 1, 1}, {7, 33, 100}, {31, 70, 9}, {40, 90, 600}, {65, 450, 33}} {
				g := newGemmCase(gemmShape{tr: tr, m: s[0], n: s[1], k: s[2], acc: i%2 == 0}, unitDraw[float32](newRand(uint64(i))))
				require.NoError(t, binary.Write(h, binary.LittleEndian, canonical(g.run())))
			}
			assert.Equal(t, goldenGemm[tr], fmt.Sprintf("%016x", h.Sum64()), "%s on %s", tr, p)
		}
	})
}

// threadedShapes are products that are split by rows and by columns, with ends that fit no tile.
func threadedShapes() (out []gemmShape) {
	for tr := NN; tr <= TN; tr++ {
		for i, s := range [][3]int{{701, 90, 35}, {61, 1111, 33}, {300, 517, 14}, {257, 33, 240}} {
			out = append(out, gemmShape{tr: tr, m: s[0], n: s[1], k: s[2], padC: 5, acc: i%2 == 0})
		}
	}
	return out
}

// TestGemmThreadsChangeNoBit: every cut into rows or columns gives the bits of one thread.
func TestGemmThreadsChangeNoBit(t *testing.T) {
	withThreads(t, 1)
	for i, s := range threadedShapes() {
		require.GreaterOrEqual(t, GemmFlops(s.m, s.n, s.k), float64(threadedFlops), "a product this small has one thread")
		g := newGemmCase(s, unitDraw[float32](newRand(uint64(i))))
		want := g.run()
		for _, n := range []int{2, 5} {
			SetThreads(n)
			g.requireSame(t, want, g.run(), n, " threads")
		}
		SetThreads(1)
	}
}

// TestGemmThreadsChangeNoBitFloat64 is the same for float64, which has tiles of its own.
func TestGemmThreadsChangeNoBitFloat64(t *testing.T) {
	withThreads(t, 1)
	for i, s := range threadedShapes() {
		g := newGemmCase(s, unitDraw[float64](newRand(uint64(i))))
		want := g.run()
		SetThreads(3)
		g.requireSame(t, want, g.run())
		SetThreads(1)
	}
}

// TestGemmThreadsOnThePortablePath splits by the portable tile's sizes.
func TestGemmThreadsOnThePortablePath(t *testing.T) {
	withThreads(t, 1)
	onPath(Portable, func() {
		g := newGemmCase(gemmShape{tr: NT, m: 260, n: 90, k: 90}, unitDraw[float32](newRand(1)))
		want := g.run()
		SetThreads(4)
		g.requireSame(t, want, g.run())
	})
}

// TestGemmCallersInParallel: many goroutines call at once, with products that are split and products that are not.
func TestGemmCallersInParallel(t *testing.T) {
	withThreads(t, 3)
	var cases []*gemmCase[float32]
	var want [][]float32
	for i, s := range append(threadedShapes(), gemmShape{tr: NT, m: 7, n: 64, k: 64}, gemmShape{tr: TN, m: 64, n: 64, k: 3, acc: true}) {
		cases = append(cases, newGemmCase(s, unitDraw[float32](newRand(uint64(i)))))
		want = append(want, cases[i].run())
		cases[i].requireChainOfSome(t, want[i])
	}
	var wait sync.WaitGroup
	for caller := range 6 {
		wait.Go(func() {
			for i := range cases {
				i = (i + 3*caller) % len(cases)
				cases[i].requireSame(asserter{t}, want[i], cases[i].run(), "caller ", caller)
			}
		})
	}
	wait.Wait()
}

// requireChainOfSome compares rows and columns spread over C with their definition.
func (g *gemmCase[T]) requireChainOfSome(t require.TestingT, room []T) {
	for i := 0; i < g.m; i += 1 + g.m/9 {
		for j := 0; j < g.n; j += 1 + g.n/9 {
			at := guardsMin + i*g.ldc + j
			require.Equal(t, g.chain(i, j), room[at], "%s element %d,%d", g, i, j)
		}
	}
}

// asserter lets require be used off the test's goroutine, where FailNow may not be called.
type asserter struct{ t *testing.T }

func (a asserter) Errorf(format string, args ...any) { a.t.Errorf(format, args...) }

func (a asserter) FailNow() { a.t.Fail(); runtime.Goexit() }

// TestGemmAllocatesNothing: the buffers of a product are kept for the next one.
func TestGemmAllocatesNothing(t *testing.T) {
	withThreads(t, 1)
	for tr := NN; tr <= TN; tr++ {
		g := newGemmCase(gemmShape{tr: tr, m: 40, n: 100, k: 70}, unitDraw[float32](newRand(1)))
		run := func() { Gemm(g.tr, g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb, g.room, g.ldc, false) }
		run()
		require.Zero(t, testing.AllocsPerRun(20, run), tr)
	}
}
