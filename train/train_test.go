package train_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/train"
)

func twoParams(t *testing.T) *nn.Params[float64] {
	t.Helper()
	p := &nn.Params[float64]{}
	p.Declare(nn.Spec{Name: "b.matrix", Shape: []int{1, 2}, Shard: nn.Unsharded})
	p.Declare(nn.Spec{Name: "a.gain", Shape: []int{1}, Shard: nn.Unsharded, Group: "mtp"})
	p.Build()
	return p
}

// alone is the layout of one rank.
var alone = train.Layout{Sizes: mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: 1}}

func adamOf(cfg config.Optimizer, p *nn.Params[float64]) *train.Adam[float64] {
	return train.NewAdam(cfg, train.NewGrads(p, alone))
}

// By hand: p = 1, g = .5, lr = .1, wd = .1, step 1: p = 1 − .1·(1 + .1) = .89; no decay on vectors.
func TestAdamWFirstStep(t *testing.T) {
	p := twoParams(t)
	for _, q := range p.List {
		for i := range q.Data {
			q.Data[i], q.Grad[i] = 1, 0.5
		}
	}
	a := adamOf(config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1e-12}, p)
	a.Step(train.Rates{LR: 0.1, WeightDecay: 0.1}, map[string]float64{}, nil)
	require.InDeltaSlice(t, []float64{0.89, 0.89}, p.List[0].Data, 1e-10)
	require.InDelta(t, 0.9, p.List[1].Data[0], 1e-10)
}

// The embedding has a rate of its own, and gains of query and key norms decay if they are told to.
func TestParameterGroups(t *testing.T) {
	p := &nn.Params[float64]{}
	for _, name := range []string{"model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight", "model.norm.weight"} {
		p.Declare(nn.Spec{Name: name, Shape: []int{1}, Shard: nn.Unsharded})
	}
	p.Declare(nn.Spec{Name: "model.embed_tokens.weight", Shape: []int{1, 1}, Shard: nn.Unsharded, EmbeddingOrOutput: true})
	p.Build()
	for _, decays := range []bool{false, true} {
		for _, q := range p.List {
			q.Data[0] = 1
		}
		a := adamOf(config.Optimizer{AdamEps: 1e-8, ApplyWDToQKLayernorm: decays}, p)
		a.Step(train.Rates{LR: 0.5, DecoupledLR: 0.25, WeightDecay: 0.5}, nil, nil)
		gain := 1.0
		if decays {
			gain = 0.75
		}
		require.Equal(t, []float64{gain, gain, 1, 0.875}, []float64{p.List[0].Data[0], p.List[1].Data[0], p.List[2].Data[0], p.List[3].Data[0]})
	}
}

func TestNormsAndClip(t *testing.T) {
	p := twoParams(t)
	copy(p.List[0].Grad, []float64{3, 4})
	p.List[1].Grad[0] = 2
	norms := train.NewGrads(p, alone).Norms(nn.Solo{}, nn.Site{}, 0)
	require.Equal(t, map[string]float64{"": 5, "mtp": 2}, norms)
	a := adamOf(config.Optimizer{ClipGrad: 1}, p)
	require.InDelta(t, 0.24999994, a.Clip(4), 1e-8)
	require.Equal(t, 1.0, a.Clip(0.5))
	require.Equal(t, 1.0, adamOf(config.Optimizer{}, p).Clip(1e9))
}

// A step without tokens is an ordinary step with zero gradient: decay applies, moments decay, the counter advances.
func TestStepWithoutTokens(t *testing.T) {
	p := twoParams(t)
	p.List[0].Data[0] = 1
	a := adamOf(config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8, WeightDecay: 0.1, ClipGrad: 1}, p)
	a.Step(train.Rates{LR: 0.5, WeightDecay: 0.1}, map[string]float64{}, nil)
	require.InDelta(t, 0.95, p.List[0].Data[0], 1e-15)
}
