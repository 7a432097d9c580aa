package run

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

const unusedScenario = `
name: unused
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, padded_vocab_size: 64, tensor_model_parallel_size: 2}
train: {train_iters: 4, micro_batch_size: 1, global_batch_size: 1, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 16}
recovery: {snapshot_every: 2, heartbeat_ms: 500}
`

// unusedOf trains with faults and returns those that are told as unused, as the console does.
func unusedOf(t *testing.T, procs int, faults, expect string) (lines []string, r *Report) {
	t.Helper()
	file, problems := config.Parse("unused", []byte(unusedScenario+"faults:\n"+faults+"expect:\n"+expect), nil)
	require.Empty(t, problems)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Execute(ctx, file.Runs()[0], Options{Procs: procs, Self: []string{os.Args[0]}})
	require.NoError(t, err)
	for _, u := range r.FaultsUnused {
		lines = append(lines, u.String())
	}
	return lines, r
}

// A fault that nobody came by is told, with how near it was; the verdict is that of what is expected. Layer 0 is passed once in
// each of the four steps.
func TestFaultsThatNobodyCameBy(t *testing.T) {
	lines, r := unusedOf(t, 0, `
  - {at: {rank: 1, hook: layer.0.forward, count: 3}, action: panic}
  - {at: {rank: 0, hook: layer.0.forward, count: 5}, action: panic}
  - {at: {rank: 0, hook: mid-optimizer, step: 2, count: 2}, action: panic}
  - {at: {rank: 0, hook: layer.1.backward, step: 3, microbatch: 0, count: 2}, action: panic}
  - {at: {rank: 1, hook: layer.1.forward}, during: {steps: [4, 4]}, action: slow, ms: 1}
  - {at: {rank: 0, hook: after-restart}, during: {steps: [1, 4]}, action: slow, ms: 1}
  - {at: {rank: 0, hook: after-restart}, action: panic}
`, `
  - {restarts: 1}
  - {same_as: without_faults}
`)
	require.Equal(t, []string{
		"fault unused: faults.1, rank 0 at layer.0.forward: passages 4, expected 5",
		"fault unused: faults.2, rank 0 at mid-optimizer step 2: passages 1, expected 2",
		"fault unused: faults.3, rank 0 at layer.1.backward step 3 microbatch 0: passages 1, expected 2",
		"fault unused: faults.5, rank 0 at after-restart steps 1 to 4: passages 0, expected 1",
		"fault unused: faults.6, rank 0 at after-restart: passages 0, expected 1",
	}, lines)
	require.Equal(t, "pass", r.Verdict, "%+v", r.Expect)

	lines, r = unusedOf(t, 0, "  - {at: {rank: 0, hook: layer.0.forward, count: 5}, action: panic}\n", "  - {quantity: faults.unused, equals: 0}\n")
	require.Len(t, lines, 1)
	require.Equal(t, "fail", r.Verdict)
	require.Equal(t, "1", r.Expect[0].Got)

	lines, r = unusedOf(t, 0, "  - {at: {rank: 0, hook: layer.0.forward, count: 4}, action: panic}\n", "  - {quantity: faults.unused, equals: 0}\n")
	require.Empty(t, lines)
	require.Equal(t, "pass", r.Verdict)
}

// Where ranks are processes, passages are counted over their lives, and links and servers tell that they have come by.
func TestFaultsThatNoProcessCameBy(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	lines, r := unusedOf(t, 2, `
  - {at: {rank: 1, hook: layer.0.forward, step: 3}, action: kill}
  - {at: {rank: 1, hook: layer.0.forward, step: 3, count: 3}, action: kill}
  - {at: {rank: 0, hook: layer.1.forward}, during: {steps: [2, 3]}, action: slow, ms: 1}
  - {at: {rank: 0, hook: after-restart}, during: {steps: [1, 4]}, action: slow, ms: 1}
  - {during: {steps: [1, 2]}, link: {from: 0, to: 1}, delay: 1}
  - {during: {steps: [1, 2]}, delay: 0.1}
  - {server: nats-1, at: {step: 2}, action: pause, ms: 1}
`, `
  - {restarts: 1}
  - {quantity: faults.unused, equals: 2}
  - {same_as: without_faults}
`)
	require.Equal(t, []string{
		"fault unused: faults.1, rank 1 at layer.0.forward step 3: passages 2, expected 3",
		"fault unused: faults.3, rank 0 at after-restart steps 1 to 4: passages 0, expected 1",
	}, lines)
	require.Equal(t, "pass", r.Verdict, "%+v", r.Expect)
}

// Every kind of fault says where it is to happen.
func TestUnusedFaultsInWords(t *testing.T) {
	zero, one, three := 0, 1, 3
	list := []config.Injected{
		{Link: config.Between{From: &zero, To: &one}, During: config.Window{Steps: &[2]int{2, 3}}, Drop: 0.1},
		{During: config.Window{Steps: &[2]int{2, 2}}, Delay: 1},
		{Server: "nats-2", At: config.Passage{Step: &three}},
		{Server: "nats-2", At: config.Passage{Step: &one}},
	}
	got := unused(list, func(i int) int { return i / 3 })
	require.Equal(t, []UnusedFault{
		{0, "messages of rank 0 to rank 1 steps 2 to 3", 0, 1},
		{1, "messages steps 2 to 2", 0, 1},
		{2, "server nats-2 step 3", 0, 1},
	}, got)
}
