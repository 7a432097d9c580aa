package run_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/actors"
	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/messages"
	"phalanx/run"
)

// moeRun has everything that a checkpoint must carry: moments, an expert bias, router jitter, the mean over microbatches of
// global_aux_loss, MTP depths and a data set that moves on.
const moeRun = `name: resume
model: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, num_query_groups: 2, ffn_hidden_size: 32, padded_vocab_size: 64, num_moe_experts: 4,
  moe_ffn_hidden_size: 16, moe_layer_freq: [0, 1], moe_router_load_balancing_type: [aux_loss, global_aux_loss], moe_aux_loss_coeff: [0.01, 0.01], moe_input_jitter_eps: 0.01,
  moe_router_enable_expert_bias: true, moe_router_score_function: sigmoid, moe_router_bias_update_rate: 0.01, mtp_num_layers: 2}
train: {train_iters: 6, micro_batch_size: 1, global_batch_size: 4, dtype: fp64, threads: 1}
optimizer: {lr: 0.01, adam_eps: 1.0e-5, weight_decay: 0.1}
scheduler: {lr_decay_style: cosine, lr_warmup_iters: 2, lr_decay_iters: 6}
dataset: {kind: synthetic, seq_length: 16, min_valid: 9}
transport: {kind: direct}
`

// trained runs a scenario with overrides.
func trained(t *testing.T, yaml string, o run.Options, overrides ...string) (*run.Report, error) {
	t.Helper()
	file, problems := config.Parse("resume.yaml", []byte(yaml), overrides)
	require.Empty(t, problems)
	return run.Execute(context.Background(), file.Runs()[0], o)
}

func mustTrain(t *testing.T, yaml string, overrides ...string) *run.Report {
	t.Helper()
	report, err := trained(t, yaml, run.Options{}, overrides...)
	require.NoError(t, err)
	require.Equal(t, "pass", report.Verdict, "%+v", report.Expect)
	return report
}

// cutsOf is layouts by name, as overrides.
var cutsOf = map[string][]string{
	"one":              nil,
	"tp2 sp ep2":       {"model.tensor_model_parallel_size=2", "model.sequence_parallel=true", "model.expert_model_parallel_size=2"},
	"cp2 etp2":         {"model.context_parallel_size=2", "model.expert_tensor_parallel_size=2"},
	"ep2 dp2":          {"model.expert_model_parallel_size=2", "dist.world_size=2"},
	"pp2":              {"model.pipeline_model_parallel_size=2"},
	"zero dp2 cp2 ep2": {"optimizer.use_distributed_optimizer=true", "ddp.bucket_size=2048", "model.context_parallel_size=2", "model.expert_model_parallel_size=2", "dist.world_size=4"},
	"tp2 pp2":          {"model.tensor_model_parallel_size=2", "model.sequence_parallel=true", "model.pipeline_model_parallel_size=2", "dist.world_size=8"},
}

func on(layout string, more ...string) []string {
	return append(append([]string{}, cutsOf[layout]...), more...)
}

// globalAux is not the same on every number of replicas, so comparisons of cutsOf go without it.
const noGlobalAux = `model.moe_router_load_balancing_type=[aux_loss]`

// TestResumeSameLayout: three steps, an end, and three more are six steps, bit for bit, in every layout; and so is each
// step's loss.
func TestResumeSameLayout(t *testing.T) {
	for name := range cutsOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			straight := mustTrain(t, moeRun, on(name)...)
			first := mustTrain(t, moeRun, on(name, "train.train_iters=3", "checkpoint.save="+dir)...)
			rest := mustTrain(t, moeRun, on(name, "checkpoint.load="+dir)...)
			require.Equal(t, straight.WeightsSHA256, rest.WeightsSHA256)
			require.NotEqual(t, straight.WeightsSHA256, first.WeightsSHA256)
			require.Equal(t, straight.Steps, append(first.Steps, rest.Steps...))
			require.Equal(t, filepath.Join(dir, "iter_0000003"), first.Checkpoint)
		})
	}
}

// TestResumeOtherLayout (I26): what one layout has saved another goes on with, and comes to what it would have come to
// alone, within rounding.
func TestResumeOtherLayout(t *testing.T) {
	straight := mustTrain(t, moeRun, noGlobalAux, "model.moe_aux_loss_coeff=[0.01]", "checkpoint.save="+filepath.Join(t.TempDir(), "all"))
	want, err := checkpoint.OpenAny(straight.Checkpoint)
	require.NoError(t, err)
	defer want.Close()
	for _, pair := range [][2]string{{"one", "tp2 pp2"}, {"tp2 pp2", "one"}, {"tp2 sp ep2", "cp2 etp2"}, {"cp2 etp2", "ep2 dp2"},
		{"ep2 dp2", "pp2"}, {"pp2", "zero dp2 cp2 ep2"}, {"zero dp2 cp2 ep2", "tp2 sp ep2"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			more := []string{noGlobalAux, "model.moe_aux_loss_coeff=[0.01]", "checkpoint.save=" + dir}
			mustTrain(t, moeRun, append(on(pair[0], "train.train_iters=3"), more...)...)
			rest := mustTrain(t, moeRun, append(on(pair[1], "checkpoint.load="+dir), more...)...)
			require.Len(t, rest.Steps, 3)
			for i, s := range rest.Steps {
				require.InEpsilon(t, straight.Steps[3+i].LMLoss, s.LMLoss, 1e-9)
				require.InEpsilon(t, straight.Steps[3+i].GradNorm, s.GradNorm, 1e-9)
			}
			got, err := checkpoint.OpenAny(rest.Checkpoint)
			require.NoError(t, err)
			defer got.Close()
			requireClose(t, want, got, 1e-9)
		})
	}
}

// requireClose compares all weights, relative to the largest of each tensor.
func requireClose(t *testing.T, want, got checkpoint.Weights, tol float64) {
	require.Equal(t, want.Names(), got.Names())
	for _, name := range want.Names() {
		w, err := want.Float64s(name)
		require.NoError(t, err)
		g, err := got.Float64s(name)
		require.NoError(t, err)
		scale := 0.0
		for _, v := range w {
			scale = math.Max(scale, math.Abs(v))
		}
		for i := range w {
			require.InDelta(t, w[i], g[i], tol*scale, "%s element %d", name, i)
		}
	}
}

// TestResumeIsNoLuck: a run that goes on without its moments, its place in the data or its seed comes elsewhere. So the
// tests above see them.
func TestResumeIsNoLuck(t *testing.T) {
	dir := t.TempDir()
	straight := mustTrain(t, moeRun)
	mustTrain(t, moeRun, "train.train_iters=3", "checkpoint.save="+dir)
	for _, other := range []string{"checkpoint.load_optim=false", "checkpoint.finetune=true"} {
		rest := mustTrain(t, moeRun, "checkpoint.load="+dir, other)
		require.NotEqual(t, straight.WeightsSHA256, rest.WeightsSHA256, other)
	}
	drawn := mustTrain(t, moeRun, "checkpoint.load="+dir, "checkpoint.load_rng=false", "rng.seed=99")
	require.NotEqual(t, straight.WeightsSHA256, drawn.WeightsSHA256)
	tuned := mustTrain(t, moeRun, "checkpoint.load="+dir, "checkpoint.finetune=true", "rng.seed=5", "train.global_batch_size=2")
	require.Len(t, tuned.Steps, 6, "fine-tuning begins at iteration 0")
	require.EqualValues(t, 2, tuned.Steps[0].Samples)
	smaller := mustTrain(t, moeRun, "checkpoint.load="+dir, "train.global_batch_size=2")
	require.EqualValues(t, []int64{14, 16, 18}, []int64{smaller.Steps[0].Samples, smaller.Steps[1].Samples, smaller.Steps[2].Samples})
	done := mustTrain(t, moeRun, "checkpoint.load="+dir, "train.train_iters=3")
	require.Empty(t, done.Steps, "nothing is left to do")
	require.NotEmpty(t, done.WeightsSHA256)
}

// sftRun packs answers of conversations and validates.
const sftRun = `name: sft
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 256, mtp_num_layers: 1}
train: {train_iters: 4, micro_batch_size: 1, global_batch_size: 2, dtype: fp32, threads: 1, eval_interval: 2, eval_iters: 1}
optimizer: {lr: 0.01}
dataset: {kind: jsonl, paths: [FILE], seq_length: 96, answer_only_loss: true, packed: true, validation_share: 0.25}
transport: {kind: direct}
`

// TestResumeFineTuning: packed conversations go on where they were, over the ends of epochs, and validation sees the same.
func TestResumeFineTuning(t *testing.T) {
	var lines strings.Builder
	for i := range 12 {
		fmt.Fprintf(&lines, `{"prompt": "question %d?", "completion": "%s"}`+"\n", i, strings.Repeat(string(rune('a'+i)), 5+3*i))
	}
	file := filepath.Join(t.TempDir(), "sft.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	yaml := strings.Replace(sftRun, "FILE", file, 1)
	for _, layout := range []string{"one", "cp2"} {
		var cut []string
		if layout == "cp2" {
			cut = []string{"model.context_parallel_size=2"}
		}
		straight := mustTrain(t, yaml, cut...)
		for done := 1; done <= 3; done++ {
			dir := t.TempDir()
			first := mustTrain(t, yaml, append(cut, fmt.Sprintf("train.train_iters=%d", done), "checkpoint.save="+dir)...)
			rest := mustTrain(t, yaml, append(cut, "checkpoint.load="+dir)...)
			require.Equal(t, straight.Steps, append(first.Steps, rest.Steps...), "%s after %d", layout, done)
			require.Equal(t, straight.Validation, append(first.Validation, rest.Validation...))
			require.Equal(t, straight.WeightsSHA256, rest.WeightsSHA256)
		}
	}
}

// TestSaveIntervals: checkpoints come every save_interval steps and at the end, and most_recent_k of them stay.
func TestSaveIntervals(t *testing.T) {
	dir := t.TempDir()
	var saved []int
	o := run.Options{Listen: run.Listener{Saved: func(path string, step int) {
		require.DirExists(t, path)
		saved = append(saved, step)
	}}}
	_, err := trained(t, moeRun, o, "checkpoint.save="+dir, "checkpoint.save_interval=2", "checkpoint.most_recent_k=2", "train.train_iters=5")
	require.NoError(t, err)
	require.Equal(t, []int{2, 4, 5}, saved, "5 is saved once though it is the end")
	require.NoDirExists(t, filepath.Join(dir, "iter_0000002"))
	require.DirExists(t, filepath.Join(dir, "iter_0000004"))
	require.DirExists(t, filepath.Join(dir, "iter_0000005"))

	// --resume: what is there is gone on from, and what the run stands on stays.
	report, err := trained(t, moeRun, run.Options{Resume: true}, "checkpoint.save="+dir, "checkpoint.most_recent_k=1")
	require.NoError(t, err)
	require.Len(t, report.Steps, 1)
	require.Equal(t, mustTrain(t, moeRun).WeightsSHA256, report.WeightsSHA256)
	require.DirExists(t, filepath.Join(dir, "iter_0000005"))
	require.NoDirExists(t, filepath.Join(dir, "iter_0000004"))

	// An older one by number.
	older := mustTrain(t, moeRun, "checkpoint.load="+dir, "checkpoint.ckpt_step=5", `expect.0={same_as: single_rank}`,
		`expect.1={quantity: lm.loss, step: 6, below: 5}`, `expect.2={quantity: tokens, equals: 64}`)
	require.Equal(t, report.WeightsSHA256, older.WeightsSHA256)
}

// TestSaveFailureIsTold: a checkpoint that cannot be written is told and not fatal; the last one must be.
func TestSaveFailureIsTold(t *testing.T) {
	for step, last := range map[int]bool{2: false, 3: true} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("iter_%07d.tmp", step)), nil, 0o600)) // in the way of a folder
		var told []string
		report, err := trained(t, moeRun, run.Options{Listen: run.Listener{Event: func(e messages.Event) { told = append(told, e.String()) }}},
			on("tp2 sp ep2", "checkpoint.save="+dir, "checkpoint.save_interval=2", "train.train_iters=3")...)
		require.Contains(t, strings.Join(told, "\n"), fmt.Sprintf("save failed step=%d: checkpoint of step %d is not written: rank 0: cannot write", step, step))
		if last {
			require.ErrorContains(t, err, "checkpoint of step 3 is not written")
			require.Equal(t, run.ExitFailed, run.ExitCode(err))
			require.Equal(t, filepath.Join(dir, "iter_0000002"), report.Checkpoint)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "iter_0000003"), report.Checkpoint)
	}
}

// TestStopSaves: a run that is asked to stop finishes its step on all ranks, saves, and can go on to the same end.
func TestStopSaves(t *testing.T) {
	for _, layout := range []string{"one", "tp2 pp2"} {
		dir := t.TempDir()
		stop := make(chan struct{})
		o := run.Options{Stop: stop, Listen: run.Listener{Step: func(s run.StepFigures, _ run.Timing) {
			if s.Step == 2 {
				close(stop)
			}
		}}}
		report, err := trained(t, moeRun, o, on(layout, "checkpoint.save="+dir, "train.train_iters=4000", "scheduler.lr_decay_iters=6")...)
		require.ErrorIs(t, err, actors.ErrInterrupted)
		require.Equal(t, run.ExitInterrupted, run.ExitCode(err))
		done := len(report.Steps)
		require.Equal(t, checkpoint.IterationDir(dir, done), report.Checkpoint, "the checkpoint is that of the last step")
		end := fmt.Sprintf("train.train_iters=%d", done+2)
		rest := mustTrain(t, moeRun, on(layout, "checkpoint.load="+dir, end)...)
		require.Len(t, rest.Steps, 2)
		require.Equal(t, mustTrain(t, moeRun, on(layout, end)...).WeightsSHA256, rest.WeightsSHA256)
	}
	// Without a folder to save to there is nothing to wait for.
	stop := make(chan struct{})
	close(stop)
	_, err := trained(t, moeRun, run.Options{Stop: stop}, "train.train_iters=1000000")
	require.ErrorIs(t, err, actors.ErrInterrupted)
}

// TestLoadRefusals: what cannot be gone on from is refused with what was found and what to do, as bad input.
func TestLoadRefusals(t *testing.T) {
	dir := t.TempDir()
	mustTrain(t, moeRun, on("ep2 dp2", "train.train_iters=2", "checkpoint.save="+dir)...)
	bare := t.TempDir()
	mustTrain(t, moeRun, "train.train_iters=2", "checkpoint.save="+bare, "checkpoint.save_optim=false")
	weights := filepath.Join(bare, "iter_0000002")
	damaged := func(damage func(path string, b []byte) []byte) string {
		to := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
		path := filepath.Join(to, "iter_0000002", "rank_00001.safetensors")
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if b = damage(path, b); b == nil {
			require.NoError(t, os.Remove(path))
		} else {
			require.NoError(t, os.WriteFile(path, b, 0o600))
		}
		return to
	}
	gone := damaged(func(string, []byte) []byte { return nil })
	torn := damaged(func(_ string, b []byte) []byte { return b[:len(b)-8] })
	rotten := damaged(func(_ string, b []byte) []byte { b[len(b)-100] ^= 1; return b })
	for _, c := range []struct {
		load string
		more []string
		want string
	}{
		{dir, []string{"model.hidden_size=32"}, "a checkpoint of another model: found model.hidden_size: 16, expected 32 as the scenario has it"},
		{dir, []string{"model.num_attention_heads=8", "model.kv_channels=4"}, "found model.num_attention_heads: 4, expected 8"},
		{dir, []string{"model.mtp_num_layers=1"}, "found model.mtp_num_layers: 2, expected 1"},
		{dir, []string{"model.untie_embeddings_and_output_weights=true"}, "found model.untie_embeddings_and_output_weights: false, expected true"},
		{dir, []string{"rng.seed=7"}, "found rng.seed 1234, expected 7 as the scenario has it; set rng.seed, or checkpoint.load_rng: false"},
		{dir, []string{"train.train_iters=1"}, "found iteration 2, expected at most train.train_iters 1"},
		{dir, []string{"checkpoint.ckpt_step=7"}, "iter_0000007: no checkpoint: found no such folder"},
		{bare, nil, "found no moments (it was written with checkpoint.save_optim: false)"},
		{filepath.Join(dir, "nothing"), nil, "nothing: no checkpoint: found neither latest_checkpointed_iteration.txt nor weights"},
		{filepath.Join(dir, "nothing"), []string{"checkpoint.save=" + filepath.Join(dir, "nothing"), "checkpoint.exit_on_missing_checkpoint=true"}, "nothing: no checkpoint: found neither latest_checkpointed_iteration.txt nor weights"},
		{filepath.Join(dir, "nothing"), []string{"checkpoint.finetune=true"}, "no checkpoint"},
		{filepath.Join(dir, "w.safetensors"), nil, "no checkpoint"},
		{gone, nil, "rank_00001.safetensors: truncated safetensors file: tensor"},
		{torn, nil, "bytes as the manifest has it; load an older checkpoint"},
		{rotten, nil, "rank_00001.safetensors: corrupt data: tensor"},
	} {
		_, err := trained(t, moeRun, run.Options{}, append([]string{"checkpoint.load=" + c.load}, c.more...)...)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, run.ExitBadInput, run.ExitCode(err), c.want)
	}
	// Weights without moments, as a folder of one checkpoint, are still weights.
	report := mustTrain(t, moeRun, "checkpoint.load="+weights, "checkpoint.load_optim=false")
	require.Len(t, report.Steps, 4)
}

// TestBeginsWithoutACheckpoint: as with Megatron's --load, a run whose own folder is still empty begins, and says so.
func TestBeginsWithoutACheckpoint(t *testing.T) {
	dir := t.TempDir()
	var told []string
	o := run.Options{Listen: run.Listener{Event: func(e messages.Event) { told = append(told, e.String()) }}}
	report, err := trained(t, moeRun, o, "checkpoint.load="+dir, "checkpoint.save="+dir, "train.train_iters=2")
	require.NoError(t, err)
	require.Len(t, report.Steps, 2)
	require.Contains(t, told[0], "no checkpoint path="+dir+": the run begins with initial weights")
	told = nil
	report, err = trained(t, moeRun, o, "checkpoint.load="+dir, "checkpoint.save="+dir, "train.train_iters=3")
	require.NoError(t, err)
	require.Len(t, report.Steps, 1)
	require.Equal(t, "loaded checkpoint step=2 path="+filepath.Join(dir, "iter_0000002"), told[0])
}

// TestManifestOfARun: the manifest says what ran, and the pieces are those of the ranks that hold them.
func TestManifestOfARun(t *testing.T) {
	dir := t.TempDir()
	mustTrain(t, moeRun, on("tp2 pp2", "train.train_iters=1", "checkpoint.save="+dir)...)
	s, err := checkpoint.OpenSharded(filepath.Join(dir, "iter_0000001"))
	require.NoError(t, err)
	defer s.Close()
	m := s.Manifest
	require.Equal(t, checkpoint.Layout{TP: 2, CP: 1, DP: 2, PP: 2, EP: 1, ETP: 1}, m.Layout)
	require.EqualValues(t, 4, m.Samples)
	require.Contains(t, m.Source, "moe_input_jitter_eps: 0.01")
	require.Equal(t, filesOf(m), []string{"rank_00000", "rank_00001", "rank_00004", "rank_00005"}, "data-parallel copies have nothing of their own")
	for _, tensor := range m.Tensors {
		require.Equal(t, "F64", tensor.DType)
	}
}

func filesOf(m *checkpoint.Manifest) []string {
	var names []string
	for _, f := range m.Files {
		names = append(names, strings.TrimSuffix(f.Name, ".safetensors"))
	}
	return names
}
