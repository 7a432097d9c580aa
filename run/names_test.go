package run

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// TestParameterNames: the names that expectations may use are those that a run hands out, no more and no fewer.
func TestParameterNames(t *testing.T) {
	const text = `
name: names
model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 32, mtp_num_layers: 2}
train: {train_iters: 1, micro_batch_size: 1, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 8}
`
	for _, settings := range [][]string{
		nil,
		{"model.untie_embeddings_and_output_weights=true", "model.qk_layernorm=true", "model.gated_linear_unit=false", "model.activation_func=squared_relu"},
		{"model.mtp_use_repeated_layer=true", "model.num_moe_experts=4", "model.moe_layer_freq=[0,1]", "model.moe_shared_expert_intermediate_size=16",
			"model.moe_shared_expert_gate=true"},
		{"model.num_moe_experts=4", "model.moe_router_score_function=sigmoid", "model.moe_router_enable_expert_bias=true"},
		{"model.mtp_detach_heads=true", "model.mtp_num_layers=1"},
		{"probe=bias_only"},
	} {
		f, problems := config.Parse("names.yaml", []byte(text), settings)
		require.Empty(t, problems)
		j, err := newJob(f.Runs()[0], Options{})
		require.NoError(t, err)
		_, err = j.run(context.Background())
		require.NoError(t, err)
		all, err := j.weights[1].All()
		require.NoError(t, err)
		var got []string
		for _, w := range all {
			got = append(got, w.Name)
		}
		want := parameters(&j.s)
		slices.Sort(want)
		require.Equal(t, got, want, "%v", settings)
	}
}
