package nn_test

import (
	"math"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Where the tests of attention stand in a run.
const (
	dropStep, dropMicrobatch = 5, 3
	dropScope                = "layer.7"
)

// keptOf is what element i of the draws of (sample, position) is multiplied by, from the definition: a word of Philox under
// the key seed ^ hash, counter (step, sample, position, i/4), dropped below rate·2³².
func keptOf(d nn.Dropout, key uint64, step, sample, position, i int) float64 {
	w := kernel.Philox([2]uint32{uint32(key), uint32(key >> 32)}, [4]uint32{uint32(step), uint32(sample), uint32(position), uint32(i / 4)})
	if float64(w[i%4]) < math.Round(d.Rate*(1<<32)) {
		return 0
	}
	return 1 / (1 - d.Rate)
}

// kept is what a probability of attention is multiplied by; rows of batches are as in the tests of attention.
func (a *dense) kept(head, b, query, key int) float64 {
	d := a.drop
	if d.Rate == 0 {
		return 1
	}
	k := d.Seed ^ xxhash.Sum64String("dropout attention "+dropScope)
	return keptOf(d, k+uint64(head)*0x9E3779B97F4A7C15, dropStep, dropMicrobatch*a.b+b, query, key)
}

// Activations are dropped by step, sample, position and feature, in training only; gradients of the same elements too.
func TestDropIsAFunctionOfItsPlace(t *testing.T) {
	const b, s, h = 3, 5, 6
	r := gradcheck.New(b, s)
	r.C.Scope, r.C.Site.Step, r.C.Microbatch, r.C.Site.Phase = "mtp.2", 4, 2, nn.Forward
	d := nn.Dropout{Rate: 0.25, Seed: 99}
	x := r.Random(b*s, h)
	got, again := r.C.Drop(d, "after mlp", x), r.C.Drop(d, "after mlp", x)
	require.Equal(t, got.Data, again.Data)
	key := d.Seed ^ xxhash.Sum64String("dropout after mlp mtp.2")
	for i := range x.Rows {
		for j, v := range x.Row(i) {
			require.InDelta(t, v*keptOf(d, key, 4, 2*b+i%b, i/b, j), got.Row(i)[j], 1e-15)
		}
	}
	for _, other := range []func(*nn.Ctx[float64]){func(c *nn.Ctx[float64]) { c.Site.Step++ }, func(c *nn.Ctx[float64]) { c.Microbatch++ },
		func(c *nn.Ctx[float64]) { c.Scope = "mtp.1" }} {
		c := *r.C
		other(&c)
		require.NotEqual(t, got.Data, c.Drop(d, "after mlp", x).Data)
	}
	c := *r.C
	c.Site.Phase = nn.Eval
	require.Equal(t, x.Data, c.Drop(d, "after mlp", x).Data)
}

// Of many elements a share of Rate is dropped, and the mean stays: both within five deviations.
func TestDropKeepsTheMean(t *testing.T) {
	const n = 1 << 18
	r := gradcheck.New(1, n/64)
	ones := tensor.NewMat[float64](n/64, 64)
	for i := range ones.Data {
		ones.Data[i] = 1
	}
	for _, rate := range []float64{0.1, 0.5, 0.9} {
		sum := 0.0
		for _, v := range r.C.Drop(nn.Dropout{Rate: rate, Seed: 1}, "x", ones).Data {
			sum += v
		}
		require.InDelta(t, 1, sum/n, 5*math.Sqrt(rate/(1-rate)/n), "rate %v", rate)
	}
}

// A rate just below one drops everything, or all but an element in billions.
func TestDropOfNearlyAll(t *testing.T) {
	r := gradcheck.New(1, 8)
	require.Equal(t, make([]float64, 64), r.C.Drop(nn.Dropout{Rate: 1 - 1e-15, Seed: 1}, "x", r.Random(8, 8)).Data)
}

func TestBlockDropoutGrad(t *testing.T) {
	const b, s, h, f, d = 2, 3, 4, 3, 2
	r := gradcheck.New(b, s)
	n1, n2 := r.Declare("n1", h), r.Declare("n2", h)
	qkv, out, w1, w2 := r.Declare("qkv", 3*2*d, h), r.Declare("out", h, 2*d), r.Declare("w1", 2*f, h), r.Declare("w2", h, f)
	table, places := r.Declare("table", 5, h), r.Declare("places", 4, h)
	r.Build()
	drop := nn.Dropout{Rate: 0.3, Seed: 8}
	l := nn.Block[float64]{Norm1: nn.Norm[float64]{Gain: n1, Eps: 1e-5}, Norm2: nn.Norm[float64]{Gain: n2, Eps: 1e-5}, Dropout: drop}
	l.Attn = nn.Attention[float64]{Hq: 2, Hkv: 2, D: d, Rope: nn.NewRopeTable[float64](s, d, 10), Dropout: drop}
	l.Attn.QKV.Weights, l.Attn.Out.Weights = nn.WeightsOf(3*2*d, h, qkv), nn.WeightsOf(h, 2*d, out)
	l.FFN = &nn.MLP[float64]{Act: nn.Activation[float64]{Gated: true}, FC1: nn.ColumnLinear[float64]{Weights: nn.WeightsOf(2*f, h, w1)},
		FC2: nn.RowLinear[float64]{Weights: nn.WeightsOf(h, f, w2)}}
	embed := nn.Embedding[float64]{Table: table, Positions: places, Dropout: drop}
	ids, positions := []int32{0, 1, 2, 3, 4, 0}, []int32{0, 1, 0, 2, 0, 2}
	for _, again := range []bool{false, true} {
		r.C.DropActivations = again
		r.Check(t, r.Random(b*s, h), func(x tensor.Mat[float64]) (tensor.Mat[float64], func(tensor.Mat[float64]) tensor.Mat[float64]) {
			y, saved := l.Forward(r.C, r.C.Add(x, embed.Forward(r.C, ids, positions)))
			return y, func(dy tensor.Mat[float64]) tensor.Mat[float64] {
				dx := l.Backward(r.C, saved, dy)
				embed.Backward(r.C, ids, positions, dx, nn.EmbeddingGrads[float64]{Words: nn.Use[float64]{Grad: table.Grad}, Positions: places.Grad})
				return dx
			}
		})
	}
}
