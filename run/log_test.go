package run

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// What logs hold (promise I6 of docs/simulator.md): at most (K + lag + 1) × the bytes that a rank sends in a step, K steps
// between snapshots, lag those that ranks and disks are apart; and K steps of them before the first commit.

const (
	logEvery = 2 // K
	logSteps = 14
	// logSlowMs is how long a step takes at least where snapshots go to a disk, so that it is few steps behind.
	logSlowMs = 60
	// logLag is how many steps ranks and disks are apart: in one process a rank waits for the others in every step, and memory
	// for nothing; a disk may take that many steps to sync.
	logLagMemory, logLagDisk = 1, 6
)

// logRun is a layout whose sums of collectives tell what each of its two ranks sends.
type logRun struct {
	model string
	// of says what a rank sends of the bytes that both have sent by a kind of message.
	of func(kind string, rank int, bytes int64) int64
}

var logRuns = map[string]logRun{
	// Every exchange is between equals: each sends half of it.
	"tp2": {"mtp_num_layers: 1, tensor_model_parallel_size: 2, sequence_parallel: true",
		func(_ string, _ int, bytes int64) int64 { return bytes / 2 }},
	// Activations go one way, their gradients the other.
	"pp2": {"untie_embeddings_and_output_weights: true, pipeline_model_parallel_size: 2",
		func(kind string, rank int, bytes int64) int64 {
			switch kind {
			case "activation":
				return bytes * int64(1-rank)
			case "activation_grad":
				return bytes * int64(rank)
			}
			return bytes / 2
		}},
}

const logScenario = `
name: log
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, padded_vocab_size: 64, LAYOUT}
train: {train_iters: 14, micro_batch_size: 1, global_batch_size: 4, dtype: fp32, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 32}
recovery: {snapshot_every: 2, heartbeat_ms: 100}
faults: [FAULTS]
`

func TestLogsHoldTheirSteps(t *testing.T) {
	const slow = "{at: {rank: 0, hook: mid-optimizer}, during: {steps: [1, 14]}, action: slow, ms: 60}"
	for layout, l := range logRuns {
		for name, c := range map[string]struct {
			procs, lag int
			faults     string
		}{
			"quiet":                  {0, logLagMemory, ""},
			"a panic":                {0, logLagMemory, "{at: {rank: 1, hook: before-send, step: 7, count: 2}, action: panic}"},
			"quiet, processes":       {2, logLagDisk, slow},
			"a kill among processes": {2, logLagDisk, slow + ", {at: {rank: 1, hook: before-send, step: 7, count: 2}, action: kill}"},
		} {
			t.Run(layout+", "+name, func(t *testing.T) {
				if c.procs > 0 && testing.Short() {
					t.Skip("starts processes")
				}
				text := strings.NewReplacer("LAYOUT", l.model, "FAULTS", c.faults).Replace(logScenario)
				file, problems := config.Parse("log", []byte(text), nil)
				require.Empty(t, problems)
				s := file.Runs()[0]
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r, err := Execute(ctx, s, Options{Procs: c.procs, Self: []string{os.Args[0]}})
				require.NoError(t, err)
				require.Equal(t, strings.Count(name, "kill")+strings.Count(name, "panic"), r.Restarts)
				require.Len(t, r.LogBytesPeak, 2)
				for rank, p := range r.LogBytesPeak {
					require.Equal(t, rank, p.Rank)
					step := l.bytesOf(t, r, rank)
					held := int64(p.Last - p.First + 1)
					require.LessOrEqual(t, held, int64(logEvery+c.lag+1), "%+v", p)
					require.GreaterOrEqual(t, p.Bytes, logEvery*step, "%+v", p)
					require.LessOrEqual(t, p.Bytes, held*step+reportsOf(t, s, c.procs, held), "%+v", p)
				}
			})
		}
	}
}

// bytesOf is what a rank sends to the other in a step.
func (l logRun) bytesOf(t *testing.T, r *Report, rank int) (bytes int64) {
	for kind, n := range r.Messages {
		sent := l.of(kind, rank, n.Bytes)
		require.Zero(t, sent%logSteps, "%s of rank %d: %d bytes are no equal steps", kind, rank, sent)
		bytes += sent / logSteps
	}
	require.Positive(t, bytes)
	return bytes
}

// reportsOf is the most that a rank has for the collector: reports of its steps, and its weights after the last one.
func reportsOf(t *testing.T, s config.Scenario, procs int, steps int64) int64 {
	if procs == 0 {
		return 0
	}
	plan, err := MakePlan(s)
	require.NoError(t, err)
	found := regexp.MustCompile(`: (\d+) parameters, fp32`).FindStringSubmatch(strings.Join(plan.Lines, "\n"))
	require.NotNil(t, found)
	parameters, err := strconv.ParseInt(found[1], 10, 64)
	require.NoError(t, err)
	return steps*1024 + parameters*4
}
