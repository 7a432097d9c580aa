package trial

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/nn"
)

// The arithmetic that tests rely on, against worked examples.
func TestWorkedExamples(t *testing.T) {
	src, l := Slots(nil, 1, 8, 2, 1)
	require.Equal(t, 4, l)
	require.Equal(t, [][]int{{0, 1, 6, 7}, {2, 3, 4, 5}}, src)

	packed := nn.Docs{{{Start: 0, Logical: 8, Physical: 8}, {Start: 8, Logical: 12, Physical: 12}}}
	src, _ = Slots(packed, 1, 20, 2, 1)
	require.Equal(t, []int{0, 1, 6, 7, 8, 9, 10, 17, 18, 19}, src[0])
	require.Equal(t, []int{2, 3, 4, 5, 11, 12, 13, 14, 15, 16}, src[1])
	require.Equal(t, 2, Links(packed, 1, 20))

	// Lengths 3 and 5 on two ranks (§3.8): places of 4 and 8.
	src, l = Slots(nn.Docs{{{Start: 0, Logical: 3, Physical: 3}, {Start: 3, Logical: 5, Physical: 5}}}, 1, 8, 2, 1)
	require.Equal(t, 6, l)
	require.Equal(t, [][]int{{0, -1, 3, 4, -1, -1}, {1, 2, 5, 6, 7, -1}}, src)

	// Logical 7 in physical 8, ones, one roll; two rolls of a row with a tail.
	ones := []float32{1, 1, 1, 1, 1, 1, 1, 1}
	require.Equal(t, []float32{1, 1, 1, 1, 1, 1, 0, 0}, Rolled(nn.Docs{{{Start: 0, Logical: 7, Physical: 8}}}, 1, 8, 1, 1, ones, 0))
	require.Equal(t, []int{3, 9, 9, 6, 7, 8, 9, 9}, Rolled(nn.Docs{{{Start: 0, Logical: 3, Physical: 3}}}, 1, 8, 1, 2, []int{1, 2, 3, 4, 5, 6, 7, 8}, 9))
	require.Equal(t, []int{5, 6, 0, 1, 9, 9}, Local([]int{2, 0, -1}, 1, 3, 2, []int{0, 1, 3, 4, 5, 6}, 9))
}

func TestNear(t *testing.T) {
	require.NoError(t, Near("x", []float64{1, 2 + 1e-10}, []float64{1, 2}, 1e-9))
	require.ErrorContains(t, Near("x", []float64{1, 2.1}, []float64{1, 2}, 1e-9), "x[1] is 2.1")
	require.ErrorContains(t, Near("x", []float64{1}, []float64{1, 2}, 1), "1 elements, want 2")
	require.Error(t, Near("x", []float64{math.NaN()}, []float64{1}, 1))
	require.Error(t, Near("x", []float64{1}, []float64{math.NaN()}, 1))
	require.NoError(t, Near("x", []float64{math.Copysign(0, -1)}, []float64{0}, 0))
	require.Error(t, Near("x", []float64{1 + 1e-16*4}, []float64{1}, 0))
	require.ErrorContains(t, NearAll("g", map[string][]float64{"a": {1}, "c": {1}}, map[string][]float64{"a": {1}, "b": {1}}, 0), "g b has 0 elements")
	require.ErrorContains(t, NearAll("g", map[string][]float64{"c": {1}}, nil, 0), "g c should not exist")
}

// A job repeats itself to the bit, and a comparison sees what is planted in it.
func TestJobs(t *testing.T) {
	require.Len(t, Layouts(), 12)
	require.Equal(t, "tp2 sp cp2(a2a) dp1", Layout{TP: 2, CP: 2, DP: 1, SP: true, CommType: "a2a"}.String())
	property.Check(t, 5, func(t *rapid.T) {
		m := DrawModel(t)
		j := DrawJob(t, m, Shape{B: 2, S: 5, V: m.PaddedVocabSize, H: m.HiddenSize, Pad: true}, 1, 2)
		require.NoError(t, j.Gains())
		a, err := j.Run(Layout{TP: 2, CP: 1, DP: 2}, inproc.Options{Seed: 1})
		require.NoError(t, err)
		b, err := j.Run(Layout{TP: 2, CP: 1, DP: 2}, inproc.Options{Seed: 2, Overtake: true})
		require.NoError(t, err)
		require.NoError(t, a.Same(b, 0))
		_, err = a.Get("lm.loss_sum", 0, 0)
		require.ErrorContains(t, err, "was not recorded")
		b.Steps[0].Sums.LMTokens++
		b.Steps[0].Grads["model.norm.weight"][0] += 1
		b.Weights["model.norm.weight"][1] += 1
		err = a.Same(b, 1e-9)
		for _, want := range []string{"lm tokens", "gradient of model.norm.weight[0]", "weight model.norm.weight[1]"} {
			require.ErrorContains(t, err, want)
		}
	})
}

// A sharded optimizer and gradients that are reduced during the backward pass change no bit, whatever the layout, the
// size of buckets and the order in which messages arrive.
func TestReductionsAgree(t *testing.T) {
	property.Check(t, 8, func(t *rapid.T) {
		m := DrawModel(t)
		j := DrawJob(t, m, DrawShape(t, m), 2, 4)
		l := rapid.SampledFrom(Layouts()).Draw(t, "layout")
		j.DType = rapid.SampledFrom([]string{"fp32", "fp64"}).Draw(t, "type")
		want, err := j.Run(l, inproc.Options{})
		require.NoError(t, err)
		j.Optimizer.UseDistributedOptimizer = rapid.Bool().Draw(t, "sharded")
		j.DDP = config.DDP{OverlapGradReduce: rapid.Bool().Draw(t, "overlap"), BucketSize: rapid.SampledFrom([]int{1, 100, 1000}).Draw(t, "bucket")}
		got, err := j.Run(l, inproc.Options{Seed: rapid.Uint64().Draw(t, "order"), Overtake: true})
		require.NoError(t, err)
		require.NoError(t, got.Same(want, 0))
	})
}
