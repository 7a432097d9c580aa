package convert

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/config"
)

// architecture is one of Hugging Face's models that this program computes exactly.
type architecture struct {
	kind  string // model_type
	class string // the entry of architectures
	// read takes the fields that not all models have.
	read func(r *fields)
	// write adds them for a model, and says what of the model this architecture has not.
	write func(w *writer)
}

// architectures are in the order in which export tries them.
var architectures = []architecture{
	{kind: "llama", class: "LlamaForCausalLM", read: readLlama, write: writeLlama},
	{kind: "qwen3", class: "Qwen3ForCausalLM", read: readQwen3, write: writeQwen3},
	{kind: "qwen2", class: "Qwen2ForCausalLM", read: readQwen2, write: writeQwen2},
	{kind: "qwen3_moe", class: "Qwen3MoeForCausalLM", read: readQwen3MoE, write: writeQwen3MoE},
	{kind: "glm4_moe", class: "Glm4MoeForCausalLM", read: readGLM, write: writeGLM},
}

// Architectures are the names of the supported model types.
func Architectures() []string {
	var out []string
	for _, a := range architectures {
		out = append(out, a.kind)
	}
	return out
}

// knownKinds are well-known model types that this version cannot take, with the reason.
var knownKinds = map[string]string{
	"deepseek_v2": mlaReason, "deepseek_v3": mlaReason, "deepseek_v32": mlaReason, "kimi_k2": mlaReason, "glm4_moe_lite": mlaReason,
	"qwen3_next": "its layers have linear attention and gated attention", "nemotron_h": hybridReason, "bamba": hybridReason, "mamba2": hybridReason,
	"jamba": hybridReason, "qwen2_moe": "its shared expert has another name and a gate", "mixtral": "its experts have other names",
	"gpt_oss": "its attention has sinks and its experts biases", "gemma": "its norms and activation are others",
	"gemma2": "its norms and activation are others", "gemma3_text": "its norms and activation are others",
	"llama4": "its layers mix RoPE with no positions and its experts are transposed", "gpt2": "its positions, norms and biases are others",
}

const (
	mlaReason     = "multi-latent attention is not in this version"
	hybridReason  = "hybrid (Mamba) models are not in this version"
	quantReason   = "quantised weights are not in this version; convert the bf16 or fp32 release"
	ropeReason    = "only plain RoPE (rope_type default) and Llama 3's scaling are in this version"
	windowReason  = "sliding-window attention is not in this version"
	softcapReason = "capped logits are not in this version"
)

// find is the architecture of a config.json.
func find(o *object) (*architecture, error) {
	f, ok := o.get("model_type")
	kind := ""
	if !ok || !f.into(&kind) {
		return nil, one(o.path, "model_type", "is missing, expected one of %s", strings.Join(Architectures(), ", "))
	}
	i := slices.IndexFunc(architectures, func(a architecture) bool { return a.kind == kind })
	if i < 0 {
		return nil, unknownKind(o, f, kind)
	}
	a := &architectures[i]
	var classes []string
	if c, ok := o.get("architectures"); ok && !c.null() && (!c.into(&classes) || !slices.Equal(classes, []string{a.class})) {
		return nil, one(c.at, "architectures", "found %s, expected [%q] for model_type %s: other heads are not in this version", c.text(), a.class, kind)
	}
	return a, nil
}

// unknownKind refuses a model type, and names what of its fields is not in this version.
func unknownKind(o *object, f field, kind string) error {
	why := knownKinds[kind]
	if why == "" {
		why = "expected one of " + strings.Join(Architectures(), ", ") + Near(kind, Architectures())
	}
	ps := Problems{{Where: f.at, Name: "model_type", Text: fmt.Sprintf("found %s: %s", f.text(), why)}}
	r := newFields(o)
	r.refusedEverywhere()
	return append(ps, r.problems...)
}

// refusedEverywhere are fields of other models, refused by name with the reason.
func (r *fields) refusedEverywhere() {
	r.refuse(mlaReason, "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "qk_head_dim", "v_head_dim")
	r.refuse(quantReason, "quantization_config", "compression_config")
	r.refuse(softcapReason, "attn_logit_softcapping", "final_logit_softcapping", "logits_soft_cap")
	r.refuse(hybridReason, "hybrid_override_pattern", "mamba_num_heads", "linear_num_value_heads", "full_attention_interval")
	r.refuse("low-rank adapters are not in this version", "peft_type", "lora_alpha")
	r.refuse("code of its own decides what the model computes", "auto_map")
}

// readConfig maps config.json to keys of the model section. With dropMTP the depths are left out.
func readConfig(o *object, a *architecture, dropMTP bool) ([]key, []string, Problems) {
	r := newFields(o)
	r.ignore("model_type", "architectures", "max_position_embeddings", "torch_dtype", "dtype", "transformers_version", "use_cache",
		"bos_token_id", "eos_token_id", "pad_token_id", "output_router_logits", "pretraining_tp", "_name_or_path", "name_or_path",
		"output_attentions", "output_hidden_states", "return_dict", "_attn_implementation", "attn_implementation", "_commit_hash",
		"is_encoder_decoder", "tokenizer_class", "ep_size")
	r.refusedEverywhere()
	r.common()
	a.read(r)
	r.rest()
	keys := r.keys
	if dropMTP {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return k.name == "mtp_num_layers" })
	}
	return keys, slices.DeleteFunc(r.ignored, func(s string) bool { return s == "model_type" || s == "architectures" }), r.problems
}

// common reads what every decoder of this family has.
func (r *fields) common() {
	r.setCount("num_hidden_layers", "num_layers")
	hidden := r.setCount("hidden_size", "hidden_size")
	heads := r.setCount("num_attention_heads", "num_attention_heads")
	r.setCountIf("num_key_value_heads", "num_query_groups")
	r.setCountIf("head_dim", "kv_channels")
	if _, ok := r.take("head_dim"); !ok && heads > 0 && hidden%heads != 0 {
		r.need("head_dim", "a whole number, since num_attention_heads does not divide hidden_size")
	}
	r.setCount("intermediate_size", "ffn_hidden_size")
	r.setCount("vocab_size", "padded_vocab_size")
	r.setNumber("rms_norm_eps", "layernorm_epsilon", 1e-6)
	if _, ok := r.take("rms_norm_eps"); !ok {
		r.need("rms_norm_eps", "a number")
	}
	r.setNumber("initializer_range", "init_method_std", 0.02)
	r.only("hidden_act", "only SwiGLU is in this version", `"silu"`, `"swish"`)
	r.set("untie_embeddings_and_output_weights", fmt.Sprint(!r.yes("tie_word_embeddings", false)), "tie_word_embeddings")
	if p := r.number("attention_dropout", 0); p != 0 {
		r.set("attention_dropout", numberText(p), "attention_dropout")
	}
	r.window()
}

// window takes fields of sliding windows that are off.
func (r *fields) window() {
	r.only("use_sliding_window", windowReason, "false")
	_, says := r.o.get("use_sliding_window")
	if f, ok := r.take("sliding_window"); ok && !says {
		r.fail("sliding_window", "found %s: %s", f.text(), windowReason)
	}
	r.ignore("sliding_window", "max_window_layers")
	if kinds, ok := list[string](r, "layer_types"); ok {
		for _, k := range kinds {
			if k != "full_attention" {
				r.fail("layer_types", "found %q, expected full_attention: %s", k, windowReason)
				return
			}
		}
	}
}

// rope reads base and share of the rotated channels, in the older spelling (rope_theta, rope_scaling) or the newer
// (rope_parameters). percent is what Hugging Face's code takes for an absent partial_rotary_factor.
func (r *fields) rope(percent float64) {
	base, from := r.number("rope_theta", 10000), "rope_theta"
	r.ropeKind("rope_scaling", nil)
	percent = r.number("partial_rotary_factor", percent)
	r.ropeKind("rope_parameters", func(sub *fields) {
		base, from = sub.number("rope_theta", base), "rope_parameters"
		percent = sub.number("partial_rotary_factor", percent)
	})
	r.set("rotary_base", numberText(base), from)
	if percent != 1 {
		r.set("rotary_percent", numberText(percent), "partial_rotary_factor")
	}
}

// ropeKind takes an object that says plain RoPE or Llama 3's scaling, and what more reads.
func (r *fields) ropeKind(name string, more func(sub *fields)) {
	f, ok := r.take(name)
	if !ok {
		return
	}
	o, err := parseObject(f.at, f.raw)
	if err != nil {
		r.fail(name, "found %s, expected an object", f.text())
		return
	}
	for i := range o.fields {
		o.fields[i].at = f.at
	}
	sub := newFields(o)
	kind := ""
	for _, spelling := range []string{"rope_type", "type"} {
		sub.only(spelling, ropeReason, `"default"`, `"llama3"`)
		if k, ok := o.get(spelling); ok {
			kind = k.text()
		}
	}
	if kind == `"llama3"` {
		sub.only("low_freq_factor", "the scaling has Llama 3's own numbers", "1.0", "1")
		sub.only("high_freq_factor", "the scaling has Llama 3's own numbers", "4.0", "4")
		sub.only("original_max_position_embeddings", "the scaling has Llama 3's own numbers", "8192")
		r.set("rope_scaling", "true", name)
		r.set("rope_scaling_factor", numberText(sub.number("factor", 8)), name)
	}
	if more != nil {
		more(sub)
	}
	sub.rest()
	for _, p := range sub.problems {
		r.problems = append(r.problems, Problem{Where: f.at, Name: name + "." + p.Name, Text: p.Text})
	}
}

// readLlama: its biases are on all projections of attention, and apart from that on those of feed-forward layers.
func readLlama(r *fields) {
	r.rope(1)
	attention, mlp := r.yes("attention_bias", false), r.yes("mlp_bias", false)
	if attention != mlp {
		r.fail("attention_bias", "found %t with mlp_bias %t: every projection has a bias here, or none", attention, mlp)
	}
	if attention {
		r.set("add_bias_linear", "true", "attention_bias")
	}
}

func readQwen3(r *fields) {
	r.rope(1)
	r.only("attention_bias", "a bias on the output projection alone is not in this version", "false")
	r.headDim()
	r.set("qk_layernorm", "true", "model_type")
}

func readQwen2(r *fields) {
	r.rope(1)
	r.set("add_qkv_bias", "true", "model_type")
}

// headDim: these models' code has a default of its own, which files should not lean on.
func (r *fields) headDim() {
	if _, ok := r.take("head_dim"); !ok {
		r.need("head_dim", "a whole number")
	}
}

func readQwen3MoE(r *fields) {
	readQwen3(r)
	r.refuse("a shared expert is not in Qwen3-MoE", "shared_expert_intermediate_size")
	experts := "num_experts"
	if _, ok := r.take(experts); !ok {
		if _, ok := r.take("num_local_experts"); ok {
			experts = "num_local_experts"
		}
	}
	r.setCount(experts, "num_moe_experts")
	r.experts()
	r.set("moe_router_pre_softmax", fmt.Sprint(!r.yes("norm_topk_prob", false)), "norm_topk_prob")
	r.sparse()
	r.set("moe_router_load_balancing_type", "aux_loss", "router_aux_loss_coef")
	r.setNumber("router_aux_loss_coef", "moe_aux_loss_coeff", 0.001)
}

// experts are width and choice, as every mixture has them.
func (r *fields) experts() {
	r.setCount("moe_intermediate_size", "moe_ffn_hidden_size")
	r.setCount("num_experts_per_tok", "moe_router_topk")
}

// sparse reads which layers have experts: those not named in mlp_only_layers, every decoder_sparse_step-th of them.
func (r *fields) sparse() {
	layers, step := r.count("num_hidden_layers", 0), r.count("decoder_sparse_step", 1)
	dense, _ := list[int](r, "mlp_only_layers")
	if step < 1 || layers > config.MaxLayers {
		r.fail("decoder_sparse_step", "found %d for %d layers, expected a number from 1 on", step, layers)
		return
	}
	bits := make([]int, layers)
	for i := range bits {
		if !slices.Contains(dense, i) && (i+1)%step == 0 {
			bits[i] = 1
		}
	}
	for _, i := range dense {
		if i < 0 || i >= layers {
			r.fail("mlp_only_layers", "found layer %d, expected 0 to %d", i, layers-1)
		}
	}
	r.layers(bits, "mlp_only_layers")
}

// layers sets which decoder layers have experts.
func (r *fields) layers(bits []int, from string) {
	if slices.Contains(bits, 0) {
		r.set("moe_layer_freq", pattern(bits), from)
	}
}

func readGLM(r *fields) {
	r.rope(0.5)
	r.headDim()
	if r.yes("attention_bias", false) {
		r.set("add_qkv_bias", "true", "attention_bias")
	}
	r.set("qk_layernorm", fmt.Sprint(r.yes("use_qk_norm", false)), "use_qk_norm")
	r.setCount("n_routed_experts", "num_moe_experts")
	r.experts()
	r.sigmoidRouter()
	r.firstDense()
	if n := r.count("n_shared_experts", 0); n > 0 {
		r.set("moe_shared_expert_intermediate_size", fmt.Sprint(n*r.count("moe_intermediate_size", 0)), "n_shared_experts")
	}
	if n := r.count("num_nextn_predict_layers", 0); n > 0 {
		r.set("mtp_num_layers", fmt.Sprint(n), "num_nextn_predict_layers")
	}
}

// sigmoidRouter reads sigmoid scores with a bias on the choice, groups and a factor on the weights.
func (r *fields) sigmoidRouter() {
	r.only("scoring_func", "GLM-4.5 has sigmoid scores", `"sigmoid"`)
	r.only("topk_method", "GLM-4.5 chooses with an expert bias", `"noaux_tc"`)
	r.set("moe_router_score_function", "sigmoid", "model_type")
	r.set("moe_router_enable_expert_bias", "true", "model_type")
	r.set("moe_router_load_balancing_type", "none", "model_type")
	topk := r.count("num_experts_per_tok", 0)
	if norm := r.yes("norm_topk_prob", true); norm != (topk > 1) {
		r.fail("norm_topk_prob", "found %t with num_experts_per_tok %d, expected %t: weights of more than one expert are divided by their sum, "+
			"that of one is its score", norm, topk, topk > 1)
	}
	if x := r.number("routed_scaling_factor", 1); x != 1 {
		r.set("moe_router_topk_scaling_factor", numberText(x), "routed_scaling_factor")
	}
	groups, top := r.count("n_group", 1), r.count("topk_group", 1)
	switch {
	case groups <= 1:
	case topk != 2*top:
		r.fail("topk_group", "found %d with num_experts_per_tok %d, expected %d: groups are ranked by their two best experts, and here by "+
			"num_experts_per_tok / topk_group", top, topk, topk/2)
	default:
		r.set("moe_router_num_groups", fmt.Sprint(groups), "n_group")
		r.set("moe_router_group_topk", fmt.Sprint(top), "topk_group")
	}
}

// firstDense reads the number of dense layers before those with experts.
func (r *fields) firstDense() {
	layers, dense := r.count("num_hidden_layers", 0), r.count("first_k_dense_replace", -1)
	if dense > layers || layers > config.MaxLayers {
		r.fail("first_k_dense_replace", "found %d of %d layers, expected fewer", dense, layers)
		return
	}
	bits := make([]int, layers)
	for i := dense; i < layers; i++ {
		bits[i] = 1
	}
	r.layers(bits, "first_k_dense_replace")
}
