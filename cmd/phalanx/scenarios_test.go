package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/run"
	"phalanx/telemetry"
)

const refusals = `name: pair
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 32}
train: {train_iters: 1, micro_batch_size: 1, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 8}
variants:
  - {name: fine}
  - {name: pp, set: {model.hybrid_layer_pattern: M, expect.0.refused: hybrid_layer_pattern}}
`

// scenarioFile is a file with some text.
func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestOneVariantMayBeRefusedAsItExpects(t *testing.T) {
	runs, problems := loadFile(scenarioFile(t, refusals), nil)
	require.Empty(t, problems)
	require.Len(t, runs, 2)
	require.Empty(t, runs[0].refusedBy)
	require.Contains(t, runs[1].refusedBy, "model.hybrid_layer_pattern")
	r := refusedReport(runs[1])
	require.Equal(t, "pass", r.Verdict)
	require.Equal(t, []string{"expect refused: hybrid_layer_pattern: holds, got " + runs[1].refusedBy, "pair/pp: pass | 0 steps"}, outcome(r))
}

func TestAProblemThatAnotherVariantHasTooStays(t *testing.T) {
	_, problems := loadFile(scenarioFile(t, refusals), []string{"model.hybrid_layer_pattern=M"})
	require.NotEmpty(t, problems)
	for _, p := range problems {
		require.Equal(t, "model.hybrid_layer_pattern", p.Key)
	}
}

func TestProblemsOfSeveralFilesComeTogether(t *testing.T) {
	bad := scenarioFile(t, "name: x\n")
	all, problems := load([]string{bad, scenarioFile(t, refusals), "absent.yaml"}, nil)
	require.Len(t, all, 3)
	files := map[string]bool{}
	for _, p := range problems {
		files[p.File] = true
	}
	require.Equal(t, map[string]bool{bad: true, "absent.yaml": true}, files)
}

func TestAmong(t *testing.T) {
	p := config.Problem{File: "f", Line: 1, Column: 2, Key: "k", Message: "found 2"}
	seen := p
	seen.Message += " (in variant a)"
	require.True(t, among(config.Problems{p}, seen))
	seen.Line = 2
	require.False(t, among(config.Problems{p}, seen))
}

func TestLossesAreInMegatronsOrder(t *testing.T) {
	z := 0.5
	got := losses(run.StepFigures{LMLoss: 5, MTPLoss: []float64{6, 7}, Balancing: []run.Figure{{Name: "load_balancing_loss", Value: 1}}, ZLoss: &z})
	require.Equal(t, []telemetry.Value{{Name: "lm loss", Value: 5}, {Name: "mtp_1 loss", Value: 6}, {Name: "mtp_2 loss", Value: 7},
		{Name: "load_balancing_loss", Value: 1}, {Name: "z_loss", Value: 0.5}}, got)
}

func TestIterationOf(t *testing.T) {
	it := iterationOf(run.StepFigures{Step: 2, LMLoss: math.NaN(), Samples: 8, Batch: 4, LR: 0.1, GradNorm: 3, Tokens: 64},
		run.Timing{StepMs: 10, Steps: 5})
	require.True(t, it.NaN)
	require.True(t, it.NoTokens)
	require.Equal(t, [5]int{2, 5, 8, 4, 64}, [5]int{it.Step, it.Steps, int(it.Samples), it.Batch, int(it.Tokens)})
	it = iterationOf(run.StepFigures{Finite: true, LMTokens: 1}, run.Timing{})
	require.False(t, it.NaN)
	require.False(t, it.NoTokens)
}

func TestLogsHaveNoColourAndNoNoise(t *testing.T) {
	var quiet, loud, kept bytes.Buffer
	a := &app{stderr: &quiet}
	log := a.logger(&kept)
	log.Debug("small")
	log.Info("middle")
	log.Warn("large")
	require.Regexp(t, `^\S+\tWARN\tlarge\n$`, quiet.String())
	require.Regexp(t, `^\S+\tINFO\tmiddle\n\S+\tWARN\tlarge\n$`, kept.String())

	a = &app{stderr: &loud, verbose: true}
	a.logger(nil).Debug("small")
	require.Regexp(t, `^\S+\tDEBUG\tsmall\n$`, loud.String())
}

func TestErrorsThatWereNotTyped(t *testing.T) {
	require.Equal(t, "x", errorText(errors.New("x")))
	require.Equal(t, interruptedText, errorText(errInterrupted))
}
