package moe_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

const width = 5 // hidden features of the rows

// routing is a router over whole rows, written plainly. Rows are b·S + position.
type routing struct {
	docs            nn.Docs
	b, s            int
	tp, cp          int
	sp              bool
	e, k            int
	pre             bool
	aux, z, scale   float64
	divisor         float64
	valid           []bool
	w, x, dprob     []float64 // [e, width], [b·s, width], [b·s, k]
	order, contents uint64

	expert  []int32
	prob    []float64
	counts  []float64
	tokens  float64
	dw, dx  []float64
	auxLoss float64
	zLoss   float64
}

func drawRouting(t *rapid.T) *routing {
	r := &routing{b: rapid.IntRange(1, 3).Draw(t, "rows"), s: rapid.IntRange(1, 9).Draw(t, "positions"), tp: rapid.IntRange(1, 3).Draw(t, "tp"),
		cp: rapid.IntRange(1, 3).Draw(t, "cp"), e: rapid.IntRange(2, 6).Draw(t, "experts"), pre: rapid.Bool().Draw(t, "pre softmax"),
		aux: 0.7, z: 0.2, scale: 0.5, divisor: float64(rapid.IntRange(1, 3).Draw(t, "depths")), order: rapid.Uint64().Draw(t, "order"),
		contents: rapid.Uint64().Draw(t, "contents")}
	r.k, r.sp = rapid.IntRange(1, min(r.e, 3)).Draw(t, "k"), r.tp > 1 && rapid.Bool().Draw(t, "sp")
	if rapid.Bool().Draw(t, "packed") {
		r.docs = trial.DrawDocs(t, r.b, r.s)
	}
	kind := rapid.SampledFrom([]string{"some", "right", "none", "all"}).Draw(t, "padding")
	rng := rand.New(rand.NewPCG(r.contents, 0))
	ends := []int{rng.IntN(r.s + 1), rng.IntN(r.s + 1), rng.IntN(r.s + 1)}
	for i := range r.b * r.s {
		r.valid = append(r.valid, kind == "none" || kind == "some" && rng.IntN(3) > 0 || kind == "right" && i%r.s < ends[i/r.s])
		for range width {
			r.x = append(r.x, rng.NormFloat64())
		}
		for range r.k {
			r.dprob = append(r.dprob, rng.NormFloat64())
		}
	}
	for range r.e * width {
		r.w = append(r.w, rng.NormFloat64())
	}
	return r
}

// row is what the plain router knows of a row.
type row struct {
	logits, scores []float64
	lse            float64
	chosen         []int
	probs          []float64
}

func (r *routing) route(x []float64) row {
	out := row{logits: make([]float64, r.e), scores: make([]float64, r.e)}
	sum := 0.0
	for e := range r.e {
		for i, v := range x {
			out.logits[e] += v * r.w[e*width+i]
		}
		sum += math.Exp(out.logits[e])
	}
	out.lse = math.Log(sum)
	for e, l := range out.logits {
		out.scores[e] = math.Exp(l) / sum
	}
	taken := map[int]bool{}
	chosenSum := 0.0
	for range r.k {
		best := -1
		for e, l := range out.logits {
			if !taken[e] && (best < 0 || l > out.logits[best]) {
				best = e
			}
		}
		taken[best] = true
		out.chosen, chosenSum = append(out.chosen, best), chosenSum+math.Exp(out.logits[best])
	}
	for _, e := range out.chosen {
		p := out.scores[e]
		if !r.pre {
			p = math.Exp(out.logits[e]) / chosenSum
		}
		out.probs = append(out.probs, p)
	}
	return out
}

// run computes everything: choices, losses, gradients.
func (r *routing) run() {
	r.counts, r.dw, r.dx = make([]float64, r.e), make([]float64, len(r.w)), make([]float64, len(r.x))
	var rows []row
	for i, ok := range r.valid {
		at := r.route(r.x[i*width : (i+1)*width])
		rows = append(rows, at)
		for j, e := range at.chosen {
			r.expert, r.prob = append(r.expert, int32(e)), append(r.prob, at.probs[j])
			if ok {
				r.counts[e]++
			}
		}
		if ok {
			r.tokens++
		}
	}
	tokens := math.Max(r.tokens, 1)
	factor := float64(r.e) / (float64(r.k) * tokens * tokens)
	for i, at := range rows {
		dlogit := make([]float64, r.e)
		r.chosenGrad(at, r.dprob[i*r.k:(i+1)*r.k], dlogit)
		if r.valid[i] {
			r.auxGrad(at, factor, tokens, dlogit)
		}
		for e, d := range dlogit {
			for f := range width {
				r.dw[e*width+f] += d * r.x[i*width+f]
				r.dx[i*width+f] += d * r.w[e*width+f]
			}
		}
	}
}

// chosenGrad is Σ_j dprob_j · ∂prob_j/∂logit_e.
func (r *routing) chosenGrad(at row, dprob, dlogit []float64) {
	for j, d := range dprob {
		for e := range r.e {
			p := at.scores[e]
			if !r.pre {
				p = 0
				for i, c := range at.chosen {
					if c == e {
						p = at.probs[i]
					}
				}
			}
			same := 0.0
			if at.chosen[j] == e {
				same = 1
			}
			dlogit[e] += d * at.probs[j] * (same - p)
		}
	}
}

// auxGrad adds a valid row's share of both losses, and their gradients.
func (r *routing) auxGrad(at row, factor, tokens float64, dlogit []float64) {
	share := 0.0
	for e, p := range at.scores {
		share += factor * r.counts[e] * p
	}
	r.auxLoss += share / r.divisor
	r.zLoss += at.lse * at.lse / tokens / r.divisor
	weight := r.scale / r.divisor
	for e, p := range at.scores {
		dlogit[e] += weight * (r.aux*p*(factor*r.counts[e]-share) + r.z*2*at.lse*p/tokens)
	}
}

// counted keeps what a router observes.
type counted map[string][]float64

func (c counted) Wants(string, int) bool   { return true }
func (c counted) Observe(o nn.Observation) { c[o.Name] = o.Values }

// overRanks runs package moe's router on every rank and compares with the plain one.
func (r *routing) overRanks(t require.TestingT) {
	align := 1
	if r.sp {
		align = r.tp
	}
	sizes := mesh.Sizes{TP: r.tp, CP: r.cp, DP: 1, PP: 1}
	src, l := trial.Slots(r.docs, r.b, r.s, r.cp, align)
	dw, dx := make([]float64, len(r.w)), make([]float64, len(r.x))
	sums, counts := nn.AuxSums{}, make([]float64, r.e)
	err := inproc.Run(sizes, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			at := sizes.Coord(rank)
			frames := nn.NewFrames(r.docs, r.b, r.s, r.cp, align)
			got := counted{}
			ctx := &nn.Ctx[float64]{Comm: c, Arena: &tensor.Arena[float64]{}, B: r.b, Frame: frames[at.CP], Frames: frames, SP: r.sp, Scope: "test",
				Site: nn.Site{Phase: nn.Forward}, Aux: nn.AuxScale{Gradient: r.scale, Divisor: r.divisor}, Sums: &nn.AuxSums{}, Obs: got}
			pad := (&nn.Validity{B: r.b, S: r.s, Valid: r.valid}).PadMask().Local(ctx.Frame)
			if r.sp {
				pad = pad.Shard(at.TP, r.tp)
			}
			ctx.SetPad(pad)
			from, n := ctx.SPRows()
			whole := make([]int, n) // row of the whole that each local row is
			x, dprob := tensor.NewMat[float64](n, width), make([]float64, n*r.k)
			for i := range whole {
				b, slot := (from+i)%r.b, (from+i)/r.b
				whole[i] = -1
				if p := src[at.CP][b*l+slot]; p >= 0 {
					whole[i] = b*r.s + p
					copy(x.Row(i), r.x[whole[i]*width:])
					copy(dprob[i*r.k:(i+1)*r.k], r.dprob[whole[i]*r.k:])
				}
			}
			params := &nn.Params[float64]{}
			w := params.Declare(nn.Spec{Name: "gate", Shape: []int{r.e, width}, Shard: nn.Unsharded})
			params.Build()
			copy(w.Data, r.w)
			router := moe.Router[float64]{Weight: nn.WeightsOf(r.e, width, w), K: r.k, PreSoftmax: r.pre, ZCoeff: r.z,
				Balancing: []moe.Balancing{{Kind: moe.AuxLoss, Coeff: r.aux}}}
			route, saved := router.Forward(ctx, x)
			back := router.Backward(ctx, saved, dprob)
			if r.sp || at.TP == 0 {
				for i, n := range got["test.router.tokens_per_expert"] {
					counts[i] += n
				}
			}
			require.Equal(t, []float64{r.tokens}, got["test.router.valid_tokens"])
			sums.Balancing[0] += ctx.Sums.Balancing[0]
			sums.Z += ctx.Sums.Z
			for i, g := range whole {
				if g >= 0 {
					require.Equal(t, r.expert[g*r.k:(g+1)*r.k], route.Expert[i*r.k:(i+1)*r.k])
					require.InDeltaSlice(t, r.prob[g*r.k:(g+1)*r.k], route.Prob[i*r.k:(i+1)*r.k], 1e-12)
					copy(dx[g*width:], back.Row(i))
				}
			}
			if r.sp || at.TP == 0 { // else every tensor-parallel rank has the same
				for i, v := range w.Grad {
					dw[i] += v
				}
			}
		}}
	}, inproc.Options{Seed: r.order})
	require.NoError(t, err)
	require.Equal(t, r.counts, counts)
	require.NoError(t, trial.Near("aux loss", []float64{sums.Balancing[0]}, []float64{r.auxLoss}, 1e-11))
	require.NoError(t, trial.Near("z loss", []float64{sums.Z}, []float64{r.zLoss}, 1e-11))
	require.NoError(t, trial.Near("router gradient", dw, r.dw, 1e-11))
	require.NoError(t, trial.Near("input gradient", dx, r.dx, 1e-11))
}

func TestRouterOverRanksAgainstPlainOne(t *testing.T) {
	property.Check(t, 150, func(t *rapid.T) {
		r := drawRouting(t)
		r.run()
		r.overRanks(t)
	})
}

// Padding columns and padding rows change neither losses nor router gradient; padding alone is zero.
func TestI7_I8_I9_RouterWithoutItsPadding(t *testing.T) {
	property.Check(t, 100, func(t *rapid.T) {
		r := drawRouting(t)
		r.docs = nil
		for i := range r.dprob {
			if !r.valid[i/r.k] {
				r.dprob[i] = 0 // nothing learns from padding
			}
		}
		r.run()
		r.overRanks(t)
		short := &routing{b: 1, tp: 1, cp: 1, e: r.e, k: r.k, pre: r.pre, aux: r.aux, z: r.z, scale: r.scale, divisor: r.divisor, w: r.w}
		for i, ok := range r.valid {
			if ok {
				short.s++
				short.valid, short.x = append(short.valid, true), append(short.x, r.x[i*width:(i+1)*width]...)
				short.dprob = append(short.dprob, r.dprob[i*r.k:(i+1)*r.k]...)
			}
		}
		if short.s == 0 {
			require.Equal(t, []float64{0, 0, 0}, []float64{r.auxLoss, r.zLoss, r.tokens})
			require.Equal(t, make([]float64, len(r.w)), r.dw)
			return
		}
		short.run()
		short.overRanks(t)
		require.NoError(t, trial.Near("router gradient", r.dw, short.dw, 1e-11))
		require.Equal(t, short.counts, r.counts)
		require.InDelta(t, short.auxLoss, r.auxLoss, 1e-11)
		require.InDelta(t, short.zLoss, r.zLoss, 1e-11)
	})
}

// A layer is the sum over a row's experts of probability times a SwiGLU network, whatever else is in the batch.
func TestLayerAgainstPlainOne(t *testing.T) {
	property.Check(t, 60, func(t *rapid.T) {
		r := drawRouting(t)
		r.b, r.docs = 1, nil
		r.s = len(r.valid)
		rng := rand.New(rand.NewPCG(r.contents, 1))
		const f = 3
		params := &nn.Params[float64]{}
		layer := &moe.Layer[float64]{Place: moe.Place{Experts: r.e, EP: 1, ETP: 1}, Act: nn.Activation[float64]{Gated: true}}
		gate := params.Declare(nn.Spec{Name: "gate", Shape: []int{r.e, width}, Shard: nn.Unsharded})
		var fc1, fc2 []*nn.Param[float64]
		for e := range r.e {
			fc1 = append(fc1, params.Declare(nn.Spec{Name: "a" + string(rune('0'+e)), Shape: []int{2 * f, width}, Shard: nn.Unsharded}))
			fc2 = append(fc2, params.Declare(nn.Spec{Name: "b" + string(rune('0'+e)), Shape: []int{width, f}, Shard: nn.Unsharded}))
		}
		params.Build()
		for _, p := range params.List {
			for i := range p.Data {
				p.Data[i] = rng.NormFloat64()
			}
		}
		copy(gate.Data, r.w)
		layer.Router = moe.Router[float64]{Weight: nn.WeightsOf(r.e, width, gate), K: r.k, PreSoftmax: r.pre}
		for e := range r.e {
			layer.Experts = append(layer.Experts, moe.Expert[float64]{FC1: nn.WeightsOf(2*f, width, fc1[e]), FC2: nn.WeightsOf(width, f, fc2[e])})
		}
		frames := nn.NewFrames(nil, 1, r.s, 1, 1)
		ctx := &nn.Ctx[float64]{Comm: nn.Solo{}, Arena: &tensor.Arena[float64]{}, B: 1, Frame: frames[0], Frames: frames, Aux: nn.AuxScale{Divisor: 1}}
		y, _ := layer.Forward(ctx, tensor.MatOf(r.x, r.s, width))
		for i := range r.s {
			x := r.x[i*width : (i+1)*width]
			at, want := r.route(x), make([]float64, width)
			for j, e := range at.chosen {
				h := make([]float64, 2*f)
				for o := range h {
					for n, v := range x {
						h[o] += v * fc1[e].Data[o*width+n]
					}
				}
				for o := range want {
					for n := range f {
						want[o] += at.probs[j] * h[n] / (1 + math.Exp(-h[n])) * h[f+n] * fc2[e].Data[o*f+n]
					}
				}
			}
			require.NoError(t, trial.Near("row", y.Row(i), want, 1e-11))
		}
	})
}
