package run_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dataRun is a small model on the data of the examples.
const dataRun = `name: data
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 512, mtp_num_layers: 1}
train: {train_iters: 6, micro_batch_size: 1, global_batch_size: 4, dtype: fp64, threads: 1}
optimizer: {lr: 0.01}
DATA
dist: {world_size: 2}
transport: {kind: direct}
`

// TestResumeDataOnAnotherDP: three steps on two replicas, an end, and three on four replicas with tensor parallelism see
// the rows that six on two see, for every kind of dataset that shuffles, across the end of its epoch.
func TestResumeDataOnAnotherDP(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join("..", "scenarios", "data"))
	require.NoError(t, err)
	const indexed = "dataset: {kind: indexed, path: DIR/moby_prompt_document, split: '1', seq_length: 48"
	const jsonl = "dataset: {kind: jsonl, paths: [DIR/moby-sft.jsonl], seq_length: 200"
	for name, dataset := range map[string]string{
		"joined":     indexed + "}",
		"apart":      indexed + ", packed: true}",
		"answers":    jsonl + ", answer_only_loss: true}",
		"next fit":   jsonl + ", packed: true}",
		"best fit":   jsonl + ", packed: true, packing_algorithm: best_fit, packing_window: 5}",
		"byte pairs": jsonl + "}\ntokenizer: {kind: huggingface, tokenizer_model: DIR/moby-tokenizer.json}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yaml := strings.ReplaceAll(strings.Replace(dataRun, "DATA", dataset, 1), "DIR", folder)
			save := t.TempDir()
			straight := mustTrain(t, yaml)
			first := mustTrain(t, yaml, "train.train_iters=3", "checkpoint.save="+save)
			rest := mustTrain(t, yaml, "checkpoint.load="+save, "dist.world_size=8", "model.tensor_model_parallel_size=2")
			got := append(first.Steps, rest.Steps...)
			require.Len(t, got, 6)
			for i, want := range straight.Steps {
				require.Equal(t, want.Step, got[i].Step)
				require.Equal(t, want.LMTokens, got[i].LMTokens)
				require.LessOrEqual(t, math.Abs(want.LMLoss-got[i].LMLoss), 1e-9*want.LMLoss, "step %d", want.Step)
			}
		})
	}
}
