package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// runOf is the one run of a scenario's text.
func runOf(t *testing.T, text string, overrides ...string) config.Scenario {
	t.Helper()
	f, problems := config.Parse("scenario.yaml", []byte(text), overrides)
	require.Empty(t, problems)
	return f.Runs()[0]
}

const evaluatedFile = `
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 4, ffn_hidden_size: 16, mtp_num_layers: 1}
train: {train_iters: 2, micro_batch_size: 2, eval_interval: 1, eval_iters: 2, dtype: fp64}
optimizer: {lr: 0}
dataset: {kind: synthetic, seq_length: 12}
transport: {kind: direct}
expect: [{finite: true}]
`

// With a learning rate of zero only what training adds tells runs apart: dropout and smoothed labels change every
// training loss and no validation loss.
func TestEvaluationIsWithoutDropoutAndSmoothing(t *testing.T) {
	plain := executed(t, runOf(t, evaluatedFile))
	for _, set := range []string{"model.hidden_dropout=0.5", "model.attention_dropout=0.5", "model.label_smoothing_factor=0.1"} {
		r := executed(t, runOf(t, evaluatedFile, set))
		require.Equal(t, plain.Validation, r.Validation, set)
		for i, s := range r.Steps {
			require.NotEqual(t, plain.Steps[i].LMLoss, s.LMLoss, set)
			require.NotEqual(t, plain.Steps[i].MTPLoss, s.MTPLoss, set)
		}
	}
}

// With weights zero every id has probability 1/4, so that the gradient of an output bias is 1/4 − target. Of the labels
// 0, 0, 1, 3 a factor 0.3 leaves 0.7 at the label and gives 0.1 to each of the others: 1/4 − (0.7·c + 0.1·(4−c))/4 for an
// id with c labels. The depth, one label fewer, sees 0, 1, 3.
func TestSmoothedGradientsByHand(t *testing.T) {
	s := runOf(t, `
model: {num_layers: 1, hidden_size: 4, num_attention_heads: 2, ffn_hidden_size: 8, padded_vocab_size: 4, mtp_num_layers: 1, label_smoothing_factor: 0.3,
  tensor_model_parallel_size: 2}
train: {train_iters: 1, micro_batch_size: 1, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: rows, rows: [{tokens: [1, 0, 0, 1], labels: [0, 0, 1, 3]}]}
transport: {kind: direct}
probe: bias_only
expect:
  - {quantity: probe.lm.grad_bias, close: [-3/20, 0, 3/20, 0]}
  - {quantity: probe.mtp_1.grad_bias, close: [-1/20, -1/20, 3/20, -1/20]}
`)
	r := executed(t, s)
	for _, e := range r.Expect {
		require.True(t, e.OK, "expect %s: got %s", e.Text, e.Got)
	}
	require.Equal(t, "pass", r.Verdict)
}

const featuredFile = `
model: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, num_query_groups: 4, ffn_hidden_size: 16, mtp_num_layers: 2, normalization: LayerNorm,
  qk_layernorm: true, position_embedding_type: learned_absolute, add_qkv_bias: true, hidden_dropout: 0.2, attention_dropout: 0.2,
  label_smoothing_factor: 0.1, tensor_model_parallel_size: 2, sequence_parallel: true}
train: {train_iters: 2, micro_batch_size: 2, global_batch_size: 4, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 16, min_valid: 8}
transport: {kind: direct}
expect: [{same_as: single_rank, tolerance: 1.0e-9}]
`

// Everything at once, on pipelines, with experts, under recomputation and a sharded optimizer, is the single rank's run.
func TestFeaturesOnManyRanks(t *testing.T) {
	for _, set := range [][]string{
		{"model.pipeline_model_parallel_size=2", "model.context_parallel_size=2", "model.add_bias_linear=true", "dist.world_size=16",
			"optimizer.use_distributed_optimizer=true"},
		{"model.pipeline_model_parallel_size=3", "model.pipeline_model_parallel_layout=Et|tm|mL", "model.layernorm_zero_centered_gamma=true"},
		{"model.num_moe_experts=4", "model.expert_model_parallel_size=2", "model.context_parallel_size=2", "model.cp_comm_type=all_gather",
			"model.recompute_granularity=full"},
	} {
		holding(t, runOf(t, featuredFile, set...))
	}
}
