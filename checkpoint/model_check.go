package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"phalanx/config"
)

// meaningKeys are keys of the model section without which weights are others, or mean something else though they have the
// same shapes. What only steers training (losses, dropout, capacities) may change from run to run.
var meaningKeys = []string{
	"num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels", "ffn_hidden_size", "padded_vocab_size",
	"normalization", "layernorm_zero_centered_gamma", "layernorm_epsilon", "position_embedding_type", "rotary_base", "rotary_percent", "rotary_interleaved", "rope_scaling",
	"qk_layernorm", "add_qkv_bias", "add_bias_linear", "gated_linear_unit", "activation_func", "untie_embeddings_and_output_weights",
	"num_moe_experts", "moe_layer_freq", "moe_ffn_hidden_size", "moe_router_score_function", "moe_router_enable_expert_bias",
	"moe_shared_expert_intermediate_size", "moe_shared_expert_gate", "mtp_num_layers", "mtp_use_repeated_layer",
}

// ModelKeys is the model section as config.json has it.
func ModelKeys(m *config.Model) (json.RawMessage, error) {
	b, err := configJSON(m)
	return json.RawMessage(bytes.TrimSuffix(b, []byte("\n"))), err
}

// CheckModel refuses a checkpoint of another model, with the first key that differs.
func (s *Sharded) CheckModel(want *config.Model) error {
	var have, wanted map[string]json.RawMessage
	keys, err := ModelKeys(want)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(keys, &wanted); err != nil {
		return err
	}
	if err := json.Unmarshal(s.Manifest.Model, &have); err != nil {
		return &FormatError{Path: s.manifestPath(), Kind: ErrManifest, Found: "model: " + err.Error(), Expected: "an object of keys"}
	}
	for _, key := range meaningKeys {
		a, b := have[key], wanted[key]
		if a != nil && b != nil && !bytes.Equal(compact(a), compact(b)) {
			return &FormatError{Path: s.dir, Kind: ErrMismatch, Found: fmt.Sprintf("model.%s: %s", key, compact(a)),
				Expected: fmt.Sprintf("%s as the scenario has it", compact(b))}
		}
	}
	return nil
}

func compact(v json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v
	}
	return b.Bytes()
}

// HasOptimizer says whether there are moments.
func (s *Sharded) HasOptimizer() bool {
	for _, t := range s.Manifest.Tensors {
		if strings.Contains(t.Name, "/") {
			return true
		}
	}
	return false
}

// HoldsWeights says whether a folder is itself a checkpoint or has weights under Hugging Face names.
func HoldsWeights(dir string) bool {
	for _, name := range []string{ManifestName, WeightsName, indexName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}
