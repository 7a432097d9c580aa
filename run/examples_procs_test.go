package run

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// elastic#134 and torchft#164: a rank dies, and the others wait for a timeout. Here ranks of TP 2 × PP 2 × DP 2, each in a process
// of its own, die in the forward, in the backward, in the sum of gradients and in the optimizer: each is replaced, its peers
// go on, and the weights are those of the quiet run.
func TestRanksDieInEveryPartOfAStep(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	scenario := `
name: die-anywhere
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, padded_vocab_size: 64, tensor_model_parallel_size: 2, sequence_parallel: true, pipeline_model_parallel_size: 2}
train: {train_iters: 10, micro_batch_size: 1, global_batch_size: 4, dtype: fp32, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 16}
dist: {world_size: 8}
recovery: {heartbeat_ms: 500}
faults:
  - {at: {rank: 0, step: 2, hook: layer.0.forward}, action: kill}
  - {at: {rank: 5, step: 4, hook: layer.1.backward}, action: kill}
  - {at: {rank: 3, step: 6, hook: grad-reduce}, action: kill}
  - {at: {rank: 6, step: 8, hook: mid-optimizer}, action: kill}
expect: [{restarts: 4}, {same_as: without_faults}]
`
	file, problems := config.Parse("die-anywhere", []byte(scenario), nil)
	require.Empty(t, problems)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := Execute(ctx, file.Runs()[0], Options{Procs: 8})
	require.NoError(t, err)
	require.Equal(t, "pass", r.Verdict, "%+v", r.Expect)
	var died []int
	for _, d := range r.Recoveries {
		died = append(died, d.Rank)
		require.Positive(t, d.DetectionMs+d.RestartMs+d.ReplayMs, "what it took is told")
	}
	require.ElementsMatch(t, []int{0, 5, 3, 6}, died)
}
