package config

import (
	"math"

	"phalanx/mesh"
)

// modelParallel is the number of ranks that share one copy of the model: TP·CP·PP.
func (s *Scenario) modelParallel() int {
	m := &s.Model
	return product(m.TensorParallel, m.ContextParallel, m.PipelineParallel)
}

// DataParallel is the number of replicas, CP excluded. 0 if the sizes do not fit the world.
func (s *Scenario) DataParallel() int {
	ranks := s.modelParallel()
	if ranks == 0 || s.Dist.WorldSize%ranks != 0 {
		return 0
	}
	return s.Dist.WorldSize / ranks
}

// Sizes are the sizes of the mesh.
func (s *Scenario) Sizes() mesh.Sizes {
	m := &s.Model
	return mesh.Sizes{TP: m.TensorParallel, CP: m.ContextParallel, DP: s.DataParallel(), PP: m.PipelineParallel,
		EP: m.ExpertParallel, ETP: m.ExpertTensorParallel}
}

// NumMicrobatches is the number of microbatches that each data-parallel rank computes in a step.
func (s *Scenario) NumMicrobatches() int {
	rows := product(s.Train.MicroBatchSize, s.DataParallel())
	if rows == 0 {
		return 0
	}
	return s.Train.GlobalBatchSize / rows
}

// UsesEmbedded reports whether the run starts its own NATS server: as the file says, else unless it names a server.
func (t *Transport) UsesEmbedded() bool {
	if t.Embedded != nil {
		return *t.Embedded
	}
	return t.Kind == "nats" && t.URL == ""
}

// ExpectsRefusal is the text that a refusal of this scenario must contain; ok is false when it is not expected to be refused.
func (s *Scenario) ExpectsRefusal() (text string, ok bool) {
	for i := range s.Expect {
		if s.Expect[i].Refused != "" {
			return s.Expect[i].Refused, true
		}
	}
	return "", false
}

// HasMoE reports whether any decoder layer has experts.
func (m *Model) HasMoE() bool { return m.moeLayers() > 0 }

// HasDense reports whether any decoder layer has a dense feed-forward part.
func (m *Model) HasDense() bool { return m.moeLayers() < m.NumLayers }

func (m *Model) moeLayers() int {
	n := 0
	if m.NumMoEExperts == 0 {
		return 0
	}
	for i := range min(max(m.NumLayers, 0), MaxLayers) {
		if m.MoELayerFreq.IsMoE(i) {
			n++
		}
	}
	return n
}

// width is the most features that a token has in one activation: with experts it has a row in each of the chosen ones.
func (m *Model) width() int {
	w := max(m.HiddenSize, m.FFNHiddenSize, product(m.NumAttentionHeads, m.KVChannels))
	if m.HasMoE() {
		w = max(w, product(m.MoERouterTopK, max(m.HiddenSize, m.MoEFFNHiddenSize)), m.MoESharedExpertSize)
	}
	return w
}

// Parameters is the number of weights of the whole model, tied ones once and expert biases, which have no gradient, not
// at all. It stops at the greatest int64.
// An MTP depth has the kind of layer that the decoder ends with.
func (m *Model) Parameters() int64 {
	h := m.HiddenSize
	table := product(m.PaddedVocabSize, h)
	total := sum(table, product(m.normParts(), h)) // embedding and final norm
	if m.UntieEmbeddings {
		total = sum(total, table)
	}
	if m.PositionEmbedding == "learned_absolute" {
		total = sum(total, product(m.MaxPositionEmbeddings, h))
	}
	moe := m.moeLayers()
	dense := max(m.NumLayers-moe, 0)
	total = sum(total, product(dense, m.layerParameters(false)), product(moe, m.layerParameters(true)))
	depths := m.MTPNumLayers
	if m.MTPUseRepeatedLayer {
		depths = min(depths, 1)
	}
	last := m.NumMoEExperts > 0 && m.NumLayers > 0 && m.MoELayerFreq.IsMoE(m.NumLayers-1)
	depth := sum(product(2, h, h), product(3, m.normParts(), h), m.layerParameters(last)) // eh_proj; enorm, hnorm, final norm; the layer
	total = sum(total, product(depths, depth))
	if total == math.MaxInt {
		return math.MaxInt64
	}
	return int64(total)
}

// normParts is how many parameters a norm has for a feature: a gain and, for LayerNorm, a bias.
func (m *Model) normParts() int {
	if m.Normalization == "LayerNorm" {
		return 2
	}
	return 1
}

// layerParameters counts one decoder layer.
func (m *Model) layerParameters(moe bool) int {
	h := m.HiddenSize
	heads := sum(m.NumAttentionHeads, m.NumQueryGroups)
	attention := product(2, h, heads, m.KVChannels) // q and output; k and v
	norms := product(2, m.normParts(), h)
	if m.QKLayernorm {
		norms = sum(norms, product(2, m.normParts(), m.KVChannels))
	}
	matrices := 2
	if m.GatedLinearUnit {
		matrices = 3
	}
	mlp := product(matrices, h, m.FFNHiddenSize)
	biases := 0
	if m.AddQKVBias || m.AddBiasLinear {
		biases = product(sum(heads, m.NumQueryGroups), m.KVChannels)
	}
	if m.AddBiasLinear {
		biases = sum(biases, h, product(matrices-1, m.FFNHiddenSize), h)
	}
	if moe {
		mlp = sum(product(m.NumMoEExperts, matrices, h, m.MoEFFNHiddenSize), product(m.NumMoEExperts, h), product(matrices, h, m.MoESharedExpertSize))
		if m.MoESharedExpertGate {
			mlp = sum(mlp, h)
		}
	}
	return sum(attention, norms, mlp, biases)
}

// RotaryDims is the number of channels of a head that RoPE turns; with rotary_percent unset all.
func (m *Model) RotaryDims() int {
	if m.RotaryPercent == 0 {
		return m.KVChannels
	}
	return int(float64(m.KVChannels) * m.RotaryPercent)
}
