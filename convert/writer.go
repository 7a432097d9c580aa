package convert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"phalanx/config"
)

// writer makes the config.json of an architecture from a model, and collects what of the model the architecture has not.
type writer struct {
	m       *config.Model
	fields  []string // "name": value, in order
	mapped  map[string]bool
	misfits []string
	zeros   []Param // tensors that the architecture has and the model has not, and that change nothing when zero
}

// put adds a field that says the given keys of the model section.
func (w *writer) put(name string, value any, keys ...string) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("convert: %s: %v", name, err)) // numbers, words and lists of them can be marshalled
	}
	w.fields = append(w.fields, fmt.Sprintf("  %s: %s", quoteJSON(name), b))
	w.say(keys...)
}

// say notes that keys are said by the fields written.
func (w *writer) say(keys ...string) {
	for _, k := range keys {
		w.mapped[k] = true
	}
}

// want notes a misfit unless a condition on a key holds.
func (w *writer) want(ok bool, key, format string, args ...any) {
	w.mapped[key] = true
	if !ok {
		w.misfits = append(w.misfits, fmt.Sprintf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
}

// trainingOnly are keys that say how a model is trained or laid over ranks, not what it computes afterwards.
var trainingOnly = []string{
	"moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff", "moe_seq_aux_per_row", "moe_router_bias_update_rate",
	"moe_router_fusion", "moe_input_jitter_eps", "moe_token_dispatcher_type", "moe_expert_capacity_factor", "moe_token_drop_policy",
	"moe_drop_padding_tokens", "moe_pad_expert_input_to_capacity", "recompute_granularity", "mtp_loss_scaling_factor",
	"mtp_detach_heads", "mtp_loss_mask", "calculate_per_token_loss", "loss_normalization", "hidden_dropout", "label_smoothing_factor",
	"tensor_model_parallel_size", "sequence_parallel", "context_parallel_size", "cp_comm_type", "pipeline_model_parallel_size",
	"virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage",
	"num_layers_in_last_pipeline_stage", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
	"microbatch_group_size_per_vp_stage", "expert_model_parallel_size", "expert_tensor_parallel_size",
}

// rest notes every key that is set to something else than its default and that no field says: a key nobody knows here
// may change what the model computes.
func (w *writer) rest() {
	v, d := reflect.ValueOf(w.m).Elem(), config.Defaults()
	def := reflect.ValueOf(&d.Model).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		x := v.Field(i)
		if w.mapped[name] || slices.Contains(trainingOnly, name) || x.IsZero() || reflect.DeepEqual(x.Interface(), def.Field(i).Interface()) {
			continue
		}
		w.misfits = append(w.misfits, fmt.Sprintf("%s: found %v, which it has no field for", name, x.Interface()))
	}
}

// common writes what every decoder of this family has.
func (w *writer) common(a *architecture, dtype string) {
	m := w.m
	w.put("architectures", []string{a.class})
	w.put("model_type", a.kind)
	w.put("num_hidden_layers", m.NumLayers, "num_layers")
	w.put("hidden_size", m.HiddenSize, "hidden_size")
	w.put("num_attention_heads", m.NumAttentionHeads, "num_attention_heads")
	w.put("num_key_value_heads", m.NumQueryGroups, "num_query_groups")
	w.put("head_dim", m.KVChannels, "kv_channels")
	w.put("intermediate_size", m.FFNHiddenSize, "ffn_hidden_size")
	w.put("vocab_size", m.PaddedVocabSize, "padded_vocab_size")
	w.put("rms_norm_eps", m.LayernormEpsilon, "layernorm_epsilon")
	w.put("initializer_range", m.InitMethodStd, "init_method_std")
	w.put("hidden_act", "silu")
	w.want(m.ActivationFunc == "silu" && m.GatedLinearUnit, "activation_func", "found %s with gated_linear_unit %t, expected silu with a gate",
		m.ActivationFunc, m.GatedLinearUnit)
	w.say("gated_linear_unit")
	w.want(m.PositionEmbedding == "rope", "position_embedding_type", "found %s, expected rope", m.PositionEmbedding)
	w.put("rope_theta", m.RotaryBase, "rotary_base")
	w.put("rope_scaling", w.ropeScaling(), "rope_scaling", "rope_scaling_factor")
	w.want(!m.RotaryInterleaved, "rotary_interleaved", "found true, expected the two halves of a head to turn")
	w.put("tie_word_embeddings", !m.UntieEmbeddings, "untie_embeddings_and_output_weights")
	dropout := 0.0
	if v, ok := valueOf(m, "attention_dropout"); ok {
		dropout = v.Float()
	}
	w.put("attention_dropout", dropout, "attention_dropout")
	w.put("torch_dtype", dtype)
	w.want(!m.MoERouterForceLoadBalancing, "moe_router_force_load_balancing", "found true: the experts were chosen at random")
	w.want(!m.MTPUseRepeatedLayer || m.MTPNumLayers <= 1, "mtp_use_repeated_layer", "found true for %d depths, expected a layer for each", m.MTPNumLayers)
}

// ropeScaling is null, or Llama 3's, whose other three numbers no key sets.
func (w *writer) ropeScaling() any {
	if !w.m.RopeScaling {
		return nil
	}
	return llama3{Kind: "llama3", Factor: w.m.RopeScalingFactor, Low: 1, High: 4, Context: 8192}
}

// llama3 is rope_scaling of Llama 3.
type llama3 struct {
	Kind    string  `json:"rope_type"`
	Factor  float64 `json:"factor"`
	Low     float64 `json:"low_freq_factor"`
	High    float64 `json:"high_freq_factor"`
	Context int     `json:"original_max_position_embeddings"`
}

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

// configJSON is the text of config.json.
func (w *writer) configJSON() []byte { return []byte("{\n" + strings.Join(w.fields, ",\n") + "\n}\n") }

// exported is the architecture that a model is, or the named one, with its config.json.
func exported(m *config.Model, name, dtype string) (*architecture, *writer, error) {
	var all []string
	for i := range architectures {
		a := &architectures[i]
		if name != "" && name != a.kind {
			continue
		}
		w := &writer{m: m, mapped: map[string]bool{}}
		w.common(a, dtype)
		a.write(w)
		w.rest()
		if len(w.misfits) == 0 {
			return a, w, nil
		}
		all = append(all, fmt.Sprintf("not %s: %s", a.kind, strings.Join(w.misfits, "; ")))
	}
	if all == nil {
		return nil, nil, one("--architecture", "", "found %q, expected one of %s", name, strings.Join(Architectures(), ", "))
	}
	return nil, nil, one("config.json", "", "no architecture of Hugging Face that this version writes is this model:\n  %s", strings.Join(all, "\n  "))
}
