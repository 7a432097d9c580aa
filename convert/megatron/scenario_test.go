package megatron

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/convert"
)

// least is a complete command line of a dense model.
const least = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1 --train-iters 3 --lr 0.1 " +
	"--position-embedding-type rope --swiglu --disable-bias-linear --normalization RMSNorm --hidden-dropout 0 --attention-dropout 0.0 --mock-data "

// scenarioOf is the scenario of a command line, and its text.
func scenarioOf(t *testing.T, args string) (config.Scenario, string) {
	t.Helper()
	text, err := Scenario("line", Args(strings.Fields(args)))
	require.NoError(t, err)
	f, problems := config.Parse("line", text, nil)
	require.Empty(t, problems, "%s", text)
	return f.Base, string(text)
}

// TestMegatronDefaults: what a command line does not say is what Megatron's argument parser takes for it.
func TestMegatronDefaults(t *testing.T) {
	s, _ := scenarioOf(t, least)
	m := s.Model
	require.Equal(t, []any{2, 64, 4, 4, 16}, []any{m.NumLayers, m.HiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels})
	require.Equal(t, 128, m.FFNHiddenSize, "int((4 · 64 · 2 / 3) / 64) · 64")
	require.False(t, m.UntieEmbeddings)
	require.False(t, m.AddBiasLinear)
	require.Equal(t, []any{1e-5, 10000.0, 0.02}, []any{m.LayernormEpsilon, m.RotaryBase, m.InitMethodStd})
	o := s.Optimizer
	require.Equal(t, []any{"adam", 0.1, 0.0, 0.01, 0.9, 0.999, 1e-8, 1.0},
		[]any{o.Optimizer, o.LR, o.MinLR, o.WeightDecay, o.AdamBeta1, o.AdamBeta2, o.AdamEps, o.ClipGrad})
	require.Equal(t, []any{"linear", 3, 0}, []any{s.Scheduler.LRDecayStyle, s.Scheduler.LRDecayIters, s.Scheduler.LRWarmupIters})
	require.Equal(t, uint64(1234), s.RNG.Seed)
	require.Equal(t, 1, s.Train.GlobalBatchSize)

	s, _ = scenarioOf(t, strings.Replace(least, "--hidden-dropout 0", "", 1))
	require.Equal(t, []float64{0.1, 0}, []float64{s.Model.HiddenDropout, s.Model.AttentionDropout})
	require.True(t, s.Train.CheckForNaNInLoss)
	require.True(t, s.DDP.CheckForNaNInGrad)

	s, _ = scenarioOf(t, least+"--num-experts 4 --tensor-model-parallel-size 2 --sequence-parallel --moe-ffn-hidden-size 32")
	require.Equal(t, 2, s.Model.ExpertTensorParallel, "Megatron's is tensor_model_parallel_size")
	require.Equal(t, []any{2, "allgather", config.Words{"aux_loss"}, 0.0},
		[]any{s.Model.MoERouterTopK, s.Model.MoETokenDispatcher, s.Model.MoERouterBalancing, s.Model.MoEAuxLossCoeff.At(0)})
}

// TestFlags: single flags and the keys they give.
func TestFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--group-query-attention --num-query-groups 2", "  num_query_groups: 2\n"},
		{"--group-query-attention", "  num_query_groups: 1 "},
		{"--num-query-groups 2", "#   --num-query-groups 2: Megatron takes it with --group-query-attention only"},
		{"--vocab-size 1000 --tensor-model-parallel-size 2", "  padded_vocab_size: 1024 "},
		{"--vocab-size 1000 --make-vocab-size-divisible-by 3", "  padded_vocab_size: 1002 "},
		{"--vocab-size 5 --padded-vocab-size 640", "  padded_vocab_size: 640\n"},
		{"--squared-relu", "refused"},
		{"--norm-epsilon=1e-6", "  layernorm_epsilon: 1e-6 "},
		{"--use-rotary-position-embeddings", "  position_embedding_type: rope "},
		{"--rotary-percent 0.5", "  rotary_percent: 0.5\n"},
		{"--add-qkv-bias --qk-layernorm", "  add_qkv_bias: true\n"},
		{"--num-experts 8 --moe-layer-freq ([0]*1+[1]*1)", "  moe_layer_freq: \"([0]*1+[1]*1)\"\n"},
		{"--num-experts 8 --moe-layer-freq [0,1]", "  moe_layer_freq: [0,1]\n"},
		{"--num-experts 8 --moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 1e-2 1e-3", "  moe_router_load_balancing_type: [\"aux_loss\", \"seq_aux_loss\"]\n"},
		{"--mtp-num-layers 1 --mtp-loss-scaling-factor 0.3", "  mtp_loss_scaling_factor: 0.3\n"},
		{"--recompute-activations", "  recompute_granularity: selective "},
		{"--train-samples 90 --global-batch-size 8", "  train_iters: 11 "},
		{"--data-path some/prefix --split 9,1,0 --vocab-size 256", "  path: \"some/prefix\" "},
		{"--data-path 1.0 some/prefix --vocab-size 256", "  kind: indexed "},
		{"--split 9,1,0", "#   --split 9,1,0: synthetic data has no parts"},
		{"--use-distributed-optimizer", "  use_distributed_optimizer: true\n"},
		{"--position-embedding-type learned_absolute --max-position-embeddings 77", "  max_position_embeddings: 77\n"},
		{"--num-layers 4 --global-batch-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", "  virtual_pipeline_model_parallel_size: 2 "},
		{"--bf16", "#   --bf16: train.dtype is fp32"},
		{"--save a --load a", "  load: \"a\"\n"},
		{"--save a --load a --no-load-optim --finetune", "  load_optim: false "},
		{"--overlap-grad-reduce --use-distributed-optimizer --ddp-bucket-size 4096", "  bucket_size: 4096 "},
		{"--log-throughput", "#   --log-throughput: logs and measurements"},
		{"--seed 5 --seed 6", "  seed: 6\n"},
		{"--moe_router_topk 2 --num-experts 4", "  moe_router_topk: 2\n"},
		{"--no-check-for-nan-in-loss-and-grad", "#   --no-check-for-nan-in-loss-and-grad: a loss or gradient"},
		{"--num-layers-per-virtual-pipeline-stage 3", "refused"},
		{"--seed 1e3x", "refused"},
		{"--lr", "refused"},
		{"--swiglu --squared-relu", "refused"},
		{"--multi-latent-attention --kv-lora-rank 4", "refused"},
		{"--fp8-format hybrid", "refused"},
		{"--qk-layernorm yes", "refused"},
		{"--seq-length $N", "refused"},
		{"--rampup-batch-size 1 2 3", "refused"},
		{"--data-path a b c", "refused"},
		{"--vocab-size 0", "refused"},
		{"--train-samples 90", "refused"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := least
			if strings.Contains(c.args, "--train-samples") {
				args = strings.Replace(args, "--train-iters 3", "", 1)
			}
			if c.want != "refused" {
				_, text := scenarioOf(t, args+c.args)
				require.Contains(t, text, c.want)
				return
			}
			_, err := Scenario("line", Args(strings.Fields(args+c.args)))
			var ps convert.Problems
			require.ErrorAs(t, err, &ps)
			require.Contains(t, err.Error(), strings.Fields(c.args)[0])
		})
	}
}

// TestWhy: a refused flag stands at its argument, with the reason or the nearest name.
func TestWhy(t *testing.T) {
	for args, want := range map[string]string{
		"--hiden-size 8":                    "argument 26: --hiden-size: is no flag that this version knows: model.hiden_size: unknown key; did you mean model.hidden_size?",
		"--kv-lora-rank 4":                  "argument 26: --kv-lora-rank: is no flag that this version knows: model.kv_lora_rank: Megatron has model.kv_lora_rank; Phalanx does not support it yet",
		"--tensorboard-dri x --tensr-dir x": "argument 28: --tensr-dir",
		"--use-flash-atn":                   "did you mean use-flash-attn?",
		"--lr 1e":                           "argument 26: --lr: optimizer.lr: found \"1e\" (text in quotes), expected a finite number",
		"--tensor-model-parallel-size 3":    "argument 5: --num-attention-heads: model.num_attention_heads: num_attention_heads 4 is not divisible by tensor_model_parallel_size 3",
		"--normalization BatchNorm":         "--normalization: model.normalization: found BatchNorm, expected RMSNorm or LayerNorm",
		"stray":                             "--mock-data: found stray, expected no value",
	} {
		_, err := Scenario("line", Args(strings.Fields(least+args)))
		require.ErrorContains(t, err, want)
	}
	_, err := Scenario("line", Args([]string{"stray"}))
	require.ErrorContains(t, err, `argument 1: found "stray" before any flag`)
	_, err = Scenario("line", Args(strings.Fields("--num-layers 2")))
	require.ErrorContains(t, err, "model.hidden_size: required key is missing")
}

// TestOneFate: no flag is ignored and mapped, or ignored for two reasons.
func TestOneFate(t *testing.T) {
	m := &maker{keys: map[string]config.KeyInfo{}}
	for _, k := range config.Keys() {
		m.keys[k.Name] = k
	}
	seen := map[string]string{}
	for why, list := range ignored {
		for _, f := range strings.Fields(list) {
			require.Empty(t, refused[f], f)
			require.Empty(t, rename[f], f)
			require.NotContains(t, special, f)
			require.True(t, seen[f] == "" || seen[f] == why, f)
			seen[f] = why
		}
	}
	for f := range refused {
		require.NotContains(t, special, f)
		require.Empty(t, rename[f], f)
	}
}
