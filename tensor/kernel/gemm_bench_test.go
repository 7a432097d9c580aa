package kernel

import (
	"testing"
	"unsafe"
)

// gemmShapes are the products of a training step of the reference model, attention tiles and experts.
func gemmShapes() []gemmShape {
	var out []gemmShape
	for _, s := range [][3]int{{1024, 768, 768}, {1024, 1152, 384}, {1024, 384, 384}, {1024, 2048, 384}, {1024, 384, 1024}} {
		for tr := NN; tr <= TN; tr++ {
			out = append(out, gemmShape{tr: tr, m: s[0], n: s[1], k: s[2]})
		}
	}
	out = append(out,
		gemmShape{tr: NT, m: 256, n: 32000, k: 384}, gemmShape{tr: NN, m: 256, n: 384, k: 32000},
		gemmShape{tr: TN, m: 32000, n: 384, k: 256, acc: true},
		// Attention as in package nn: scores are dense, queries, keys, values and gradients columns of a row of 4·1152.
		gemmShape{tr: NT, m: 64, n: 256, k: 64, padA: 4544, padB: 4544},
		gemmShape{tr: NN, m: 64, n: 64, k: 256, padB: 4544, padC: 4544, acc: true},
		gemmShape{tr: TN, m: 256, n: 64, k: 64, padB: 4544, padC: 4544, acc: true})
	for _, m := range []int{1, 2, 4, 7, 14, 16, 28, 32, 64} {
		for _, h := range []int{128, 512} {
			out = append(out, gemmShape{tr: NT, m: m, n: h, k: h}, gemmShape{tr: NN, m: m, n: h, k: h},
				gemmShape{tr: TN, m: h, n: h, k: m, acc: true})
		}
	}
	return out
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range gemmShapes() {
		b.Run(s.String(), func(b *testing.B) { benchGemm(b, s) })
	}
}

func benchGemm(b *testing.B, s gemmShape) {
	run := alignedGemm(s)
	for b.Loop() {
		run()
	}
	b.ReportMetric(GemmFlops(s.m, s.n, s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// alignedGemm is a product whose operands begin with a cache line, as those from an arena do.
func alignedGemm(s gemmShape) (run func()) {
	g := newGemmCase(s, unitDraw[float32](newRand(1)))
	a, b, c := aligned(g.a), aligned(g.b), aligned(g.room[guardsMin:])
	return func() { Gemm(g.tr, g.m, g.n, g.k, a, g.lda, b, g.ldb, c, g.ldc, g.acc) }
}

// aligned is a copy of x that begins with a cache line.
func aligned(x []float32) []float32 {
	room := make([]float32, len(x)+lineBytes/4)
	for uintptr(unsafe.Pointer(&room[0]))%lineBytes != 0 {
		room = room[1:]
	}
	return append(room[:0], x...)
}
