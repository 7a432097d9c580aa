package run_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/run"
)

const saves = `name: saves
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 32}
train: {train_iters: 3, micro_batch_size: 1, dtype: fp64, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 8}
transport: {kind: direct}
`

// Two runs do not save into one folder at once; one after the other does. The second says who has it, and computes nothing.
func TestOneRunSavesIntoAFolder(t *testing.T) {
	out := t.TempDir()
	var second error
	o := run.Options{Out: out, Listen: run.Listener{Step: func(s run.StepFigures, _ run.Timing) {
		if s.Step == 1 {
			_, second = trained(t, saves, run.Options{Out: out, Listen: run.Listener{Step: func(run.StepFigures, run.Timing) { t.Error("the second run has begun") }}}, "checkpoint.save=kept")
		}
	}}}
	_, err := trained(t, saves, o, "checkpoint.save=kept")
	require.NoError(t, err)
	require.ErrorContains(t, second, "checkpoint.save: ")
	require.ErrorContains(t, second, "is in use by another run (process ")
	require.Equal(t, run.ExitBadInput, run.ExitCode(second))
	_, err = trained(t, saves, run.Options{Out: out}, "checkpoint.save=kept")
	require.NoError(t, err)
}

// A folder that cannot be one is told before the first step.
func TestSaveIntoWhatIsNoFolder(t *testing.T) {
	out := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(out, "file"), nil, 0o600))
	step := run.Listener{Step: func(run.StepFigures, run.Timing) { t.Error("a step was computed for nothing") }}
	for save, want := range map[string]string{"file": "file is a file, expected a folder for checkpoints", "file/below": "cannot make the folder for checkpoints"} {
		_, err := trained(t, saves, run.Options{Out: out, Listen: step}, "checkpoint.save="+save)
		require.ErrorContains(t, err, "checkpoint.save: ")
		require.ErrorContains(t, err, want)
		require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	}
	if os.Getuid() == 0 {
		return // root writes everywhere
	}
	require.NoError(t, os.Mkdir(filepath.Join(out, "shut"), 0o500))
	_, err := trained(t, saves, run.Options{Out: out, Listen: step}, "checkpoint.save=shut")
	require.ErrorContains(t, err, "cannot write into the folder for checkpoints")
	require.Equal(t, run.ExitBadInput, run.ExitCode(err))
}
