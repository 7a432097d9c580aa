package kernel

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
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
	g := newGemmCase(s, unitDraw[float32](newRand(1)))
	for b.Loop() {
		Gemm(g.tr, g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb, g.room[guardsMin:], g.ldc, g.acc)
	}
	b.ReportMetric(GemmFlops(s.m, s.n, s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// TestGemmShare prints each shape's share of the FMA peak, the two measured in turns; PHALANX_GEMM_SHARE holds
// a pattern of shapes.
func TestGemmShare(t *testing.T) {
	pattern := os.Getenv("PHALANX_GEMM_SHARE")
	if pattern == "" {
		t.Skip("set PHALANX_GEMM_SHARE to a pattern of shapes, such as .*, to measure")
	}
	want := regexp.MustCompile(pattern)
	for _, s := range gemmShapes() {
		if !want.MatchString(s.String()) {
			continue
		}
		g := newGemmCase(s, unitDraw[float32](newRand(1)))
		run := func() float64 {
			Gemm(g.tr, g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb, g.room[guardsMin:], g.ldc, g.acc)
			return GemmFlops(s.m, s.n, s.k)
		}
		share, best := shareOfPeak(Active(), run)
		fmt.Printf("%-24s %5.1f %% of peak, best %6.1f GFLOP/s\n", s, 100*share, best/1e9)
	}
}

// shareOfPeak measures run and the FMA peak in turns of about a millisecond, so that both see the same clock, and gives
// the median quotient over 100 turns and the best rate of run.
func shareOfPeak(path Path, run func() float64) (share, best float64) {
	rate := func(f func() float64, atLeast float64) float64 {
		t0, flops := time.Now(), 0.0
		for flops < atLeast {
			flops += f()
		}
		return flops / time.Since(t0).Seconds()
	}
	peak := func() float64 { return rate(func() float64 { return FMAPeak(path, 20_000) }, 4e7) }
	var shares []float64
	before := peak()
	for range 100 {
		r := rate(run, 1.5e8)
		after := peak()
		shares = append(shares, r/((before+after)/2))
		best, before = max(best, r), after
	}
	slices.Sort(shares)
	return shares[len(shares)/2], best
}
