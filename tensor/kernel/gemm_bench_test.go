package kernel

import "testing"

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
	g := newGemmCase(s, unitDraw[float32](newRand(1)))
	for b.Loop() {
		Gemm(g.tr, g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb, g.room[guardsMin:], g.ldc, g.acc)
	}
	b.ReportMetric(GemmFlops(s.m, s.n, s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
