package convert

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// FuzzConfig: no config.json panics; every refusal is Problems with a place; what is accepted is a legal model, whose
// export says the same model again.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4, "num_attention_heads": 1, "intermediate_size": 4, "vocab_size": 8,` +
		` "rms_norm_eps": 1e-5, "rope_scaling": {"rope_type": "llama3"}}`))
	f.Add([]byte(`{"model_type": "glm4_moe", "num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 1, "head_dim": 4, "intermediate_size": 4,` +
		` "vocab_size": 8, "rms_norm_eps": 1e-5, "n_routed_experts": 4, "moe_intermediate_size": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1,` +
		` "n_shared_experts": 2, "num_nextn_predict_layers": 2, "n_group": 2, "topk_group": 1, "attention_bias": true}`))
	f.Add([]byte(`{"model_type": "qwen3_moe", "num_hidden_layers": 3, "hidden_size": 4, "num_attention_heads": 1, "head_dim": 4, "intermediate_size": 4,` +
		` "vocab_size": 8, "rms_norm_eps": 1e-5, "num_experts": 4, "moe_intermediate_size": 2, "num_experts_per_tok": 2, "decoder_sparse_step": 2, "mlp_only_layers": [1]}`))
	f.Add([]byte("{\"a\": 1,\n \"\\\"\": {}}"))
	f.Add([]byte(`{"model_type": "qwen2", "num_hidden_layers": 1e3, "architectures": null, "layer_types": "x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := keysOf(b)
		if err != nil {
			var ps Problems
			require.True(t, errors.As(err, &ps) && len(ps) > 0, "%v", err)
			require.NotEmpty(t, ps[0].Where)
			return
		}
		m, _, problems := modelOf(keys, "config.json")
		if len(problems) > 0 {
			return
		}
		_, w, err := exported(m, "", "float32", "config.json")
		require.NoError(t, err, "%s", b)
		again, err := keysOf(w.configJSON())
		require.NoError(t, err, "%s", w.configJSON())
		back, _, problems := modelOf(again, "config.json")
		require.Empty(t, problems)
		m.MoERouterBalancing, back.MoERouterBalancing = nil, nil // for training only
		require.Equal(t, m, back)
	})
}

// TestTrainingOnly: what export leaves out is keys that there are.
func TestTrainingOnly(t *testing.T) {
	for _, name := range trainingOnly {
		_, ok := valueOf(&config.Model{}, name)
		require.True(t, ok, "model.%s is no key", name)
	}
}

// keysOf reads a config.json as import does.
func keysOf(b []byte) ([]key, error) {
	o, err := parseObject("config.json", b)
	if err != nil {
		return nil, err
	}
	a, err := find(o)
	if err != nil {
		return nil, err
	}
	keys, _, problems := readConfig(o, a, false)
	return keys, problems.err()
}
