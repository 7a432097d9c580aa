package convert

import (
	"reflect"
	"slices"
	"strings"

	"phalanx/config"
)

// dense wants a model without experts and depths.
func (w *writer) dense() {
	w.want(w.m.NumMoEExperts == 0, "num_moe_experts", "found %d, expected dense layers", w.m.NumMoEExperts)
	w.noDepths()
	w.say(moeKeys(w.m)...) // without experts these do nothing, and with them the model is refused already
}

// moeKeys are the keys of the model section about mixtures of experts.
func moeKeys(m *config.Model) []string {
	var out []string
	t := reflect.TypeOf(*m)
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); strings.HasPrefix(name, "moe_") {
			out = append(out, name)
		}
	}
	return out
}

func (w *writer) noDepths() {
	w.want(w.m.MTPNumLayers == 0, "mtp_num_layers", "found %d, expected none; --drop-mtp leaves the depths out", w.m.MTPNumLayers)
}

// plainAttention wants norms of query and key heads or not, no bias and whole rotation.
func (w *writer) plainAttention(norms, bias bool) {
	w.want(w.m.QKLayernorm == norms, "qk_layernorm", "found %t, expected %t", w.m.QKLayernorm, norms)
	w.want(w.m.AddQKVBias == bias, "add_qkv_bias", "found %t, expected %t", w.m.AddQKVBias, bias)
	w.want(w.m.RotaryPercent == 1, "rotary_percent", "found %g, expected 1", w.m.RotaryPercent)
}

func writeLlama(w *writer) {
	w.plainAttention(false, false)
	w.put("attention_bias", w.m.AddBiasLinear, "add_bias_linear")
	w.put("mlp_bias", w.m.AddBiasLinear)
	w.dense()
}

func writeQwen3(w *writer) {
	w.plainAttention(true, false)
	w.put("attention_bias", false)
	w.put("use_sliding_window", false)
	w.dense()
}

func writeQwen2(w *writer) {
	w.plainAttention(false, true)
	w.put("use_sliding_window", false)
	w.dense()
}

func writeQwen3MoE(w *writer) {
	m := w.m
	w.plainAttention(true, false)
	w.put("attention_bias", false)
	w.put("use_sliding_window", false)
	w.noDepths()
	w.want(m.NumMoEExperts > 0, "num_moe_experts", "found none, expected experts")
	w.put("num_experts", m.NumMoEExperts)
	w.experts()
	w.want(m.MoERouterScore == "softmax", "moe_router_score_function", "found %s, expected softmax", m.MoERouterScore)
	w.put("norm_topk_prob", !m.MoERouterPreSoftmax, "moe_router_pre_softmax")
	dense := []int{}
	for i := range m.NumLayers {
		if !m.MoELayerFreq.IsMoE(i) {
			dense = append(dense, i)
		}
	}
	w.put("decoder_sparse_step", 1)
	w.put("mlp_only_layers", dense, "moe_layer_freq")
	coeff := 0.0
	if m.MoERouterBalancing.Has("aux_loss") {
		coeff = m.MoEAuxLossCoeff.At(slices.Index(m.MoERouterBalancing, "aux_loss"))
	}
	w.put("router_aux_loss_coef", coeff)
	w.want(m.MoESharedExpertSize == 0, "moe_shared_expert_intermediate_size", "found %d, expected no shared expert", m.MoESharedExpertSize)
}

// experts are width and choice, as every mixture has them.
func (w *writer) experts() {
	w.put("moe_intermediate_size", w.m.MoEFFNHiddenSize, "moe_ffn_hidden_size")
	w.put("num_experts_per_tok", w.m.MoERouterTopK, "moe_router_topk")
}

func writeGLM(w *writer) {
	m := w.m
	w.put("attention_bias", m.AddQKVBias, "add_qkv_bias")
	w.put("partial_rotary_factor", m.RotaryPercent, "rotary_percent")
	w.put("use_qk_norm", m.QKLayernorm, "qk_layernorm")
	w.want(m.NumMoEExperts > 0, "num_moe_experts", "found none, expected experts")
	w.put("n_routed_experts", m.NumMoEExperts)
	w.experts()
	w.sigmoidRouter()
	w.firstDense()
	w.sharedExperts()
	w.put("num_nextn_predict_layers", m.MTPNumLayers, "mtp_num_layers")
}

func (w *writer) sigmoidRouter() {
	m := w.m
	w.want(m.MoERouterScore == "sigmoid", "moe_router_score_function", "found %s, expected sigmoid", m.MoERouterScore)
	w.say("moe_router_pre_softmax", "moe_router_enable_expert_bias") // the first has no effect with sigmoid scores
	w.put("norm_topk_prob", m.MoERouterTopK > 1)
	factor := m.MoERouterTopKScaling
	if factor == 0 {
		factor = 1
	}
	w.put("routed_scaling_factor", factor, "moe_router_topk_scaling_factor")
	groups, top := max(m.MoERouterNumGroups, 1), max(m.MoERouterGroupTopK, 1)
	w.put("n_group", groups, "moe_router_num_groups")
	w.put("topk_group", top)
	w.want(groups == 1 || m.MoERouterTopK == 2*top, "moe_router_group_topk", "found %d with moe_router_topk %d, expected half of it: "+
		"groups are ranked by their two best experts", top, m.MoERouterTopK)
	if !m.MoERouterEnableExpertBias {
		w.biases()
	}
}

// biases are the expert biases that GLM-4.5's router always has: zero chooses as none does.
func (w *writer) biases() {
	for i := range w.m.NumLayers + storedDepths(w.m) {
		if w.m.MoELayerFreq.IsMoE(min(i, w.m.NumLayers-1)) {
			w.zeros = append(w.zeros, Param{Name: layerName(i) + "mlp.gate.e_score_correction_bias", Shape: []int{w.m.NumMoEExperts}, Wide: true})
		}
	}
}

// firstDense wants dense layers first, then layers with experts.
func (w *writer) firstDense() {
	m, dense := w.m, 0
	for dense < m.NumLayers && !m.MoELayerFreq.IsMoE(dense) {
		dense++
	}
	ok := dense < m.NumLayers
	for i := dense; i < m.NumLayers; i++ {
		ok = ok && m.MoELayerFreq.IsMoE(i)
	}
	w.put("first_k_dense_replace", dense)
	w.want(ok, "moe_layer_freq", "expected dense layers first and then layers with experts only")
}

func (w *writer) sharedExperts() {
	m, n := w.m, 0
	if m.MoEFFNHiddenSize > 0 {
		n = m.MoESharedExpertSize / m.MoEFFNHiddenSize
	}
	w.put("n_shared_experts", n)
	w.want(n > 0 && n*m.MoEFFNHiddenSize == m.MoESharedExpertSize, "moe_shared_expert_intermediate_size",
		"found %d, expected a multiple of moe_ffn_hidden_size %d", m.MoESharedExpertSize, m.MoEFFNHiddenSize)
	w.want(!m.MoESharedExpertGate, "moe_shared_expert_gate", "found true, expected no gate")
}
