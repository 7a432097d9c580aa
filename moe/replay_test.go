package moe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/moe"
	"phalanx/nn"
)

// weighed are the probabilities of given experts, from their logits, by the formulas of §5.2.
func weighed(score moe.ScoreFunc, pre bool, logits []float64, experts []int32) []float64 {
	var w []float64
	total := 0.0
	for _, e := range experts {
		v := math.Exp(logits[e])
		switch score {
		case moe.Sigmoid:
			v = 1 / (1 + math.Exp(-logits[e]))
		case moe.SqrtSoftplus:
			v = math.Sqrt(math.Log1p(math.Exp(logits[e])))
		}
		w, total = append(w, v), total+v
	}
	if score == moe.Softmax && pre {
		total = 0
		for _, l := range logits {
			total += math.Exp(l)
		}
	} else if score != moe.Softmax && len(experts) == 1 {
		total = 1
	}
	for j := range w {
		w[j] /= total
	}
	return w
}

// I25: what was recorded is executed again whatever the scores are now; the probabilities are those of the present
// scores at the recorded experts; the balancing losses keep counting the plain choice.
func TestI25_ReplayPlaysChoicesBack(t *testing.T) {
	property.Check(t, 100, func(t *rapid.T) {
		e := rapid.IntRange(2, 6).Draw(t, "experts")
		r := moe.Router[float64]{K: rapid.IntRange(1, e).Draw(t, "k"), PreSoftmax: rapid.Bool().Draw(t, "pre"),
			Score: rapid.SampledFrom([]moe.ScoreFunc{moe.Softmax, moe.Sigmoid, moe.SqrtSoftplus}).Draw(t, "score"), Balancing: aux(moe.AuxLoss, 1)}
		r.Fused = r.Score == moe.Softmax && rapid.Bool().Draw(t, "fused")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
		b, s := rapid.IntRange(1, 2).Draw(t, "rows"), rapid.IntRange(1, 4).Draw(t, "positions")
		var recorded [][]int32
		plain, heard := r, tape{}
		r.Replay = heard.recorder(r.K)
		g := onLogits(e, r)
		at := func(i int) moe.Forward { return moe.Forward{Step: i / 2, Microbatch: i % 2, Router: "test"} }
		place := func(i int) { g.c.Site.Step, g.c.Microbatch = i/2, i%2 }
		for i := range 3 {
			place(i)
			g.c.Site.Phase = nn.Forward
			recorded = append(recorded, g.run(drawn(rng, b, s, e, "some")).route.Expert)
			require.Equal(t, recorded[i], heard[at(i)])
			g.c.Site.Phase = nn.Eval // keeps nothing
			g.run(drawn(rng, b, s, e, "some"))
		}
		require.Len(t, heard, 3)
		r.Replay = heard.player(r.K)
		g = onLogits(e, r)
		for i := range 3 {
			place(i)
			x := drawn(rng, b, s, e, "some")
			got, free := g.run(x), onLogits(e, plain).run(x)
			require.Equal(t, recorded[i], got.route.Expert)
			require.Equal(t, free.sums, got.sums)
			for row := range b * s {
				experts := got.route.Expert[row*r.K : (row+1)*r.K]
				want := weighed(r.Score, r.PreSoftmax, x.logits[row%b][row/b], experts)
				require.NoError(t, trial.Near("probabilities", got.route.Prob[row*r.K:(row+1)*r.K], want, 1e-13))
			}
			g.c.Site.Phase = nn.Eval // plays nothing
			require.Equal(t, free.route, g.run(x).route)
			g.c.Site.Phase = nn.Forward
		}
	})
}

// The gradient of a played choice is that of the executed probabilities: finite differences, with choices that the
// present scores would not make.
func TestI25_ReplayGradients(t *testing.T) {
	for _, score := range []moe.ScoreFunc{moe.Softmax, moe.Sigmoid, moe.SqrtSoftplus} {
		t.Run(fmt.Sprint(score), func(t *testing.T) {
			p := &moe.Replay{Play: func(_ moe.Forward, _ []int, experts []int32) {
				copy(experts, []int32{3, 2, 0, 1, 2, 3, 1, 0, 3, 0, 1, 2})
			}}
			checkGradients(t, mixture{e: 4, router: moe.Router[float64]{K: 2, Score: score, Replay: p, Balancing: aux(moe.AuxLoss, 0.4)}}, somePadding())
		})
	}
}

// A recomputed forward plays what its first forward played, whether it was recorded with recomputation or without.
func TestI25_ReplayUnderRecomputation(t *testing.T) {
	router := moe.Router[float64]{K: 2, Score: moe.Sigmoid, Balancing: aux(moe.AuxLoss, 0.4)}
	for _, recording := range []bool{false, true} {
		heard := tape{}
		router.Replay = heard.recorder(2)
		throughBlock(mixture{e: 4, router: router}, recording)
		require.Len(t, heard, 2)
		for i, n := range heard[moe.Forward{Microbatch: 1, Router: "layer.0"}] { // something that nobody would choose again
			heard[moe.Forward{Microbatch: 1, Router: "layer.0"}][i] = (n + 1) % 4
		}
		var got []stepped
		for _, recompute := range []bool{false, true} {
			router.Replay = heard.player(2)
			got = append(got, throughBlock(mixture{e: 4, router: router}, recompute))
		}
		require.Equal(t, got[0], got[1])
		router.Replay = nil
		require.NotEqual(t, throughBlock(mixture{e: 4, router: router}, false).grads, got[0].grads)
	}
}

// I24: a bias moves by nothing or by the rate, towards the mean; the executed counts of valid rows add up to K each.
func TestI24_BiasMovesByTheRateOrNotAtAll(t *testing.T) {
	property.Check(t, 150, func(t *rapid.T) {
		e := rapid.IntRange(1, 7).Draw(t, "experts")
		r := moe.Router[float64]{K: rapid.IntRange(1, e).Draw(t, "k"), Score: rapid.SampledFrom([]moe.ScoreFunc{moe.Sigmoid, moe.SqrtSoftplus}).Draw(t, "score")}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
		b := biased(make([]float64, e)...)
		for i := range b.Values {
			b.Values[i] = 0.5 * rng.NormFloat64()
		}
		before := append([]float64(nil), b.Values...)
		r.Bias = b
		g := onLogits(e, r)
		counts, tokens := make([]float64, e), 0.0
		for i := range rapid.IntRange(1, 3).Draw(t, "microbatches") {
			g.c.Site.Microbatch = i
			x := drawn(rng, 2, 4, e, rapid.SampledFrom([]string{"some", "none", "all"}).Draw(t, "padding"))
			got := g.run(x)
			for row, p := range x.pad {
				if !p {
					tokens++
					at := (row%4*2 + row/4) * r.K // rows are position first
					for _, c := range got.route.Expert[at : at+r.K] {
						counts[c]++
					}
				}
			}
			// Evaluation and recomputation in between count nothing: other rows, or a double count would change no sign.
			for _, change := range []func(*nn.Ctx[float64]){func(c *nn.Ctx[float64]) { c.Site.Phase = nn.Eval }, func(c *nn.Ctx[float64]) { c.Recompute = true }} {
				again := *g.c
				change(&again)
				(&rig[float64]{router: g.router, params: g.params, c: &again}).forward(drawn(rng, 2, 4, e, "none"))
			}
		}
		sum := 0.0
		for _, n := range counts {
			sum += n
		}
		require.Equal(t, float64(r.K)*tokens, sum)
		require.Equal(t, before, b.Values, "the bias stands still during a step")
		b.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
		for i, n := range counts {
			want := before[i]
			switch mean := sum / float64(e); {
			case n < mean:
				want += 0.001
			case n > mean:
				want -= 0.001
			}
			require.Equal(t, want, b.Values[i])
		}
	})
}

// A bias that several depths share moves once for each, as the reference cases have it: depth 1 counts (2,0), depth 2
// (0,2), so that it ends where it began; with (3,0) twice it moves twice.
func TestRepeatedLayerMovesTheBiasPerApplication(t *testing.T) {
	for _, c := range []struct {
		choices [2][]int
		want    []float64
	}{{[2][]int{{0, 0}, {1, 1}}, []float64{0, 0}}, {[2][]int{{0, 0, 0}, {0, 0, 0}}, []float64{-.002, .002}}, {[2][]int{{0, 0, 0}, {0, 1}}, []float64{-.001, .001}}} {
		b := moe.NewBias[float64]("bias", 2, 0.001)
		b.Use(1)
		b.Use(2)
		g := onLogits(2, moe.Router[float64]{K: 1, Score: moe.Sigmoid, Bias: b})
		for i, choices := range c.choices {
			g.c.Site.Depth = i + 1
			g.run(one(nil, toExperts(2, choices...)...))
		}
		b.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
		require.Equal(t, c.want, b.Values)
	}
}
