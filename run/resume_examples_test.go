package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Four replicas with two copies of two expert ranks, router jitter and dropout: two steps, an end and two more are four
// steps, so that every rank goes on with its own draws (NVIDIA/Megatron-LM#6858, NVIDIA-NeMo/Automodel#3437). Another seed
// gives other weights, so the draws do count.
func TestEachRankGoesOnWithItsOwnDraws(t *testing.T) {
	layout := []string{"model.expert_model_parallel_size=2", "dist.world_size=4", "train.train_iters=4",
		"model.hidden_dropout=0.1", "model.attention_dropout=0.1"}
	dir := t.TempDir()
	straight := mustTrain(t, moeRun, layout...)
	mustTrain(t, moeRun, append(layout, "train.train_iters=2", "checkpoint.save="+dir)...)
	rest := mustTrain(t, moeRun, append(layout, "checkpoint.load="+dir)...)
	require.Len(t, rest.Steps, 2)
	require.Equal(t, straight.WeightsSHA256, rest.WeightsSHA256)
	require.NotEqual(t, straight.WeightsSHA256, mustTrain(t, moeRun, append(layout, "rng.seed=99")...).WeightsSHA256)
}

// Four batches are an epoch, three epochs are planned, and the run ends exactly at the end of the first: eight steps are
// left, of the rows in the order that a run without an end takes them (verl-project/verl#7401).
func TestResumeAtTheEndOfAnEpoch(t *testing.T) {
	rows := make([]string, 16)
	for i := range rows {
		rows[i] = `{"text": "` + strings.Repeat(string(rune('a'+i)), 4) + `"}`
	}
	data := filepath.Join(t.TempDir(), "rows.jsonl")
	require.NoError(t, os.WriteFile(data, []byte(strings.Join(rows, "\n")+"\n"), 0o644))
	yaml := `name: epochs
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 256, mtp_num_layers: 1}
train: {train_iters: 12, micro_batch_size: 2, global_batch_size: 4, dtype: fp64}
optimizer: {lr: 0.01}
transport: {kind: direct}
dataset: {kind: jsonl, seq_length: 8, paths: [` + data + "]}\n"
	dir := t.TempDir()
	straight := mustTrain(t, yaml)
	mustTrain(t, yaml, "train.train_iters=4", "checkpoint.save="+dir)
	rest := mustTrain(t, yaml, "checkpoint.load="+dir)
	require.Len(t, rest.Steps, 8)
	require.Equal(t, straight.Steps[4:], rest.Steps)
	require.Equal(t, straight.WeightsSHA256, rest.WeightsSHA256)
}
