package convert

import (
	"fmt"

	"phalanx/config"
)

// Param is one parameter of a model: its Hugging Face name and its whole shape.
type Param struct {
	Name  string
	Shape []int
	// Wide is kept in fp32 whatever type the weights are asked in: an expert bias moves by steps that a narrower type
	// rounds away, and two experts that tie in it change places.
	Wide bool
}

// Parameters are the parameters of a model under the names of Hugging Face's DeepSeek-V3, GLM-4.5, Llama and Qwen, in
// the order of the layers; MTP depth k is decoder layer num_layers+k-1.
func Parameters(m *config.Model) []Param {
	l := lister{m: m}
	l.add("model.embed_tokens.weight", m.PaddedVocabSize, m.HiddenSize)
	if m.PositionEmbedding == "learned_absolute" {
		l.add("model.embed_positions.weight", m.MaxPositionEmbeddings, m.HiddenSize)
	}
	for i := range m.NumLayers {
		l.block(layerName(i), m.NumMoEExperts > 0 && m.MoELayerFreq.IsMoE(i))
	}
	l.norm("model.norm", m.HiddenSize)
	if m.UntieEmbeddings {
		l.add("lm_head.weight", m.PaddedVocabSize, m.HiddenSize)
	}
	for k := range storedDepths(m) {
		l.depth(layerName(m.NumLayers + k))
	}
	return l.params
}

// layerName is the prefix of a layer's tensors.
func layerName(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// storedDepths is the number of MTP layers that have weights of their own.
func storedDepths(m *config.Model) int {
	if m.MTPUseRepeatedLayer {
		return min(m.MTPNumLayers, 1)
	}
	return m.MTPNumLayers
}

// headName is the tensor of the output head.
func headName(m *config.Model) string {
	if m.UntieEmbeddings {
		return "lm_head.weight"
	}
	return "model.embed_tokens.weight"
}

type lister struct {
	m      *config.Model
	params []Param
}

func (l *lister) add(name string, shape ...int) {
	l.params = append(l.params, Param{Name: name, Shape: shape})
}

// norm lists a gain, and the bias that LayerNorm has.
func (l *lister) norm(name string, width int) {
	l.add(name+".weight", width)
	if l.m.Normalization == "LayerNorm" {
		l.add(name+".bias", width)
	}
}

// depth lists an MTP layer: norms of both inputs, their projection [H, 2H], a block of the decoder's last kind, a norm.
func (l *lister) depth(p string) {
	h := l.m.HiddenSize
	l.norm(p+"enorm", h)
	l.norm(p+"hnorm", h)
	l.add(p+"eh_proj.weight", h, 2*h)
	l.block(p, l.m.NumMoEExperts > 0 && l.m.MoELayerFreq.IsMoE(l.m.NumLayers-1))
	l.norm(p+"shared_head.norm", h)
}

func (l *lister) block(p string, moe bool) {
	m := l.m
	l.norm(p+"input_layernorm", m.HiddenSize)
	l.attention(p + "self_attn.")
	l.norm(p+"post_attention_layernorm", m.HiddenSize)
	if !moe {
		l.mlp(p+"mlp.", m.FFNHiddenSize)
		return
	}
	l.add(p+"mlp.gate.weight", m.NumMoEExperts, m.HiddenSize)
	if m.MoERouterEnableExpertBias {
		l.params = append(l.params, Param{Name: p + "mlp.gate.e_score_correction_bias", Shape: []int{m.NumMoEExperts}, Wide: true})
	}
	for e := range m.NumMoEExperts {
		l.mlp(fmt.Sprintf("%smlp.experts.%d.", p, e), m.MoEFFNHiddenSize)
	}
	if m.MoESharedExpertSize > 0 {
		l.mlp(p+"mlp.shared_experts.", m.MoESharedExpertSize)
	}
	if m.MoESharedExpertGate {
		l.add(p+"mlp.shared_expert_gate.weight", 1, m.HiddenSize)
	}
}

func (l *lister) attention(p string) {
	m := l.m
	q, kv := m.NumAttentionHeads*m.KVChannels, m.NumQueryGroups*m.KVChannels
	for _, w := range []struct {
		name string
		rows int
	}{{"q_proj.", q}, {"k_proj.", kv}, {"v_proj.", kv}} {
		l.add(p+w.name+"weight", w.rows, m.HiddenSize)
		if m.AddQKVBias || m.AddBiasLinear {
			l.add(p+w.name+"bias", w.rows)
		}
	}
	l.linear(p+"o_proj", m.HiddenSize, q)
	if m.QKLayernorm {
		l.norm(p+"q_norm", m.KVChannels)
		l.norm(p+"k_norm", m.KVChannels)
	}
}

// linear lists a weight, and its bias if every projection has one.
func (l *lister) linear(name string, out, in int) {
	l.add(name+".weight", out, in)
	if l.m.AddBiasLinear {
		l.add(name+".bias", out)
	}
}

func (l *lister) mlp(p string, f int) {
	if l.m.GatedLinearUnit {
		l.linear(p+"gate_proj", f, l.m.HiddenSize)
	}
	l.linear(p+"up_proj", f, l.m.HiddenSize)
	l.linear(p+"down_proj", l.m.HiddenSize, f)
}
