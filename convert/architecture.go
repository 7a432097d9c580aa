package convert

import (
	"fmt"
	"slices"
	"strings"
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
