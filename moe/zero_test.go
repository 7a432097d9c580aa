package moe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config/mutation"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

// drawn is a batch of random logits with some of its positions, or none, or all of them padding.
func drawn(rng *rand.Rand, b, s, e int, padding string) batch {
	x := batch{pad: make([]bool, b*s)}
	for i := range b {
		x.logits = append(x.logits, nil)
		for j := range s {
			row := make([]float64, e)
			for f := range row {
				row[f] = rng.NormFloat64()
			}
			x.logits[i] = append(x.logits[i], row)
			x.pad[i*s+j] = padding == "all" || padding == "some" && rng.IntN(3) == 0
		}
	}
	return x
}

// zeroCase is one cell of the grid of I9: a microbatch without a token.
type zeroCase struct {
	kind           moe.BalancingKind
	fused, history bool
}

func (z zeroCase) String() string {
	return fmt.Sprintf("%s,fused=%v,history=%v", z.kind, z.fused, z.history)
}

func (z zeroCase) router() moe.Router[float64] {
	return moe.Router[float64]{K: 2, Fused: z.fused, ZCoeff: 0.2, Balancing: aux(z.kind, 0.7)}
}

func zeroGrid() []zeroCase {
	var all []zeroCase
	for _, kind := range []moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss} {
		for _, fused := range []bool{false, true} {
			all = append(all, zeroCase{kind, fused, false}, zeroCase{kind, fused, true})
		}
	}
	return all
}

// I9: losses and gradients are exactly zero, counts too, whatever was counted before.
func TestI9_MicrobatchWithoutTokens(t *testing.T) {
	for _, z := range zeroGrid() {
		t.Run(z.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 0))
			g := onLogits(5, z.router())
			if z.history {
				before := g.run(drawn(rng, 2, 3, 5, "some"))
				require.NotZero(t, before.sums.Balancing[z.kind])
				require.NotEqual(t, make([]float64, 25), before.grad)
			}
			got := g.run(drawn(rng, 2, 3, 5, "all"))
			require.Equal(t, nn.AuxSums{}, got.sums)
			require.Equal(t, make([]float64, 25), got.grad)
			require.Equal(t, make([]float64, 5), got.get("router.tokens_per_expert"))
			require.Equal(t, []float64{0}, got.get("router.valid_tokens"))
			for _, p := range got.route.Prob {
				require.True(t, p > 0 && p < 1, "padding is routed, it only does not count")
			}
		})
	}
}

// The clamp is what makes it so: without it losses and the router's gradient are not a number in every case of the grid.
// Where a token is left there is nothing to clamp, and padding has no gradient.
func TestWithoutTheClampItIsNaN(t *testing.T) {
	for _, z := range zeroGrid() {
		g := onLogits(5, z.router())
		g.c.Mut = mutation.UnclampedZeroTokens
		rng := rand.New(rand.NewPCG(1, 0))
		got := g.run(drawn(rng, 2, 3, 5, "all"))
		require.True(t, math.IsNaN(got.sums.Balancing[z.kind]), z)
		require.True(t, math.IsNaN(got.sums.Z), z)
		for _, v := range got.grad {
			require.True(t, math.IsNaN(v), z)
		}
		g, clamped := onLogits(5, z.router()), onLogits(5, z.router())
		g.c.Mut = mutation.UnclampedZeroTokens
		x := drawn(rng, 2, 3, 5, "some")
		require.Equal(t, clamped.run(x), g.run(x), z)
	}
}

// Counts of a microbatch without tokens are zeros of a call like others: the third of three microbatches has a third of
// the counts of both others. Its own n is (1,1) after (1,1), T is 2: 2/(1·4)·(2/3)·2.
func TestEmptyMicrobatchIsACallOfTheRunningMean(t *testing.T) {
	g := onLogits(2, moe.Router[float64]{K: 1, PreSoftmax: true, Balancing: aux(moe.GlobalAuxLoss, 1)})
	full := one([]bool{false, false}, logs([]float64{.8, .2}, []float64{.3, .7})...)
	g.run(full)
	require.Zero(t, g.run(one([]bool{true, true}, full.logits[0]...)).sums.Balancing[moe.GlobalAuxLoss])
	require.InDelta(t, 2./3, g.run(full).sums.Balancing[moe.GlobalAuxLoss], 1e-12)
}

// unclamped is a balancing loss of softmax scores of one microbatch, by the formula of §5.4 and nothing else.
func unclamped(kind moe.BalancingKind, perRow bool, k int, x batch, clamp func(float64) float64) float64 {
	e, rows := x.experts(), len(x.logits)
	n, p, tokens := make([][]float64, rows), make([][]float64, rows), make([]float64, rows)
	all, whole := make([]float64, e), 0.0
	for b, row := range x.logits {
		n[b], p[b] = make([]float64, e), make([]float64, e)
		for s, logits := range row {
			if x.pad[b*len(row)+s] {
				continue
			}
			tokens[b]++
			whole++
			sum := 0.0
			for _, l := range logits {
				sum += math.Exp(l)
			}
			for i, l := range logits {
				larger := 0
				for _, m := range logits {
					if m > l {
						larger++
					}
				}
				if larger < k {
					n[b][i]++
					all[i]++
				}
				p[b][i] += math.Exp(l) / sum
			}
		}
	}
	if kind == moe.SeqAuxLoss {
		sum, filled := 0.0, 0.0
		for b := range n {
			t := whole / float64(rows)
			if perRow {
				t = tokens[b]
			}
			if tokens[b] > 0 {
				filled++
			}
			for i := range n[b] {
				sum += float64(e) / (float64(k) * clamp(t) * clamp(t)) * n[b][i] * p[b][i]
			}
		}
		if perRow {
			return sum / clamp(filled)
		}
		return sum / float64(rows)
	}
	sum := 0.0
	for b := range p {
		for i := range p[b] {
			sum += float64(e) / (float64(k) * clamp(whole) * clamp(whole)) * all[i] * p[b][i]
		}
	}
	return sum
}

// I10: where there is a token to divide by, the clamp changes no bit; and the value is that of the formula.
func TestI10_ClampIsNoOpForTokens(t *testing.T) {
	property.Check(t, 150, func(t *rapid.T) {
		z := rapid.SampledFrom(zeroGrid()).Draw(t, "case")
		perRow := z.kind == moe.SeqAuxLoss && rapid.Bool().Draw(t, "per row")
		b, s := rapid.IntRange(1, 3).Draw(t, "rows"), rapid.IntRange(1, 5).Draw(t, "positions")
		x := drawn(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0)), b, s, 5, rapid.SampledFrom([]string{"some", "none"}).Draw(t, "padding"))
		tokens := 0
		for _, p := range x.pad {
			if !p {
				tokens++
			}
		}
		r := z.router()
		r.Balancing[0].PerRow = perRow
		got := onLogits(5, r).run(x)
		want := unclamped(z.kind, perRow, 2, x, func(v float64) float64 { return max(v, 1) })
		require.NoError(t, trial.Near("loss", []float64{got.sums.Balancing[z.kind]}, []float64{want}, 1e-13))
		if tokens < b || tokens == 0 { // an average below one token, or rows without any
			return
		}
		bare := onLogits(5, r)
		bare.c.Mut = mutation.UnclampedZeroTokens
		other := bare.run(x)
		if perRow && math.IsNaN(other.sums.Balancing[z.kind]) {
			return // a row without tokens is a zero case of its own
		}
		require.Equal(t, other.sums, got.sums)
		require.Equal(t, other.grad, got.grad)
		require.NoError(t, trial.Near("loss", []float64{other.sums.Balancing[z.kind]},
			[]float64{unclamped(z.kind, perRow, 2, x, func(v float64) float64 { return v })}, 1e-13))
	})
}

// ulp is the rounding of a type near one.
func ulp[T tensor.Float]() float64 {
	if tensor.DTypeOf[T]() == tensor.F32 {
		return 1. / (1 << 23)
	}
	return 1e-14
}

// fusedAgrees compares one pass over a row with the plain one: the same choices and counts, everything else within
// rounding.
func fusedAgrees[T tensor.Float](t *testing.T) {
	property.Check(t, 100, func(t *rapid.T) {
		e := rapid.IntRange(1, 9).Draw(t, "experts")
		r := moe.Router[T]{K: rapid.IntRange(1, e).Draw(t, "k"), PreSoftmax: rapid.Bool().Draw(t, "pre"), ZCoeff: 0.2,
			Scaling: rapid.SampledFrom([]float64{0, 2.5}).Draw(t, "scaling")}
		for _, kind := range []moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss} {
			r.Balancing = append(r.Balancing, moe.Balancing{Kind: kind, Coeff: 0.5 + float64(kind), PerRow: rapid.Bool().Draw(t, "per row")})
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
		padding := rapid.SampledFrom([]string{"some", "none", "all"}).Draw(t, "padding")
		x := drawn(rng, rapid.IntRange(1, 3).Draw(t, "rows"), rapid.IntRange(1, 5).Draw(t, "positions"), e, padding)
		if rapid.Bool().Draw(t, "large") {
			for _, row := range x.logits {
				for _, l := range row {
					l[rng.IntN(e)] += 40
				}
			}
		}
		plain := onLogits(e, r)
		r.Fused = true
		fused := onLogits(e, r)
		for range 2 { // twice, for the running mean
			a, b := plain.run(x), fused.run(x)
			require.Equal(t, a.route.Expert, b.route.Expert)
			require.Equal(t, a.get("router.tokens_per_expert"), b.get("router.tokens_per_expert"))
			near := func(what string, got, want []float64, ulps float64) {
				require.NoError(t, trial.Near(what, got, want, ulps*ulp[T]()))
			}
			near("probabilities", nn.Float64s(b.route.Prob), nn.Float64s(a.route.Prob), 1)
			near("losses", append(b.sums.Balancing[:], b.sums.Z), append(a.sums.Balancing[:], a.sums.Z), 1)
			near("gradient", nn.Float64s(b.grad), nn.Float64s(a.grad), 8)
		}
	})
}

func TestFusedAgreesWithPlain(t *testing.T) {
	t.Run("fp64", fusedAgrees[float64])
	t.Run("fp32", fusedAgrees[float32])
}

// The same operation twice gives the same bits.
func TestReplayOfTheOperation(t *testing.T) {
	for _, fused := range []bool{false, true} {
		for _, padding := range []string{"some", "all"} {
			t.Run(fmt.Sprintf("fused=%v,all_padding=%v", fused, padding == "all"), func(t *testing.T) {
				for _, kind := range []moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss} {
					x := drawn(rand.New(rand.NewPCG(3, 0)), 2, 17, 8, padding)
					r := moe.Router[float32]{K: 3, Fused: fused, ZCoeff: 0.2, Balancing: aux(kind, 0.7)}
					want := onLogits(8, r).run(x)
					require.Equal(t, want, onLogits(8, r).run(x))
					if padding == "all" {
						require.Equal(t, make([]float32, 64), want.grad)
					}
				}
			})
		}
	}
}

// Padding alone leaves an expert bias and what it has counted alone.
func TestI9_BiasWithoutTokens(t *testing.T) {
	b := biased(.1, -.2, .2)
	g := onLogits(3, moe.Router[float64]{K: 1, Score: moe.Sigmoid, Bias: b, Balancing: aux(moe.AuxLoss, 1)})
	g.run(one(nil, toExperts(3, 0, 0, 1)...))
	got := g.run(one([]bool{true, true}, toExperts(3, 2, 2)...))
	require.Equal(t, nn.AuxSums{}, got.sums)
	b.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
	require.InDeltaSlice(t, []float64{.099, -.2, .201}, b.Values, 1e-15, "counts (2,1,0), mean 1")
	b.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
	require.InDeltaSlice(t, []float64{.099, -.2, .201}, b.Values, 1e-15, "counts are forgotten")
}
