package train_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/nn"
	"phalanx/train"
)

// Warm-up 10, end 110, maximum 1, minimum .1.
func TestCosine(t *testing.T) {
	lr := train.NewLR(config.Optimizer{LR: 1, MinLR: 0.1}, config.Scheduler{LRDecayStyle: "cosine", LRWarmupIters: 10, LRDecayIters: 110}, 200)
	for step, want := range map[int]float64{0: 0, 5: 0.5, 10: 1, 60: 0.55, 110: 0.1, 150: 0.1} {
		require.InDelta(t, want, lr.At(step), 1e-15, "step %d", step)
	}
}

func TestSchedules(t *testing.T) {
	o := config.Optimizer{LR: 1, MinLR: 0.2}
	at := func(s config.Scheduler, step int) float64 { return train.NewLR(o, s, 100).At(step) }
	require.Equal(t, 1.0, at(config.Scheduler{LRDecayStyle: "constant"}, 99))
	require.Equal(t, 1.0, at(config.Scheduler{}, 99))
	require.InDelta(t, 0.6, at(config.Scheduler{LRDecayStyle: "linear"}, 50), 1e-15)
	require.InDelta(t, 0.2, at(config.Scheduler{LRDecayStyle: "linear"}, 100), 1e-15)
	require.InDelta(t, 0.25, at(config.Scheduler{LRDecayStyle: "inverse-square-root", LRWarmupIters: 4}, 64), 1e-15)
	require.InDelta(t, 0.2, at(config.Scheduler{LRDecayStyle: "inverse-square-root", LRWarmupIters: 1}, 81), 1e-15)
	require.InDelta(t, 0.3, at(config.Scheduler{LRWarmupIters: 10, LRWarmupInit: 0.1, LRDecayStyle: "constant"}, 0)+0.2, 1e-15)
	for style, want := range map[string]float64{"linear": 0.6, "cosine": 0.6, "exponential": 0.2 + 0.8*(2*math.Sqrt(0.5)-1), "minus_sqrt": 0.2 + 0.8*(1-math.Sqrt(0.5))} {
		s := config.Scheduler{LRDecayStyle: "WSD", LRWSDDecayIters: 20, LRWSDDecayStyle: style}
		require.Equal(t, 1.0, at(s, 80), style)
		require.InDelta(t, want, at(s, 90), 1e-12, style)
	}
}

func params(t *testing.T) *nn.Params[float64] {
	t.Helper()
	p := &nn.Params[float64]{}
	p.Declare(nn.Spec{Name: "b.matrix", Shape: []int{1, 2}, Shard: nn.Unsharded})
	p.Declare(nn.Spec{Name: "a.gain", Shape: []int{1}, Shard: nn.Unsharded, Group: "mtp"})
	p.Build()
	return p
}

// By hand: p = 1, g = .5, lr = .1, wd = .1, step 1: p = 1 − .1·(1 + .1) = .89; no decay on vectors.
func TestAdamWFirstStep(t *testing.T) {
	p := params(t)
	for _, q := range p.List {
		for i := range q.Data {
			q.Data[i], q.Grad[i] = 1, 0.5
		}
	}
	a := train.NewAdam(config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1e-12, WeightDecay: 0.1}, p)
	a.Step(0.1, map[string]float64{})
	require.InDeltaSlice(t, []float64{0.89, 0.89}, p.List[0].Data, 1e-10)
	require.InDelta(t, 0.9, p.List[1].Data[0], 1e-10)
}

func TestNormsAndClip(t *testing.T) {
	p := params(t)
	copy(p.List[0].Grad, []float64{3, 4})
	p.List[1].Grad[0] = 2
	norms := train.GradNorms(nn.Solo{}, nn.Site{}, p, 0)
	require.Equal(t, map[string]float64{"": 5, "mtp": 2}, norms)
	a := train.NewAdam(config.Optimizer{ClipGrad: 1}, p)
	require.InDelta(t, 0.24999994, a.Clip(4), 1e-8)
	require.Equal(t, 1.0, a.Clip(0.5))
	require.Equal(t, 1.0, train.NewAdam(config.Optimizer{}, p).Clip(1e9))
}

// A step without tokens is an ordinary step with zero gradient: decay applies, moments decay, the counter advances.
func TestStepWithoutTokens(t *testing.T) {
	p := params(t)
	p.List[0].Data[0] = 1
	a := train.NewAdam(config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8, WeightDecay: 0.1, ClipGrad: 1}, p)
	a.Step(0.5, map[string]float64{})
	require.InDelta(t, 0.95, p.List[0].Data[0], 1e-15)
}
