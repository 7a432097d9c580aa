package megatron

import (
	"fmt"
	"strings"
)

// flag is one --flag with its values, as argparse reads it.
type flag struct {
	name   string // without --
	values []string
	where  string
}

// flags splits words: a flag is a word that begins with --, its values are the words up to the next one, or what stands
// behind =. A flag given twice counts as given last, as in argparse.
func flags(words []Word) (map[string]flag, []string, error) {
	all, order := map[string]flag{}, []string{}
	last := ""
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w.Text, "--")
		switch {
		case isFlag && name != "":
			name, value, given := strings.Cut(name, "=")
			f := flag{name: strings.ReplaceAll(name, "_", "-"), where: w.Where}
			if given {
				f.values = []string{value}
			}
			if _, twice := all[f.name]; !twice {
				order = append(order, f.name)
			}
			all[f.name], last = f, f.name
		case last == "":
			return nil, nil, problem(w.Where, "", "found %q before any flag, expected a word that begins with --", w.Text)
		default:
			f := all[last]
			f.values = append(f.values, w.Text)
			all[last] = f
		}
	}
	return all, order, nil
}

// rename are flags whose key has another name, section.key.
var rename = map[string]string{
	"norm-epsilon": "model.layernorm_epsilon", "apply-layernorm-1p": "model.layernorm_zero_centered_gamma",
	"num-experts": "model.num_moe_experts", "use-rope-scaling": "model.rope_scaling", "seq-length": "dataset.seq_length", "seed": "rng.seed",
	"log-interval": "logger.log_interval", "save": "checkpoint.save", "load": "checkpoint.load", "ddp-bucket-size": "ddp.bucket_size",
	"save-interval": "checkpoint.save_interval", "label-smoothing": "model.label_smoothing_factor", "split": "dataset.split",
	"padded-vocab-size": "model.padded_vocab_size", "decoder-first-pipeline-num-layers": "model.num_layers_in_first_pipeline_stage",
	"decoder-last-pipeline-num-layers":                 "model.num_layers_in_last_pipeline_stage",
	"microbatch-group-size-per-virtual-pipeline-stage": "model.microbatch_group_size_per_vp_stage",
}

// off are switches that turn a key off.
var off = map[string]string{
	"no-load-optim": "checkpoint.load_optim", "no-load-rng": "checkpoint.load_rng", "no-save-optim": "checkpoint.save_optim",
}

// special are flags that are not one key: they are read where the scenario is made.
var special = []string{
	"swiglu", "squared-relu", "disable-bias-linear", "normalization", "group-query-attention", "num-query-groups", "ffn-hidden-size",
	"use-rotary-position-embeddings", "bf16", "fp16", "train-samples", "data-path", "train-data-path", "mock-data", "vocab-size",
	"make-vocab-size-divisible-by", "tokenizer-type", "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank",
	"recompute-activations", "optimizer", "max-position-embeddings", "expert-tensor-parallel-size", "position-embedding-type",
	"hidden-dropout", "attention-dropout", "no-position-embedding", "lr-decay-style",
	"no-check-for-nan-in-loss-and-grad",
}

// switches are those of them that take no value.
var switches = []string{
	"swiglu", "squared-relu", "disable-bias-linear", "group-query-attention", "use-rotary-position-embeddings", "bf16", "fp16", "mock-data",
	"recompute-activations", "no-position-embedding", "no-check-for-nan-in-loss-and-grad",
}

// why flags change nothing here.
const (
	kernels   = "which kernels compute: there is one set here, with the same result"
	precision = "everything is computed in fp32 or fp64 here"
	overlap   = "when messages are sent: results do not depend on it"
	memory    = "where memory is, not what is computed"
	logging   = "logs and measurements"
	saving    = "how Megatron writes its checkpoints"
	loading   = "how Megatron reads data"
	tokens    = "tokens come from the dataset section here"
	launching = "how Megatron starts and stops its processes"
)

// ignored are flags that change nothing here, by the reason. One that ends in * stands for all that begin so.
var ignored = map[string]string{
	kernels: "use-flash-attn attention-backend transformer-impl use-mcore-models no-masked-softmax-fusion no-bias-gelu-fusion " +
		"no-bias-swiglu-fusion no-bias-dropout-fusion no-rope-fusion no-persist-layer-norm moe-grouped-gemm moe-use-legacy-grouped-gemm " +
		"moe-permute-fusion cross-entropy-loss-fusion cross-entropy-fusion-impl use-fused-weighted-squared-relu deterministic-mode " +
		"enable-cuda-graph cuda-graph-* te-rng-tracker apply-rope-fusion moe-router-padding-for-fp8 use-te-activation-func " +
		"disable-mamba-mem-eff-path no-gradient-accumulation-fusion gradient-accumulation-fusion no-rope-fusion",
	precision: "attention-softmax-in-fp32 accumulate-allreduce-grads-in-fp32 fp32-residual-connection loss-scale initial-loss-scale " +
		"min-loss-scale loss-scale-window hysteresis moe-router-dtype grad-reduce-in-bf16 use-precision-aware-optimizer main-grads-dtype " +
		"main-params-dtype exp-avg-dtype exp-avg-sq-dtype apply-query-key-layer-scaling disable-bf16-reduced-precision-matmul",
	overlap: "overlap-param-gather overlap-param-gather-with-optimizer-step overlap-p2p-communication " +
		"no-overlap-p2p-communication delay-wgrad-compute overlap-moe-expert-parallel-comm moe-shared-expert-overlap distributed-backend " +
		"distributed-timeout-minutes ddp-num-buckets ddp-average-in-collective use-nccl-ub nccl-ub nccl-communicator-config-path " +
		"moe-enable-deepep moe-flex-dispatcher-backend moe-deepep-num-sms tp-comm-* no-async-tensor-model-parallel-allreduce align-grad-reduce " +
		"no-align-param-gather no-align-grad-reduce defer-embedding-wgrad-compute wgrad-deferral-limit high-priority-stream-groups use-sharp " +
		"no-scatter-gather-tensors-in-pipeline",
	memory: "recompute-method recompute-num-layers recompute-modules distribute-saved-activations cpu-offloading* empty-unused-memory-level " +
		"manual-gc manual-gc-interval no-manual-gc-eval use-cpu-initialization optimizer-cpu-offload optimizer-offload-fraction " +
		"overlap-cpu-optimizer-d2h-h2d no-pin-cpu-* use-torch-optimizer-for-cpu-offload init-model-with-meta-device " +
		"fp8-param-gather keep-fp8-transpose-cache moe-layer-recompute",
	logging: "log-* no-log-* timing-log-level timing-log-option tensorboard-* wandb-* profile profile-* use-pytorch-profiler record-memory-history " +
		"memory-snapshot-path one-logger-* enable-one-logger no-one-logger barrier-with-L1-time no-barrier-with-level-1-timing " +
		"moe-per-layer-logging rerun-mode check-for-spiky-loss check-for-large-grads result-rejected-tracker-filename " +
		"logging-level straggler-* disable-straggler-on-startup config-logger-dir",
	saving: "ckpt-* async-save async-ckpt-* use-dist-ckpt dist-ckpt-* auto-detect-ckpt-format no-save-rng " +
		"use-checkpoint-args override-opt-param-scheduler use-checkpoint-opt-param-scheduler save-retain-interval " +
		"non-persistent-* replication* retro-* load-model-opt-format verify-integrity no-use-tokenizer-model-from-checkpoint-args",
	loading: "num-workers data-cache-path no-create-attention-mask-in-dataloader no-mmap-bin-files dataloader-type num-dataset-builder-threads " +
		"object-storage-cache-path mid-level-dataset-surplus per-split-data-args-path s3-cache-path",
	tokens: "vocab-file merge-file tokenizer-model tiktoken-* vocab-extra-ids tokenizer-*",
	launching: "exit-interval exit-duration-in-mins exit-signal-handler exit-signal local-rank adlr-autoresume adlr-autoresume-interval " +
		"use-persistent-ckpt-worker inprocess-* enable-ft-package calc-ft-timeouts lazy-mpu-init enable-experimental no-initialization",
}

// refused are flags that change the result in a way this version has not, with what to do.
var refused = map[string]string{
	"use-legacy-models": "the older models of Megatron-LM are not in this version", "rampup-batch-size": "the batch has one size here",
	"eod-mask-loss": "the end of a document counts in the loss here", "reset-position-ids": "use dataset.packed, whose positions restart",
	"reset-attention-mask":                "use dataset.packed, whose documents do not see each other",
	"use-tp-pp-dp-mapping":                "ranks are in the order tp-cp-ep-dp-pp",
	"multi-latent-attention":              "multi-latent attention is not in this version",
	"spec":                                "layers are those that keys describe",
	"is-hybrid-model":                     "hybrid (Mamba) models are not in this version",
	"use-torch-fsdp2":                     "use --use-distributed-optimizer",
	"use-megatron-fsdp":                   "use --use-distributed-optimizer",
	"yaml-cfg":                            "give the arguments themselves",
	"fp8-format":                          "fp8 is not in this version",
	"no-bias-linear":                      "Megatron's flag is --disable-bias-linear",
	"rotary-seq-len-interpolation-factor": "positions are not interpolated in this version",
}

// whyIgnored is the reason for a flag that changes nothing.
func whyIgnored(name string) string {
	for why, list := range ignored {
		for _, f := range strings.Fields(list) {
			if prefix, many := strings.CutSuffix(f, "*"); f == name || many && strings.HasPrefix(name, prefix) {
				return why
			}
		}
	}
	return ""
}

// value is the only value of a flag.
func (f flag) value() (string, error) {
	if len(f.values) != 1 {
		return "", f.problem("found %d values, expected one", len(f.values))
	}
	if v := f.values[0]; strings.Contains(v, "$") {
		return "", f.problem("found %s, which the script does not say; set it with NAME=value behind the file, or give the arguments behind --", v)
	}
	return f.values[0], nil
}

func (f flag) problem(format string, args ...any) error {
	return problem(f.where, "--"+f.name, "%s", fmt.Sprintf(format, args...))
}
