package trial

import (
	"math/rand/v2"

	"phalanx/config"
	"phalanx/nn"
)

// Toy is a model of one layer (two on pipeline stages) with a mixture of experts and a depth, and batches with padding for
// some steps: what tests of deaths and restarts train.
func Toy(l Layout, ep, steps int) (*config.Scenario, *Job) {
	m := config.Model{NumLayers: 1, HiddenSize: 8, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 4, FFNHiddenSize: 8, PaddedVocabSize: 12,
		LayernormEpsilon: 1e-5, RotaryBase: 100, InitMethodStd: 0.4, GatedLinearUnit: true, MTPNumLayers: 1, MTPLossScaling: 0.3,
		NumMoEExperts: 2, MoEFFNHiddenSize: 4, MoERouterTopK: 1, MoERouterPreSoftmax: true, MoERouterScore: "softmax",
		MoERouterBalancing: config.Words{"aux_loss"}, MoEAuxLossCoeff: config.Numbers{0.1}, PositionEmbedding: "rope", RotaryPercent: 1}
	m.MoELayerFreq.Pattern = []int{1}
	if l.PP > 1 {
		m.NumLayers, m.MoELayerFreq.Pattern = 2, []int{0, 1}
	}
	rng, valid := rand.New(rand.NewPCG(1, 2)), []bool{true, true, true, true, true, true, true, false}
	j := &Job{Model: m, Optimizer: Adam, Seed: 5, DType: "fp32"}
	for range steps {
		var step []*nn.Microbatch
		for range 2 {
			mb := &nn.Microbatch{B: 1, S: 8}
			Fill(rng, mb, Shape{B: 1, S: 8, V: 12, H: 8, Pad: true}, valid, 0.8)
			step = append(step, mb)
		}
		j.Batches = append(j.Batches, step)
	}
	s := j.Scenario(l)
	s.Model.ExpertParallel = max(ep, 1)
	return s, j
}
