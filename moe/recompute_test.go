package moe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

// block is a mixture in a transformer layer.
func (m mixture) block(r *gradcheck.Rig, s int) (*nn.Block[float64], *moe.Layer[float64]) {
	const d = 4
	b := &nn.Block[float64]{Norm1: nn.Norm[float64]{Gain: r.Declare("norm1", hidden), Eps: 1e-5}, Norm2: nn.Norm[float64]{Gain: r.Declare("norm2", hidden), Eps: 1e-5}}
	qkv, out := r.Declare("qkv", 3*d, hidden), r.Declare("out", hidden, d)
	l := m.on(r)
	b.FFN = l
	b.Attn = nn.Attention[float64]{Hq: 1, Hkv: 1, D: d, Rope: nn.NewRopeTable[float64](s, d, 100),
		QKV: nn.ColumnLinear[float64]{Weights: nn.WeightsOf(3*d, hidden, qkv)}, Out: nn.RowLinear[float64]{Weights: nn.WeightsOf(hidden, d, out)}}
	return b, l
}

// tally is how often each quantity was shown, and the last of each.
type tally struct {
	counted
	times map[string]int
}

func (t tally) Observe(o nn.Observation) {
	t.counted.Observe(o)
	t.times[o.Name]++
}

// stepped is what one step of two microbatches through a block leaves behind.
type stepped struct {
	outputs, inputs [][]float64
	grads           [][]float64
	sums            []nn.AuxSums
	times           map[string]int
	bias            []float64
}

func throughBlock(m mixture, recompute bool) stepped {
	const b, s = 2, 4
	r := gradcheck.New(b, s)
	bl, l := m.block(r, s)
	out := stepped{times: map[string]int{}}
	pads := []*nn.PadMask{{B: b, S: s, Pad: []bool{false, false, false, true, false, false, true, true}}, nil}
	l.Router.StartStep(0)
	r.Params.ZeroGrads()
	xs := []tensor.Mat[float64]{r.Random(b*s, hidden), r.Random(b*s, hidden)}
	dy := r.Random(b*s, hidden)
	cs, saved := make([]*nn.Ctx[float64], 2), make([]*nn.BlockSaved[float64], 2)
	for i, x := range xs {
		c := r.C.At(0, "layer.0")
		c.Site.Microbatch, c.Microbatch, c.Site.Phase = i, i, nn.Forward
		c.Aux = nn.AuxScale{Gradient: gradientWeight, Divisor: divisor}
		c.Sums, c.Obs, c.DropActivations = &nn.AuxSums{}, tally{counted{}, out.times}, recompute
		c.SetPad(pads[i])
		var y tensor.Mat[float64]
		y, saved[i] = bl.Forward(c, x)
		out.outputs = append(out.outputs, append([]float64(nil), y.Data...))
		cs[i] = c
	}
	for i := range xs {
		cs[i].Site.Phase = nn.Backward
		out.inputs = append(out.inputs, append([]float64(nil), bl.Backward(cs[i], saved[i], dy).Data...))
		out.sums = append(out.sums, *cs[i].Sums)
	}
	for _, p := range r.Params.List {
		out.grads = append(out.grads, append([]float64(nil), p.Grad...))
	}
	if l.Router.Bias != nil {
		l.Router.Bias.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
		out.bias = l.Router.Bias.Values
	}
	return out
}

// Recomputation changes no bit: not of outputs and gradients, not of statistics, of what is shown, of the bias.
func TestRecomputeChangesNoBit(t *testing.T) {
	all := routers()
	all["shared"] = mixture{e: 4, router: all["sigmoid k=2 all losses"].router, shared: true, gate: true}
	full := all["sigmoid groups bias"]
	full.router.Balancing, full.router.ZCoeff, full.router.Jitter = all["sigmoid k=2 all losses"].router.Balancing, 0.2, 0.1
	full.router.Capacity, full.drop, full.shared = moe.Capacity{Factor: 0.8}, true, true
	all["everything"] = full
	fused := all["softmax k=2 all losses"]
	fused.router.Fused = true
	all["fused"] = fused
	each(t, all, func(t *testing.T, m mixture) {
		if m.router.Bias != nil {
			m.router.Bias = tilted(m.e)
		}
		want := throughBlock(m, false)
		if m.router.Bias != nil {
			m.router.Bias = tilted(m.e)
		}
		require.Equal(t, want, throughBlock(m, true))
	})
}

// B6 of docs/examples.md: two microbatches of 12 rows, recomputed or not, count once. Rows are one-hot and attention adds nothing,
// so that each goes to the expert of its place.
func TestB6_RecomputeCountsOnce(t *testing.T) {
	for _, recompute := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		r := gradcheck.New(1, 12)
		bias := moe.NewBias[float64]("bias", 4, 0.001)
		bias.Use(0)
		bl, l := mixture{e: 4, router: moe.Router[float64]{K: 1, Score: moe.Sigmoid, Bias: bias, Balancing: aux(moe.AuxLoss, 1)}}.block(r, 12)
		clear(bl.Attn.Out.W)
		clear(l.Router.Weight.W)
		for i := range hidden {
			bl.Norm2.Gain.Data[i] = 1
			if i < 4 {
				l.Router.Weight.W[i*hidden+i] = 1
			}
		}
		l.Router.StartStep(0)
		total := make([]float64, 4)
		for mb, counts := range [][]int64{{5, 3, 2, 2}, {1, 3, 4, 4}} {
			x, at := tensor.NewMat[float64](12, hidden), 0
			for e, n := range counts {
				for range n {
					x.Row(at)[e] = 1
					at++
				}
			}
			seen := counted{}
			c := r.C.At(0, "layer.0")
			c.Site.Phase, c.Site.Microbatch, c.DropActivations, c.Obs = nn.Forward, mb, recompute[mb], seen
			y, saved := bl.Forward(c, x)
			c.Site.Phase = nn.Backward
			bl.Backward(c, saved, y)
			require.Equal(t, nn.Float64s(counts), seen["layer.0.router.tokens_per_expert"])
			for e, n := range counts {
				total[e] += float64(n)
			}
		}
		require.Equal(t, []float64{6, 6, 6, 6}, total)
		bias.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
		require.Equal(t, []float64{0, 0, 0, 0}, bias.Values, "counted twice the first would give [11 9 8 8], mean 9: signs - 0 + +")
	}
}
