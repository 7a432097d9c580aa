package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestNormalised: the canonical text of one scenario, whole.
func TestNormalised(t *testing.T) {
	s := parsed(t, edited(t, "model:\n", "name: norm\nabout: \"two\\nlines\"\nmodel:\n", "{valid: 11}", "{tokens: [1, 2], labels: [-100, 3], answer: [0, 1]}",
		"{quantity: lm loss, finite: true}", "{quantity: lm loss, step: 1, equals: [1, -13/48]}\n  - {same_as: single_rank, tolerance: 0}\n  - {detected: true, first: q}",
		"optimizer:\n", "transport: {embedded: true}\nmutate: mask_none\nprobe: bias_only\noptimizer:\n"))
	want := `name: norm
about: "two\nlines"
model:
  num_layers: 2
  hidden_size: 16
  num_attention_heads: 4
  num_query_groups: 2
  kv_channels: 4
  ffn_hidden_size: 24
  padded_vocab_size: 32
  layernorm_epsilon: 1e-05
  normalization: "RMSNorm"
  layernorm_zero_centered_gamma: false
  position_embedding_type: rope
  rotary_base: 10000
  rotary_percent: 1
  rotary_interleaved: false
  rope_scaling: false
  rope_scaling_factor: 8
  qk_layernorm: false
  add_qkv_bias: false
  add_bias_linear: false
  gated_linear_unit: true
  activation_func: silu
  untie_embeddings_and_output_weights: false
  init_method_std: 0.02
  hidden_dropout: 0
  attention_dropout: 0
  num_moe_experts: 4
  moe_layer_freq: 1
  moe_ffn_hidden_size: 12
  moe_router_topk: 2
  moe_router_score_function: softmax
  moe_router_pre_softmax: false
  moe_router_load_balancing_type: aux_loss
  moe_aux_loss_coeff: 0
  moe_z_loss_coeff: 0
  moe_seq_aux_per_row: false
  moe_router_num_groups: 0
  moe_router_group_topk: 0
  moe_router_topk_scaling_factor: 0
  moe_router_enable_expert_bias: false
  moe_router_bias_update_rate: 0.001
  moe_router_force_load_balancing: false
  moe_router_fusion: false
  moe_input_jitter_eps: 0
  moe_shared_expert_gate: false
  moe_per_layer_logging: false
  moe_enable_routing_replay: false
  moe_token_dispatcher_type: allgather
  moe_token_drop_policy: probs
  moe_pad_expert_input_to_capacity: false
  moe_drop_padding_tokens: false
  mtp_num_layers: 2
  mtp_loss_scaling_factor: 0.1
  mtp_use_repeated_layer: false
  mtp_detach_heads: false
  mtp_loss_mask: passed
  calculate_per_token_loss: false
  loss_normalization: exact
  label_smoothing_factor: 0
  tensor_model_parallel_size: 1
  sequence_parallel: false
  context_parallel_size: 1
  cp_comm_type: p2p
  pipeline_model_parallel_size: 1
  account_for_embedding_in_pipeline_split: false
  account_for_loss_in_pipeline_split: false
  expert_model_parallel_size: 1
  expert_tensor_parallel_size: 1
train:
  train_iters: 3
  micro_batch_size: 2
  global_batch_size: 2
  dtype: fp32
  eval_interval: 0
  eval_iters: 0
  check_for_nan_in_loss: false
  skip_nan_microbatches: false
  skip_nan_steps: false
  threads: 0
optimizer:
  optimizer: adam
  lr: 0.01
  min_lr: 0
  weight_decay: 0.01
  adam_beta1: 0.9
  adam_beta2: 0.999
  adam_eps: 1e-08
  clip_grad: 1
  apply_wd_to_qk_layernorm: false
  use_distributed_optimizer: false
scheduler:
  lr_decay_style: constant
  lr_decay_iters: 3
  lr_warmup_iters: 0
  lr_warmup_init: 0
  lr_wsd_decay_iters: 0
  lr_wsd_decay_style: exponential
  lr_decay_samples: 0
  lr_warmup_samples: 0
  lr_wsd_decay_samples: 0
  weight_decay_incr_style: constant
ddp:
  use_distributed_optimizer: false
  check_for_nan_in_grad: false
  overlap_grad_reduce: false
dataset:
  kind: rows
  seq_length: 16
  rows: [{valid: 16}, {tokens: [1, 2], labels: [-100, 3], answer: [0, 1]}]
  validation_share: 0
  pad_token: 0
  answer_only_loss: false
  padding_mask: present
  loss_mask: present
  shuffle: false
  min_valid: 0
  packed: false
tokenizer:
  kind: byte
rng:
  seed: 1234
dist:
  world_size: 1
transport:
  kind: nats
  embedded: true
  servers: 1
  colocated: nats
  piece_bytes: 262144
recovery:
  snapshot_every: 0
  snapshot_bytes: 0
  log_bytes: 0
  rank_restarts: 5
  job_restarts: 20
  restart_window_s: 60
  heartbeat_ms: 100
  supervisors: 1
  recording: false
  collective_timeout_s: 5
logger:
  log_interval: 1
  token_loss_report: false
  mask_report: false
checkpoint:
  save_interval: 0
  save_optim: true
  most_recent_k: -1
  ckpt_step: 0
  load_optim: true
  load_rng: true
  finetune: false
  exit_on_missing_checkpoint: false
mutate: [mask_none]
probe: bias_only
expect: [{quantity: "lm loss", step: 1, equals: [1, -0.2708333333333333]}, {tolerance: 0, same_as: single_rank}, {detected: true, first: q}]
`
	require.Equal(t, want, string(s.Normalised()))
	requireSame(t, s)
}

// same takes away what a text cannot keep: the lines of expectations. Tables of losses become texts, in which NaN is NaN.
func same(s Scenario) Scenario {
	var tables []string
	for _, term := range s.Probe.terms() {
		tables = append(tables, term+": "+tableText(s.Probe.TokenLoss[term]))
	}
	s.About += fmt.Sprintf("\n%q", tables)
	s.Probe.TokenLoss = nil
	s.Expect = append([]Expect(nil), s.Expect...)
	for i := range s.Expect {
		s.Expect[i].Line = 0
	}
	return s
}

type failer interface {
	Errorf(format string, args ...any)
	FailNow()
}

// requireSame checks that the normalised text of a scenario is a legal file that means the same, and is its own normal form.
func requireSame(t failer, s Scenario) {
	text := s.Normalised()
	f, problems := Parse("f.yaml", text, nil)
	require.NoError(t, problems.Err(), "%s", text)
	f.Base.Dir, f.Base.Name = s.Dir, s.Name
	require.Equal(t, same(s), same(f.Base), "%s", text)
	require.Equal(t, string(text), string(f.Base.Normalised()))
}

// TestNormalisedOfVariants: each variant has a text of its own, and variants are not in it.
func TestNormalisedOfVariants(t *testing.T) {
	f, problems := Parse("v.yaml", []byte(goodFile+variantsText), nil)
	require.Empty(t, problems)
	for _, s := range f.Runs() {
		requireSame(t, s)
	}
	require.NotContains(t, string(f.Base.Normalised()), "variants")
	require.NotEqual(t, f.Runs()[0].Normalised(), f.Runs()[1].Normalised())
}

// TestNormalisedExperts: one loss is written without brackets, and what is 0 for none is left out where 0 cannot be said.
func TestNormalisedExperts(t *testing.T) {
	text := func(overrides ...string) string {
		s := parsed(t, goodFile, overrides...)
		requireSame(t, s)
		return string(s.Normalised())
	}
	require.Equal(t, text(), text("model.moe_router_load_balancing_type=[aux_loss]", "model.moe_aux_loss_coeff=[0]", "model.moe_expert_capacity_factor=-1",
		"model.moe_router_num_groups=null", "model.moe_shared_expert_intermediate_size=null", "model.recompute_granularity=null"))
	got := text("model.moe_router_load_balancing_type=[seq_aux_loss, aux_loss]", "model.moe_aux_loss_coeff=[1e-3, 0]", "model.moe_expert_capacity_factor=1",
		"model.moe_shared_expert_intermediate_size=8", "model.recompute_granularity=full")
	for _, line := range []string{"moe_router_load_balancing_type: [seq_aux_loss, aux_loss]", "moe_aux_loss_coeff: [0.001, 0]", "moe_expert_capacity_factor: 1",
		"moe_shared_expert_intermediate_size: 8", "recompute_granularity: full"} {
		require.Contains(t, got, "\n  "+line+"\n")
		require.NotContains(t, text(), "\n  "+line+"\n")
	}
}

// TestNormalisedOfPartialScenario: a scenario built in Go that says only what it needs becomes a complete one, with the
// constant learning rate of a file without a scheduler.
func TestNormalisedOfPartialScenario(t *testing.T) {
	s := Scenario{Name: "case", Model: parsed(t, smallFile).Model}
	s.Train = Train{TrainIters: 3, MicroBatchSize: 2, GlobalBatchSize: 4, DType: "fp64"}
	s.Dataset = Dataset{Kind: "reference", Path: "case.json", SeqLength: 16}
	s.Optimizer = Optimizer{LR: 0.01, AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8}
	got := parsed(t, string(s.Normalised()))
	require.Equal(t, "constant", got.Scheduler.LRDecayStyle)
	require.Equal(t, "adam", got.Optimizer.Optimizer)
	require.Equal(t, 0.0, got.Optimizer.ClipGrad)
	require.Equal(t, 262144, got.Transport.PieceBytes)
	require.Equal(t, 2, got.NumMicrobatches())
}

// drawScenario writes a legal scenario file.
func drawScenario(t *rapid.T) string {
	pick := func(name string, options ...string) string { return rapid.SampledFrom(options).Draw(t, name) }
	whole := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	real := func(name string, low, high float64) float64 { return rapid.Float64Range(low, high).Draw(t, name) }
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	maybe := func(name, format string, args ...any) {
		if rapid.Bool().Draw(t, name) {
			put(format, args...)
		}
	}
	tp := 1 << whole("tp", 0, 2)
	layers, groups := whole("layers", 1, 4), tp*whole("groups", 1, 2)
	heads := groups * whole("heads per group", 1, 3)
	experts := whole("experts", 2, 8)
	maybe("has about", "about: %q", rapid.StringMatching(`[ -~éλ\n]*`).Draw(t, "about"))
	put("model:")
	put("  num_layers: %d\n  hidden_size: %d\n  num_attention_heads: %d\n  num_query_groups: %d", layers, heads*2*whole("head", 1, 8), heads, groups)
	put("  padded_vocab_size: %d\n  ffn_hidden_size: %d\n  tensor_model_parallel_size: %d", 64*tp, tp*whole("ffn", 1, 64), tp)
	sp := rapid.Bool().Draw(t, "sequence parallel")
	put("  sequence_parallel: %v", sp)
	hosts := 1 // ranks of one copy of the experts
	if rapid.Bool().Draw(t, "moe") {
		put("  num_moe_experts: %d\n  moe_router_topk: %d\n  moe_aux_loss_coeff: %v\n  moe_router_load_balancing_type: %s", experts,
			whole("topk", 2, experts), real("aux", 0, 1), pick("balancing", "aux_loss", "none", "[global_aux_loss, aux_loss]\n  moe_z_loss_coeff: null"))
		drawExperts(t, put, tp)
		if sp || tp == 1 {
			ep, etp := divisor(experts, whole("ep", 1, experts)), whole("etp", 1, 2)
			hosts = ep * etp
			put("  expert_model_parallel_size: %d\n  expert_tensor_parallel_size: %d\n  moe_ffn_hidden_size: %d", ep, etp, 2*whole("width", 1, 4))
		}
	}
	maybe("freq", "  moe_layer_freq: %s", pick("pattern", "1", "2", "\"[0]*"+fmt.Sprint(layers)+"\"", "\"[1]*"+fmt.Sprint(layers)+"\""))
	maybe("mtp", "  mtp_num_layers: %d\n  mtp_use_repeated_layer: true\n  mtp_loss_mask: withheld", whole("depths", 0, 3))
	maybe("activation", "  activation_func: squared_relu")
	replicas, micro, seq := hosts*whole("replicas", 1, 3), whole("micro", 1, 3), 4*whole("seq", 2, 8)
	put("dist: {world_size: %d}", tp*replicas)
	put("train: {train_iters: %d, micro_batch_size: %d, global_batch_size: %d, dtype: %s}", whole("iters", 3, 99), micro,
		micro*replicas*whole("microbatches", 1, 4), pick("dtype", "fp32", "fp64"))
	put("optimizer: {lr: %v, adam_eps: %v, clip_grad: %d}", real("lr", 1e-6, 1), real("eps", 1e-12, 1), whole("clip", 0, 2))
	maybe("scheduler", "scheduler: {lr_decay_style: %s, lr_warmup_iters: %d, lr_wsd_decay_iters: 1}", pick("style", "WSD", "cosine", "linear", "inverse-square-root"), whole("warm-up", 0, 2))
	put("rng: {seed: %d}", rapid.Uint64().Draw(t, "seed"))
	maybe("checkpoint", "checkpoint: {save: %q, save_interval: 2}", rapid.StringMatching(`[a-z"' :#]+`).Draw(t, "folder"))
	drawDataset(t, put, seq)
	maybe("mutate", "mutate: %s", pick("mutations", "[]", "null", "mask_none", "[shard_roll, mask_none]"))
	drawProbe(t, put, micro, seq)
	maybe("expect", "expect: [{quantity: a b, equals: [1, %v, -1/3]}, {quantity: q, close: %v, tolerance: 1e-9, step: 1}, {refused: \"x: y\"}, %s]",
		real("value", -1e300, 1e300), real("close", -1, 1), pick("whole", "{same_as: single_rank}", "{same_as: a/b.json, tolerance: 0}", "{same_as: single_rank, tolerance: 2}"))
	return b.String()
}

// drawExperts writes keys of routers, capacity and shared experts.
func drawExperts(t *rapid.T, put func(format string, args ...any), tp int) {
	pick := func(name string, options ...string) string { return rapid.SampledFrom(options).Draw(t, name) }
	put("  moe_router_score_function: %s", pick("score", "softmax", "sigmoid\n  moe_router_enable_expert_bias: true", "sqrtsoftplus"))
	put("  moe_expert_capacity_factor: %s", pick("capacity", "null", "-1", "1.5\n  moe_token_drop_policy: position", "2\n  moe_pad_expert_input_to_capacity: true"))
	put("  moe_shared_expert_intermediate_size: %s", pick("shared", "null", fmt.Sprint(8*tp), fmt.Sprintf("%d\n  moe_shared_expert_gate: true", 4*tp)))
	put("  moe_token_dispatcher_type: %s", pick("dispatcher", "allgather", "alltoall", "flex"))
	put("  moe_router_topk_scaling_factor: %s\n  moe_input_jitter_eps: %s", pick("scaling", "null", "0", "2.5"), pick("jitter", "null", "0.01"))
	put("  recompute_granularity: %s", pick("recompute", "null", "full", "selective"))
}

// drawProbe writes no probe, bias_only or tables: of one term, or one for all.
func drawProbe(t *rapid.T, put func(format string, args ...any), micro, seq int) {
	cell := rapid.OneOf(rapid.SampledFrom([]string{".nan", ".inf", "-.inf", "-0", "1/3", "20"}), rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprint(rapid.Float64().Draw(t, "loss"))
	}))
	table := func() string {
		rows := make([]string, micro)
		for i := range rows {
			rows[i] = "[" + strings.Join(rapid.SliceOfN(cell, seq, seq).Draw(t, "losses"), ", ") + "]"
		}
		return "[" + strings.Join(rows, ", ") + "]"
	}
	switch rapid.SampledFrom([]string{"none", "bias_only", "lm", "all"}).Draw(t, "probe") {
	case "bias_only":
		put("probe: bias_only")
	case "lm":
		put("probe: {token_loss: {lm: %s}}", table())
	case "all":
		put("probe: {token_loss: %s}", table())
	}
}

func drawDataset(t *rapid.T, put func(format string, args ...any), seq int) {
	switch kind := rapid.SampledFrom([]string{"rows", "synthetic", "text", "jsonl", "reference"}).Draw(t, "kind"); kind {
	case "rows":
		n := rapid.IntRange(1, seq).Draw(t, "tokens")
		list := func(name string, low, high int) string {
			return strings.ReplaceAll(fmt.Sprint(rapid.SliceOfN(rapid.IntRange(low, high), n, n).Draw(t, name)), " ", ", ")
		}
		put("dataset: {kind: rows, seq_length: %d, rows: [{valid: %d}, {tokens: %s, labels: %s, padding_mask: %s}, {valid: %d, answer: [0, %d]}, %s], embeddings: %s}",
			seq, rapid.IntRange(0, seq).Draw(t, "valid"), list("ids", 0, 63), list("labels", 0, 63), list("mask", 0, 1), n, n,
			rapid.SampledFrom([]string{"{documents: [1, 0, 2]}", "{documents: [1, 2], documents_padded: [2, 2], position_ids: [3, 0, 1, 2]}",
				"{cu_seqlens: [0, 1, 1, 3], cu_seqlens_padded: [0, 2, 2, 4]}"}).Draw(t, "documents"),
			rapid.SampledFrom([]string{"precomputed", "null"}).Draw(t, "embeddings"))
	case "synthetic":
		put("dataset: {kind: synthetic, seq_length: %d, min_valid: %d, packed: %v}", seq, rapid.IntRange(0, seq).Draw(t, "min valid"), rapid.Bool().Draw(t, "packed"))
	case "reference":
		put("dataset: {kind: reference, path: case.json}")
	default:
		put("dataset: {kind: %s, seq_length: %d, paths: [a.txt, \"b: c.gz\"], shuffle: %v}", kind, seq, rapid.Bool().Draw(t, "shuffle"))
		put("tokenizer: {kind: byte}")
	}
}

// TestNormalisedProperty: whatever a legal file says, its normalised text says the same.
func TestNormalisedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawScenario(t)
		f, problems := Parse("f.yaml", []byte(text), nil)
		if strings.Contains(problems.Error(), "byte tokenizer") {
			f, problems = Parse("f.yaml", []byte(text), []string{"model.padded_vocab_size=256"})
		}
		require.NoError(t, problems.Err(), "%s", text)
		requireSame(t, f.Runs()[0])
	})
}
