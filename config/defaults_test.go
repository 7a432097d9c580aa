package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// parsed is the one run of a legal text.
func parsed(t *testing.T, text string, overrides ...string) Scenario {
	t.Helper()
	f, problems := Parse("f.yaml", []byte(text), overrides)
	require.NoError(t, problems.Err())
	require.Len(t, f.Runs(), 1)
	return f.Runs()[0]
}

// smallFile sets nothing that has a default.
const smallFile = `model: {num_layers: 2, hidden_size: 16, num_attention_heads: 4}
train: {train_iters: 3, micro_batch_size: 2}
optimizer: {lr: 0.01}
dataset: {kind: rows, rows: [{valid: 9}, {valid: 11}]}
`

// TestDefaults: everything a file leaves out, as one value.
func TestDefaults(t *testing.T) {
	nine, eleven := 9, 11
	want := Scenario{
		Name: "f", Dir: ".",
		Model: Model{NumLayers: 2, HiddenSize: 16, NumAttentionHeads: 4, NumQueryGroups: 4, KVChannels: 4, FFNHiddenSize: 64, PaddedVocabSize: 256,
			LayernormEpsilon: 1e-5, Normalization: "RMSNorm", PositionEmbedding: "rope", RotaryBase: 10000, RotaryPercent: 1, RopeScalingFactor: 8, GatedLinearUnit: true, ActivationFunc: "silu", InitMethodStd: 0.02,
			MoELayerFreq: LayerFreq{Every: 1}, MoEFFNHiddenSize: 64, MoERouterTopK: 2, MoERouterScore: "softmax", MoERouterBalancing: Words{"aux_loss"}, MoEAuxLossCoeff: Numbers{0},
			MoERouterBiasUpdateRate: 1e-3, MoETokenDispatcher: "allgather", MoETokenDropPolicy: "probs",
			MTPLossScaling: 0.1, MTPLossMask: "passed", LossNormalization: "exact",
			TensorParallel: 1, ContextParallel: 1, CPCommType: "p2p", PipelineParallel: 1, ExpertParallel: 1, ExpertTensorParallel: 1},
		Train:      Train{TrainIters: 3, MicroBatchSize: 2, GlobalBatchSize: 2, DType: "fp32"},
		Optimizer:  Optimizer{Optimizer: "adam", LR: 0.01, WeightDecay: 0.01, AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1e-8, ClipGrad: 1},
		Scheduler:  Scheduler{LRDecayStyle: "constant", LRDecayIters: 3, LRWSDDecayStyle: "exponential", WeightDecayIncrStyle: "constant"},
		Dataset:    Dataset{Kind: "rows", SeqLength: 11, Rows: []Row{{Valid: &nine}, {Valid: &eleven}}, PaddingMask: "present", LossMask: "present"},
		Tokenizer:  Tokenizer{Kind: "byte"},
		RNG:        RNG{Seed: 1234},
		Dist:       Dist{WorldSize: 1},
		Transport:  Transport{Kind: "nats", Servers: 1, Colocated: "nats", PieceBytes: 262144},
		Recovery:   Recovery{RankRestarts: 5, JobRestarts: 20, RestartWindowS: 60, HeartbeatMs: 100, Supervisors: 1, CollectiveTimeoutS: 5},
		Logger:     Logger{LogInterval: 1},
		Checkpoint: Checkpoint{SaveOptim: true, MostRecentK: -1, LoadOptim: true, LoadRNG: true},
	}
	require.Equal(t, want, parsed(t, smallFile))
}

// TestDerivedDefaults: defaults that follow from other keys.
func TestDerivedDefaults(t *testing.T) {
	for _, c := range []struct {
		name      string
		overrides []string
		got       func(s Scenario) any
		want      any
	}{
		{"squared_relu has no gate", []string{"model.activation_func=squared_relu"}, func(s Scenario) any { return s.Model.GatedLinearUnit }, false},
		{"experts are as wide as the layer", []string{"model.ffn_hidden_size=24"}, func(s Scenario) any { return s.Model.MoEFFNHiddenSize }, 24},
		{"a scheduler section decays linearly", []string{"scheduler.lr_warmup_iters=1"}, func(s Scenario) any { return s.Scheduler.LRDecayStyle }, "linear"},
		{"the decay ends with the run", []string{"train.train_iters=7"}, func(s Scenario) any { return s.Scheduler.LRDecayIters }, 7},
		{"the world is the layout", []string{"model.tensor_model_parallel_size=2"}, func(s Scenario) any { return s.Dist.WorldSize }, 2},
		{"the step is one microbatch per replica", []string{"dist.world_size=3"}, func(s Scenario) any { return s.Train.GlobalBatchSize }, 6},
		{"evaluations", []string{"train.eval_interval=2"}, func(s Scenario) any { return s.Train.EvalIters }, 100},
		{"no evaluations", nil, func(s Scenario) any { return s.Train.EvalIters }, 0},
		{"rows with tokens", []string{"dataset.rows.0={tokens: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}", "model.padded_vocab_size=16"},
			func(s Scenario) any { return s.Dataset.SeqLength }, 12},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.got(parsed(t, smallFile, c.overrides...))) })
	}
}

func TestEmptySchedulerSectionIsAbsent(t *testing.T) {
	require.Equal(t, "constant", parsed(t, smallFile+"scheduler:\n").Scheduler.LRDecayStyle)
	require.Equal(t, "linear", parsed(t, smallFile+"scheduler: {}\n").Scheduler.LRDecayStyle)
}

func TestCloseTolerance(t *testing.T) {
	s := parsed(t, smallFile+"expect: [{quantity: q, close: 1}, {quantity: q, close: 1, tolerance: 0.5}, {quantity: q, equals: 1}]\n")
	require.Equal(t, []float64{1e-9, 0.5, 0}, tolerances(s))
}

func tolerances(s Scenario) []float64 {
	var out []float64
	for _, e := range s.Expect {
		out = append(out, e.Tolerance)
	}
	return out
}

// TestSameAsTolerance: fp64 leaves room for the order of sums only.
func TestSameAsTolerance(t *testing.T) {
	text := smallFile + "expect: [{same_as: single_rank}, {same_as: r.json, tolerance: 0}, {same_as: r.json, tolerance: 0.5}, {refused: x}]\n"
	require.Equal(t, []float64{1e-4, 0, 0.5, 0}, tolerances(parsed(t, text)))
	require.Equal(t, []float64{1e-9, 0, 0.5, 0}, tolerances(parsed(t, text, "train.dtype=fp64")))
}

// TestDatasetDefaults: what each kind leaves to its own defaults.
func TestDatasetDefaults(t *testing.T) {
	for _, c := range []struct {
		name, dataset string
		want          Dataset
		vocab         int
	}{
		{"synthetic", "{kind: synthetic, seq_length: 8}", Dataset{Kind: "synthetic", SeqLength: 8, PaddingMask: "absent", LossMask: "present"}, 256},
		{"synthetic with padding", "{kind: synthetic, seq_length: 8, min_valid: 3}",
			Dataset{Kind: "synthetic", SeqLength: 8, MinValid: 3, PaddingMask: "present", LossMask: "present"}, 256},
		{"text", "{kind: text, seq_length: 8, paths: [a]}",
			Dataset{Kind: "text", SeqLength: 8, Paths: []string{"a"}, ValidationShare: 0.1, PaddingMask: "absent", LossMask: "present", Shuffle: true}, 256},
		{"jsonl", "{kind: jsonl, seq_length: 8, paths: [a], shuffle: false, validation_share: 0.25}",
			Dataset{Kind: "jsonl", SeqLength: 8, Paths: []string{"a"}, ValidationShare: 0.25, PadTo: "seq_length", PaddingMask: "present", LossMask: "present"}, 256},
		{"reference", "{kind: reference, path: c.json}", Dataset{Kind: "reference", Path: "c.json"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parsed(t, replaced(t, smallFile, "{kind: rows, rows: [{valid: 9}, {valid: 11}]}", c.dataset), "train.eval_interval=1")
			require.Equal(t, c.want, s.Dataset)
			require.Equal(t, c.vocab, s.Model.PaddedVocabSize)
		})
	}
}

// TestExplicitZero: a zero in the file is a value, not a missing key.
func TestExplicitZero(t *testing.T) {
	s := parsed(t, smallFile, "optimizer.lr=0", "optimizer.weight_decay=0", "optimizer.clip_grad=0", "rng.seed=0", "optimizer.adam_beta1=0",
		"model.mtp_loss_scaling_factor=0", "model.init_method_std=0", "train.eval_interval=1", "train.eval_iters=0")
	require.Zero(t, s.Optimizer.LR+s.Optimizer.WeightDecay+s.Optimizer.ClipGrad+s.Optimizer.AdamBeta1+s.Model.MTPLossScaling+s.Model.InitMethodStd)
	require.Zero(t, s.RNG.Seed)
	require.Zero(t, s.Train.EvalIters)
}

// TestNotations: values with a notation of their own.
func TestNotations(t *testing.T) {
	for text, want := range map[string]LayerFreq{
		"3": {Every: 3}, "[0, 1]": {Pattern: []int{0, 1}}, "([0]*1+[1]*1)": {Pattern: []int{0, 1}}, "'[0, 1]'": {Pattern: []int{0, 1}},
		"\"([0] + [1]) * 1\"": {Pattern: []int{0, 1}}, "'[0,1]*1+[1]*0'": {Pattern: []int{0, 1}},
	} {
		require.Equal(t, want, parsed(t, smallFile, "model.num_moe_experts=4", "model.moe_layer_freq="+text).Model.MoELayerFreq, text)
	}
	for text, want := range map[string]Values{
		"25": {Scalar: true, Data: []float64{25}}, "-13/48": {Scalar: true, Data: []float64{-13. / 48}}, "'1/3'": {Scalar: true, Data: []float64{1. / 3}},
		"[]": {Data: []float64{}}, "[1, [2, -1/2], [[3e-1]]]": {Data: []float64{1, 2, -0.5, 0.3}}, "-0": {Scalar: true, Data: []float64{0}},
	} {
		require.Equal(t, &want, parsed(t, smallFile, "expect.0={quantity: q, equals: "+text+"}").Expect[0].Equals, text)
	}
	for text, want := range map[string]Words{"aux_loss": {"aux_loss"}, "[none]": {"none"}, "[seq_aux_loss, aux_loss]": {"seq_aux_loss", "aux_loss"}} {
		require.Equal(t, want, parsed(t, smallFile, "model.num_moe_experts=4", "model.moe_router_load_balancing_type="+text).Model.MoERouterBalancing, text)
	}
	for text, want := range map[string]Numbers{"0.01": {0.01}, "0": {0}, "[1e-2]": {0.01}, "[0.5, 0]": {0.5, 0}} {
		require.Equal(t, want, parsed(t, smallFile, "model.num_moe_experts=4", "model.moe_router_load_balancing_type=[aux_loss, seq_aux_loss]",
			"model.moe_aux_loss_coeff="+text).Model.MoEAuxLossCoeff, text)
	}
	for text, want := range map[string]float64{"1.5": 1.5, "-1": 0, "-1.0": 0, "-1e0": 0, "null": 0} {
		require.Equal(t, want, parsed(t, smallFile, "model.num_moe_experts=4", "model.moe_expert_capacity_factor=3", "model.moe_expert_capacity_factor="+text).Model.MoEExpertCapacityFactor, text)
	}
	s := parsed(t, smallFile, "model.moe_z_loss_coeff=null", "model.num_moe_experts=null", "model.mtp_num_layers=null", "rng.seed=18446744073709551615",
		"dataset.rows.0={valid: 9, answer: [2, 5]}", "transport.embedded=true", "expect.0={quantity: q, step: null, row: 2, between: [-1, 2.5]}")
	require.Zero(t, s.Model.MoEZLossCoeff)
	require.Zero(t, s.Model.NumMoEExperts+s.Model.MTPNumLayers)
	require.Equal(t, uint64(1<<64-1), s.RNG.Seed)
	require.Equal(t, &[2]int{2, 5}, s.Dataset.Rows[0].Answer)
	require.True(t, *s.Transport.Embedded)
	require.Nil(t, s.Expect[0].Step)
	require.Equal(t, 2, *s.Expect[0].Row)
	require.Equal(t, []float64{-1, 2.5}, s.Expect[0].Between)
	require.Equal(t, "2024-01-01", parsed(t, smallFile, "name=2024-01-01").Name)
}

func TestBadPatterns(t *testing.T) {
	for _, text := range []string{"", "()", "[]", "[0", "[2]", "[0,]", "[0]*", "[0]*-1", "[0]+", "([0]", "[0])", "[0]*99999", "[0]*1024*2", "[0]*0", "[0]*99999999999999999999"} {
		_, ok := parsePattern(text)
		require.False(t, ok, text)
	}
	got, ok := parsePattern("([0]*1+[1]*3)*2")
	require.True(t, ok)
	require.Equal(t, []int{0, 1, 1, 1, 0, 1, 1, 1}, got)
}

// TestNotes: what is legal and probably not meant.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits []string
		want  []string
	}{
		{"none", nil, nil},
		{"sequence parallel alone", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  sequence_parallel: true"},
			[]string{"model.sequence_parallel has no effect with tensor_model_parallel_size 1"}},
		{"MoE under TP", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  tensor_model_parallel_size: 2"}, []string{
			"MoE with tensor_model_parallel_size 2 and without sequence_parallel: Megatron refuses this for training; here every TP rank routes all rows"}},
		{"MoE under TP and SP", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  tensor_model_parallel_size: 2\n  sequence_parallel: true"}, nil},
		{"MTP keys alone", []string{"mtp_num_layers: 2", "mtp_loss_scaling_factor: 0.3\n  mtp_use_repeated_layer: true\n  mtp_detach_heads: true\n  mtp_loss_mask: withheld"},
			[]string{"model.mtp_loss_scaling_factor has no effect without mtp_num_layers", "model.mtp_use_repeated_layer has no effect without mtp_num_layers",
				"model.mtp_detach_heads has no effect without mtp_num_layers", "model.mtp_loss_mask has no effect without mtp_num_layers"}},
		{"MoE keys alone", []string{"num_moe_experts: 4", "moe_layer_freq: [0, 1]\n  moe_aux_loss_coeff: 0.1"},
			[]string{"model.moe_layer_freq has no effect without num_moe_experts", "model.moe_aux_loss_coeff has no effect without num_moe_experts",
				"model.moe_ffn_hidden_size has no effect without num_moe_experts"}},
		{"all MoE keys alone", []string{"num_moe_experts: 4\n  moe_ffn_hidden_size: 12", `moe_router_topk: 1
  moe_router_score_function: sigmoid
  moe_router_pre_softmax: true
  moe_router_load_balancing_type: none
  moe_z_loss_coeff: 1
  moe_seq_aux_per_row: true
  moe_router_num_groups: 3
  moe_router_group_topk: 3
  moe_router_topk_scaling_factor: 3
  moe_router_enable_expert_bias: true
  moe_router_bias_update_rate: 0
  moe_router_force_load_balancing: true
  moe_router_fusion: true
  moe_input_jitter_eps: 0.5
  moe_shared_expert_intermediate_size: 5
  moe_shared_expert_gate: true
  moe_token_dispatcher_type: flex
  moe_per_layer_logging: true
  moe_enable_routing_replay: true
  moe_expert_capacity_factor: 2
  moe_token_drop_policy: position
  moe_pad_expert_input_to_capacity: true
  moe_drop_padding_tokens: true`}, allMoEKeysAlone()},
		{"flex for one rank", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  moe_token_dispatcher_type: flex"},
			[]string{"model.moe_token_dispatcher_type has no effect with expert_model_parallel_size and expert_tensor_parallel_size 1"}},
		{"bias rate alone", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  moe_router_bias_update_rate: 0"},
			[]string{"model.moe_router_bias_update_rate has no effect without moe_router_enable_expert_bias"}},
		{"random experts, drops by position and softmax before sigmoid", []string{"mtp_num_layers: 2",
			"mtp_num_layers: 2\n  moe_router_force_load_balancing: true\n  moe_token_drop_policy: position\n  moe_router_score_function: sigmoid\n  moe_router_pre_softmax: true"}, []string{
			"model.moe_router_pre_softmax has no effect with moe_router_score_function sigmoid",
			"model.moe_router_force_load_balancing chooses experts at random, and the router learns nothing: for benchmarks only",
			"model.moe_token_drop_policy has no effect without moe_expert_capacity_factor"}},
		{"padding without a mask", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  moe_drop_padding_tokens: true", "kind: rows", "padding_mask: absent\n  kind: rows"},
			[]string{"model.moe_drop_padding_tokens has no effect with dataset.padding_mask absent"}},
		{"scores again", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  recompute_granularity: selective"},
			[]string{"model.recompute_granularity selective has no effect: attention scores are never kept"}},
		{"layers again", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  recompute_granularity: full"}, nil},
		{"balanced by nothing", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  moe_router_load_balancing_type: none\n  moe_aux_loss_coeff: 0.1"},
			[]string{"model.moe_aux_loss_coeff has no effect with moe_router_load_balancing_type none"}},
		{"no MoE layer", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  moe_layer_freq: [0, 0]"},
			[]string{"model.moe_layer_freq makes no decoder layer MoE: num_moe_experts has no effect"}},
		{"exchange without CP", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  cp_comm_type: a2a"}, []string{"model.cp_comm_type has no effect with context_parallel_size 1"}},
		{"odd length under CP", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  context_parallel_size: 2", "seq_length: 16", "seq_length: 17"}, []string{
			"dataset.seq_length 17 is not divisible by 2 · context_parallel_size = 4: each document is padded to a multiple of it with slots that count nowhere; Megatron refuses this"}},
		{"even length under CP", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  context_parallel_size: 2"}, nil},
		{"odd length under SP", []string{"mtp_num_layers: 2", "mtp_num_layers: 2\n  tensor_model_parallel_size: 2\n  sequence_parallel: true", "seq_length: 16", "seq_length: 17"}, []string{
			"dataset.seq_length 17 is not divisible by tensor_model_parallel_size 2, as sequence_parallel splits it: slots are inserted that count nowhere; Megatron refuses this"}},
		{"odd share under SP and CP", []string{"num_query_groups: 2", "num_query_groups: 4", "mtp_num_layers: 2",
			"mtp_num_layers: 2\n  tensor_model_parallel_size: 4\n  context_parallel_size: 2\n  sequence_parallel: true", "seq_length: 16", "seq_length: 20"}, []string{
			"dataset.seq_length: the share of each context-parallel rank, 10, is not divisible by tensor_model_parallel_size 4, as sequence_parallel splits it: slots are inserted that count nowhere; Megatron refuses this"}},
		{"repeated once", []string{"mtp_num_layers: 2", "mtp_num_layers: 1\n  mtp_use_repeated_layer: true"},
			[]string{"model.mtp_use_repeated_layer has no effect with mtp_num_layers 1"}},
		{"depths beyond the row", []string{"mtp_num_layers: 2", "mtp_num_layers: 16"},
			[]string{"model.mtp_num_layers 16: depths from 16 on have no target in rows of seq_length 16"}},
		{"WSD keys alone", []string{"optimizer:\n", "scheduler: {lr_wsd_decay_iters: 2}\noptimizer:\n"},
			[]string{"scheduler.lr_wsd_decay_iters has no effect without lr_decay_style WSD"}},
		{"evaluations never", []string{"micro_batch_size: 2", "micro_batch_size: 2\n  eval_iters: 2"}, []string{"train.eval_iters has no effect without eval_interval"}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, parsed(t, edited(t, c.edits...)).Notes) })
	}
}

// allMoEKeysAlone are the notes of a file that sets every key of experts but num_moe_experts, moe_layer_freq,
// moe_aux_loss_coeff and moe_ffn_hidden_size; the last follows from ffn_hidden_size.
func allMoEKeysAlone() []string {
	var notes []string
	for _, key := range moeKeys() {
		if key != "model.moe_layer_freq" && key != "model.moe_aux_loss_coeff" {
			notes = append(notes, key+" has no effect without num_moe_experts")
		}
	}
	return notes
}

// TestNoNotesOfZeros: a scenario built in Go leaves keys at zero, which is nothing to say a word about.
func TestNoNotesOfZeros(t *testing.T) {
	s := parsed(t, smallFile)
	m := &s.Model
	m.MoERouterBalancing, m.MoEAuxLossCoeff, m.MoERouterBiasUpdateRate = nil, nil, 0
	require.Empty(t, s.Check())
	require.Empty(t, s.Notes)
}
