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
	if w.say("max_position_embeddings"); m.MaxPositionEmbeddings > 0 { // RoPE has no last position: it is what users are told
		w.put("max_position_embeddings", m.MaxPositionEmbeddings)
	}
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

// configJSON is the text of config.json.
func (w *writer) configJSON() []byte { return []byte("{\n" + strings.Join(w.fields, ",\n") + "\n}\n") }

// exported is the architecture that a model is, or the named one, with its config.json. where names the model in a refusal.
func exported(m *config.Model, name, dtype, where string) (*architecture, *writer, error) {
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
	return nil, nil, one(where, "", "no architecture of Hugging Face that this version writes is this model:\n  %s", strings.Join(all, "\n  "))
}
