package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// parsed is the runs of a scenario in text; settings are overrides.
func parsed(t *testing.T, text string, settings ...string) []config.Scenario {
	t.Helper()
	f, problems := config.Parse("test.yaml", []byte(text), settings)
	require.Empty(t, problems)
	return f.Runs()
}

// unequal is two microbatches whose counts differ, at both terms: the LM counts 7 and 2 labels, the depth 6 and 1.
const unequal = `
name: unequal
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 32, mtp_num_layers: 1,
  calculate_per_token_loss: true, loss_normalization: upstream}
train: {train_iters: 2, micro_batch_size: 1, global_batch_size: 2, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: rows, seq_length: 8, rows: [{valid: 8, loss_mask: [1, 1, 1, 1, 1, 1, 1, 0]}, {valid: 8, loss_mask: [1, 1, 0, 0, 0, 0, 0, 0]}]}
transport: {kind: direct}
expect: [{same_as: single_rank}]
`

// TestUpstreamIsItself: one rank that divides as Megatron does is itself, though it is not the exact one.
func TestUpstreamIsItself(t *testing.T) {
	for _, perToken := range []string{"true", "false"} {
		r := executed(t, parsed(t, unequal, "model.calculate_per_token_loss="+perToken)[0])
		require.True(t, r.Expect[0].OK, r.Expect[0].Got)
	}
	exact := executed(t, parsed(t, unequal, "model.loss_normalization=exact")[0])
	upstream := executed(t, parsed(t, unequal)[0])
	require.NotEqual(t, exact.Steps[0].GradNorm, upstream.Steps[0].GradNorm)
}

// TestUpstreamOnEqualCounts: where all context-parallel ranks count alike, local means are the whole's, though a token
// weighs on every rank what that rank says.
func TestUpstreamOnEqualCounts(t *testing.T) {
	settings := []string{"model.context_parallel_size=2", "model.calculate_per_token_loss=false", "model.mtp_num_layers=0"}
	equal := append(settings, "dataset.rows=[{valid: 8, loss_mask: [1, 0, 1, 0, 1, 0, 1, 0]}]") // a rank holds chunks r and 3−r of 2 positions
	r := executed(t, parsed(t, unequal, equal...)[0])
	require.True(t, r.Expect[0].OK, r.Expect[0].Got)
	r = executed(t, parsed(t, unequal, settings...)[0])
	require.False(t, r.Expect[0].OK)
	require.Contains(t, r.Expect[0].Got, "first difference: grad.", "counts of 4 and 3, and 2 and 0")
	require.Contains(t, r.Expect[0].Got, " at step 1 ")
}

// TestGlobalAuxLossOfReplicasIsNoTest: global balancing counts the replicas of a microbatch together, one rank has none.
func TestGlobalAuxLossOfReplicasIsNoTest(t *testing.T) {
	text := strings.Replace(unequal, "mtp_num_layers: 1,\n  calculate_per_token_loss: true, loss_normalization: upstream",
		"num_moe_experts: 4, moe_router_load_balancing_type: global_aux_loss, moe_aux_loss_coeff: 0.1", 1)
	r := executed(t, parsed(t, text)[0])
	require.True(t, r.Expect[0].OK, r.Expect[0].Got)
	for _, settings := range [][]string{{"dist.world_size=2"}, {"dist.world_size=2", "mutate.0=mask_none", "expect.0={detected: true}"}} {
		r = executed(t, parsed(t, text, settings...)[0])
		require.Equal(t, "fail", r.Verdict)
		require.Equal(t, "not a test: global_aux_loss counts the 2 data-parallel ranks of a microbatch together, one rank counts "+
			"its microbatches one after another: the two differ by definition", r.Expect[0].Got)
	}
	r = executed(t, parsed(t, strings.Replace(text, "global_", "", 1), "dist.world_size=2")[0])
	require.True(t, r.Expect[0].OK, r.Expect[0].Got)
}

// TestWeightsWithoutAGradient: in documents of one token queries and keys have no gradient but rounding, which Adam with a
// small eps makes into whole updates. They agree with one rank within what that can do, in fp64 and, on rows with all sorts
// of gradients, in fp32.
func TestWeightsWithoutAGradient(t *testing.T) {
	text := strings.NewReplacer("calculate_per_token_loss: true, loss_normalization: upstream", "tensor_model_parallel_size: 2, sequence_parallel: true",
		"train_iters: 2", "train_iters: 3", "lr: 0.01", "lr: 0.01, adam_eps: 1.0e-15").Replace(unequal)
	r := executed(t, parsed(t, text, "dataset.rows=[{documents: [1, 1, 1, 1, 1, 1, 1, 1]}, {documents: [1, 1, 1, 1, 1, 1, 1, 1]}]")[0])
	require.True(t, r.Expect[0].OK, r.Expect[0].Got)

	f, problems := config.Load("../scenarios/padding-mask.yaml", []string{"train.dtype=fp32", "expect.0={same_as: single_rank}"})
	require.Empty(t, problems)
	r = executed(t, f.Runs()[0])
	require.True(t, r.Expect[0].OK, r.Expect[0].Got)
}

// TestNoLabelIsNoTest: where no label counts there is nothing to compare, and that is what is said.
func TestNoLabelIsNoTest(t *testing.T) {
	text := `
name: none
model: {num_layers: 1, hidden_size: 8, num_attention_heads: 2, num_moe_experts: 2, moe_aux_loss_coeff: 0.01, moe_router_load_balancing_type: aux_loss}
train: {train_iters: 1, micro_batch_size: 1, global_batch_size: 2, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: rows, seq_length: 8, rows: [{valid: 8, loss_mask: [0, 0, 0, 0, 0, 0, 0, 0]}]}
dist: {world_size: 2}
transport: {kind: direct}
expect: [{same_as: single_rank}]
`
	r := executed(t, parsed(t, text)[0])
	require.False(t, r.Expect[0].OK)
	require.Contains(t, r.Expect[0].Got, "not a test")
	require.Contains(t, r.Expect[0].Got, "no label counts in any step")
}

// TestWeightsOfAFileHaveNoSlack: weights that only rounding has moved agree with one rank, whose gradients are compared too, and not
// with the weights that one rank has left in a file, which say nothing of their gradients.
func TestWeightsOfAFileHaveNoSlack(t *testing.T) {
	text := strings.NewReplacer("calculate_per_token_loss: true, loss_normalization: upstream", "tensor_model_parallel_size: 2, sequence_parallel: true",
		"train_iters: 2", "train_iters: 3", "lr: 0.01", "lr: 0.01, adam_eps: 1.0e-15").Replace(unequal)
	rows := "dataset.rows=[{documents: [1, 1, 1, 1, 1, 1, 1, 1]}, {documents: [1, 1, 1, 1, 1, 1, 1, 1]}]"
	saved := t.TempDir()
	one := executed(t, parsed(t, text, rows, "model.tensor_model_parallel_size=1", "model.sequence_parallel=false", "checkpoint.save="+saved,
		"checkpoint.save_interval=3", "expect=[{finite: true}]")[0])
	require.Equal(t, "pass", one.Verdict)
	for tolerance, holds := range map[string]bool{"1.0e-9": false, "10": true} {
		r := executed(t, parsed(t, text, rows, "expect.0={same_as: "+saved+", tolerance: "+tolerance+"}", "expect.1={same_as: single_rank}")[0])
		require.Equal(t, holds, r.Expect[0].OK, r.Expect[0].Got)
		require.True(t, r.Expect[1].OK, r.Expect[1].Got)
		if !holds {
			require.Regexp(t, `^first difference: weight\..*self_attn`, r.Expect[0].Got)
		}
	}
}
