package run_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/run"
	"phalanx/tensor"
)

// routed is a model with two routers of its own and one that two depths share.
const routed = `name: routed
model: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, ffn_hidden_size: 16, padded_vocab_size: 32, num_moe_experts: 4,
        moe_aux_loss_coeff: 0.1, mtp_num_layers: 2, mtp_use_repeated_layer: true, init_method_std: 0.3, moe_enable_routing_replay: true}
train: {train_iters: 2, micro_batch_size: 2, global_batch_size: 4, dtype: fp64}
optimizer: {lr: 0.05}
dataset: {kind: rows, seq_length: 16, rows: [{valid: 16}, {valid: 11}, {valid: 7}, {valid: 13}]}
transport: {kind: direct}
`

// spreadOut is a layout on which every row is somewhere else.
var spreadOut = []string{"model.tensor_model_parallel_size=2", "model.sequence_parallel=true", "model.context_parallel_size=2",
	"model.expert_model_parallel_size=2", "dist.world_size=8", "model.moe_token_dispatcher_type=flex"}

func routedScenario(t *testing.T, overrides ...string) config.Scenario {
	t.Helper()
	f, problems := config.Parse("routed.yaml", []byte(routed), overrides)
	require.Empty(t, problems)
	return f.Runs()[0]
}

// recordedRouting runs the scenario and gives the file.
func recordedRouting(t *testing.T, name string, overrides ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "below", name)
	s := routedScenario(t, append(overrides, "checkpoint.save_routing="+path)...)
	_, err := run.Execute(context.Background(), s, run.Options{})
	require.NoError(t, err)
	return path
}

// What one layout records is what every other records, with recomputation too, and holds each row of each forward.
func TestRoutingIsRecordedAlikeOnEveryLayout(t *testing.T) {
	path := recordedRouting(t, "one")
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := os.ReadFile(recordedRouting(t, "eight", append(spreadOut, "model.recompute_granularity=full")...))
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = os.ReadFile(recordedRouting(t, "stages", "model.pipeline_model_parallel_size=2", "dist.world_size=2"))
	require.NoError(t, err)
	require.Equal(t, want, got)
	f, err := checkpoint.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Len(t, f.Names(), 2*2*4)
	info, ok := f.Info("step.2.microbatch.1.mtp.2.router")
	require.True(t, ok)
	require.Equal(t, []int{16, 2, 2}, info.Shape)
}

// Played choices are executed whatever the weights say, on every layout, and a recomputed forward plays them again.
func TestRoutingIsPlayed(t *testing.T) {
	path := recordedRouting(t, "one")
	f, err := checkpoint.Open(path)
	require.NoError(t, err)
	defer f.Close()
	other := []string{"rng.seed=99", "checkpoint.load_routing=" + path}
	holds := func(overrides ...string) (all bool) {
		s := routedScenario(t, append(overrides, "expect.0={same_as: single_rank}")...)
		for step := 1; step <= 2; step++ {
			for mb := range 2 {
				for _, router := range []string{"layer.0", "layer.1", "mtp.1", "mtp.2"} {
					s.Expect = append(s.Expect, mapOf(t, f, step, mb, router))
				}
			}
		}
		report, err := run.Execute(context.Background(), s, run.Options{})
		require.NoError(t, err)
		require.True(t, report.Expect[0].OK, report.Expect[0].Got)
		return report.Verdict == "pass"
	}
	require.True(t, holds(other...))
	require.True(t, holds(append(other, "model.recompute_granularity=full")...))
	require.True(t, holds(append(other, spreadOut...)...))
	require.True(t, holds(append(append(other, spreadOut...), "model.recompute_granularity=full")...))
	require.True(t, holds(append(other, "model.pipeline_model_parallel_size=2", "dist.world_size=2")...))
	require.False(t, holds("rng.seed=99", "model.moe_enable_routing_replay=false"), "other weights choose other experts")
	// With the weights that chose them nothing changes.
	plain := executed(t, routedScenario(t, "model.moe_enable_routing_replay=false"))
	require.Equal(t, plain.WeightsSHA256, executed(t, routedScenario(t, "checkpoint.load_routing="+path)).WeightsSHA256)
}

// mapOf expects the routing map of a forward to be what the file holds: an expert of a row as 0 or 1, rows as in the file.
func mapOf(t *testing.T, f *checkpoint.File, step, mb int, router string) config.Expect {
	t.Helper()
	kept, err := f.Int64s(fmt.Sprintf("step.%d.microbatch.%d.%s.router", step, mb, router))
	require.NoError(t, err)
	want := make([]float64, 2*16*4)
	for i, e := range kept {
		want[i/2*4+int(e)] = 1
	}
	return config.Expect{Quantity: router + ".router.routing_map", Step: &step, Microbatch: &mb, Equals: &config.Values{Data: want}}
}

// A file that does not fit is refused with its path, the tensor, and what is wrong.
func TestRoutingThatDoesNotFit(t *testing.T) {
	path := recordedRouting(t, "one")
	refused := func(path, want string, overrides ...string) {
		t.Helper()
		_, err := run.Execute(context.Background(), routedScenario(t, append(overrides, "checkpoint.load_routing="+path)...), run.Options{})
		require.ErrorContains(t, err, want)
		require.Contains(t, err.Error(), path)
		require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	}
	refused(path, `no such tensor: tensor "step.3.microbatch.0.layer.0.router"`, "train.train_iters=3")
	refused(path, `tensor "step.1.microbatch.0.layer.0.router": found shape [16 2 2], expected 1 experts of each of 32 rows`,
		"model.moe_router_topk=1", "model.moe_router_pre_softmax=true")
	refused(path, "found shape [16 2 2], expected 2 experts of each of 16 rows", "train.micro_batch_size=1", "train.global_batch_size=2")
	for what, choices := range map[string][2]int32{
		"found expert 4 as choice 1 of row 5, expected 2 different experts from 0 to 3": {3, 4},
		"found expert 3 as choice 1 of row 5":                                           {3, 3},
		"found expert -1 as choice 0 of row 5":                                          {-1, 3},
	} {
		refused(rewritten(t, path, choices), what)
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o644))
	refused(path, "not a valid safetensors file")
	refused(filepath.Join(t.TempDir(), "none"), "checkpoint.load_routing: refused: ")
}

// rewritten is a copy of a file in which row 5 of the first forward has other choices.
func rewritten(t *testing.T, path string, choices [2]int32) string {
	t.Helper()
	f, err := checkpoint.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var all []checkpoint.Tensor
	for _, name := range f.Names() {
		raw, err := f.Raw(name)
		require.NoError(t, err)
		if name == "step.1.microbatch.0.layer.0.router" {
			copy(raw[5*2*4:], tensor.Bytes(choices[:]))
		}
		info, _ := f.Info(name)
		all = append(all, checkpoint.Tensor{Name: name, DType: tensor.I32, Shape: info.Shape, Data: raw})
	}
	out := filepath.Join(t.TempDir(), "rewritten")
	require.NoError(t, checkpoint.Write(out, all, nil))
	return out
}
