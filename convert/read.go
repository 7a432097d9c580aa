package convert

import (
	"fmt"
	"slices"
)

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
