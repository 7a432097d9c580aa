package megatron

import (
	"fmt"
	"strings"
)

const byDefault = "Megatron's default"

// setOr is a flag under a key, or Megatron's default for it, where ours is another.
func (m *maker) setOr(name, key, def string) {
	if f, ok := m.given(name); ok {
		m.set(key, f)
		return
	}
	m.add(key, def, byDefault, flag{})
}

// model are positions, dropout and the vocabulary.
func (m *maker) model() {
	switch f, none := m.given("no-position-embedding"); {
	case m.flags["use-rotary-position-embeddings"].name != "":
		m.add("model.position_embedding_type", "rope", "--use-rotary-position-embeddings", m.flags["use-rotary-position-embeddings"])
	case none:
		m.add("model.position_embedding_type", "none", "--no-position-embedding", f)
	default:
		m.setOr("position-embedding-type", "model.position_embedding_type", "learned_absolute")
	}
	m.positions()
	for _, name := range []string{"hidden-dropout", "attention-dropout"} {
		m.dropout(name)
	}
	m.setOr("normalization", "model.normalization", "LayerNorm")
	m.vocabulary()
}

// blame is a problem of a flag, at the command line as a whole when it is not given.
func (m *maker) blame(f flag, format string, args ...any) error {
	if f.where == "" {
		f.where = m.source
	}
	return f.problem(format, args...)
}

// positions: RoPE has no last position.
func (m *maker) positions() {
	f, ok := m.given("max-position-embeddings")
	if _, has := m.keys["model.max_position_embeddings"]; has && ok && m.word("position-embedding-type", "learned_absolute") == "learned_absolute" {
		m.set("model.max_position_embeddings", f)
	} else if ok {
		m.remark(f, "RoPE has no last position")
	}
}

// dropout is 0.1 in Megatron unless a flag says otherwise.
func (m *maker) dropout(name string) {
	key := "model." + strings.ReplaceAll(name, "-", "_")
	_, has := m.keys[key]
	f, given := m.given(name)
	f.name = name
	switch {
	case has:
		m.setOr(name, key, "0.1")
	case !given:
		m.fail(m.blame(f, "is not given, and Megatron's default is 0.1: dropout is not in this version, give --%s 0", name))
	default:
		if v, err := f.value(); err != nil {
			m.fail(err)
		} else if v != "0" && strings.Trim(v, "0.") != "" {
			m.fail(f.problem("found %s: dropout is not in this version, expected 0", v))
		}
	}
}

// vocabulary is the size after Megatron's padding to a multiple that every tensor-parallel rank can share.
func (m *maker) vocabulary() {
	f, given := m.given("vocab-size")
	multiple := m.whole("make-vocab-size-divisible-by", 128)
	if _, says := m.given("padded-vocab-size"); !given || says {
		return
	}
	n, share := m.whole("vocab-size", 0), multiple*max(m.whole("tensor-model-parallel-size", 1), 1)
	if n <= 0 || multiple <= 0 || n > 1<<40 || share > 1<<40 {
		m.fail(f.problem("found %d with --make-vocab-size-divisible-by %d, expected sizes from 1 on", n, multiple))
		return
	}
	padded := (n + share - 1) / share * share
	m.add("model.padded_vocab_size", fmt.Sprint(padded), fmt.Sprintf("--vocab-size %d, padded to a multiple of %d", n, share), f)
}

// attention are groups of query heads: Megatron takes their number only with --group-query-attention, and is 1 then.
func (m *maker) attention() {
	if _, grouped := m.given("group-query-attention"); !grouped {
		if f, ok := m.given("num-query-groups"); ok {
			m.remark(f, "Megatron takes it with --group-query-attention only")
		}
		return
	}
	m.setOr("num-query-groups", "model.num_query_groups", "1")
}

// feedForward are activation, width and biases.
func (m *maker) feedForward() {
	gated, hasGated := m.given("swiglu")
	squared, hasSquared := m.given("squared-relu")
	switch {
	case hasGated && hasSquared:
		m.fail(squared.problem("with --swiglu, expected one of them"))
	case hasGated:
		m.add("model.gated_linear_unit", "true", "--swiglu", gated)
	case hasSquared:
		m.add("model.activation_func", "squared_relu", "--squared-relu", squared)
	default:
		m.add("model.activation_func", "gelu", byDefault+"; --swiglu or --squared-relu", flag{})
		m.add("model.gated_linear_unit", "false", byDefault, flag{})
	}
	if _, ok := m.given("disable-bias-linear"); !ok {
		m.add("model.add_bias_linear", "true", byDefault+"; --disable-bias-linear", flag{})
	}
	if f, ok := m.given("ffn-hidden-size"); ok {
		m.set("model.ffn_hidden_size", f)
	} else if h := m.whole("hidden-size", 0); hasGated && h > 0 {
		m.add("model.ffn_hidden_size", fmt.Sprint(h*4*2/3/64*64), byDefault+" with --swiglu: 8/3 of hidden_size, a multiple of 64", flag{})
	}
}

// parallel are sizes whose defaults differ, and virtual stages.
func (m *maker) parallel() {
	tp := m.whole("tensor-model-parallel-size", 1)
	if _, ok := m.given("num-experts"); ok && tp > 1 {
		m.setOr("expert-tensor-parallel-size", "model.expert_tensor_parallel_size", fmt.Sprint(tp))
	} else if f, ok := m.given("expert-tensor-parallel-size"); ok {
		m.set("model.expert_tensor_parallel_size", f)
	}
	if f, ok := m.given("recompute-activations"); ok {
		m.add("model.recompute_granularity", "selective", "--recompute-activations", f)
	}
	m.virtual()
	if m.world > 1 {
		m.add("dist.world_size", fmt.Sprint(m.world), "the launcher's --nproc-per-node and --nnodes", flag{})
	}
}

// virtual stages are given by their number, or by the layers of each.
func (m *maker) virtual() {
	const key = "model.virtual_pipeline_model_parallel_size"
	if f, ok := m.given("num-virtual-stages-per-pipeline-rank"); ok {
		m.known(key, f)
		m.set(key, f)
	}
	f, ok := m.given("num-layers-per-virtual-pipeline-stage")
	if !ok {
		return
	}
	each, layers, pp := m.whole(f.name, 1), m.whole("num-layers", 0), max(m.whole("pipeline-model-parallel-size", 1), 1)
	if each < 1 || layers%(each*pp) != 0 {
		m.fail(f.problem("found %d, expected a divisor of num-layers / pipeline-model-parallel-size = %d / %d", each, layers, pp))
		return
	}
	m.known(key, f)
	m.add(key, fmt.Sprint(layers/pp/each), fmt.Sprintf("--num-layers-per-virtual-pipeline-stage %d", each), f)
}

// known refuses a flag whose key is not in this version.
func (m *maker) known(key string, f flag) {
	if _, has := m.keys[key]; !has {
		m.fail(f.problem("%s is not in this version", key))
	}
}

// train are element type, optimizer, steps and the schedule.
func (m *maker) train() {
	for _, name := range []string{"bf16", "fp16"} {
		if f, ok := m.given(name); ok {
			m.remark(f, "train.dtype is fp32, which has every bit of it; overflow cannot occur where it would there")
		}
	}
	m.add("train.dtype", "fp32", "fp32 computes on CPUs", flag{})
	if f, ok := m.given("optimizer"); ok {
		m.set("optimizer.optimizer", f)
	}
	m.setOr("lr-decay-style", "scheduler.lr_decay_style", "linear")
	m.samples()
	m.nan()
}

// nan: Megatron ends a run with a loss or a gradient that is not finite unless a flag says otherwise.
func (m *maker) nan() {
	if f, off := m.given("no-check-for-nan-in-loss-and-grad"); off {
		m.remark(f, "a loss or gradient that is not finite is an error only where train and ddp say so")
		return
	}
	for _, key := range []string{"train.check_for_nan_in_loss", "ddp.check_for_nan_in_grad"} {
		m.add(key, "true", byDefault, flag{})
	}
}

// samples: train_iters follows from --train-samples and the global batch, as in Megatron.
func (m *maker) samples() {
	f, ok := m.given("train-samples")
	if !ok {
		return
	}
	n, batch := m.whole(f.name, 0), m.whole("global-batch-size", 0)
	if batch <= 0 {
		m.fail(f.problem("needs --global-batch-size, to tell the steps; or give --train-iters"))
		return
	}
	m.add("train.train_iters", fmt.Sprint(n/batch), fmt.Sprintf("--train-samples %d / --global-batch-size %d", n, batch), f)
}

// data are the rows. Without --data-path they are synthetic, as with --mock-data.
func (m *maker) data() {
	if f, ok := m.given("tokenizer-type"); ok {
		m.remark(f, tokens)
	}
	f, ok := m.given("data-path")
	if !ok {
		f, ok = m.given("train-data-path")
	}
	if !ok {
		why := "--mock-data"
		if _, mock := m.given("mock-data"); !mock {
			why = "no --data-path is given"
		}
		m.add("dataset.kind", "synthetic", why, flag{})
		m.drop("dataset.split")
		return
	}
	m.add("dataset.kind", "indexed", "--"+f.name, f)
	if len(f.values) == 2 && isNumber(f.values[0]) {
		f.values = f.values[1:] // one data set with its weight
	}
	if len(f.values) != 1 {
		m.fail(f.problem("found %d words, expected one data set: mixtures are not in this version", len(f.values)))
		return
	}
	m.set("dataset.path", f)
}

// drop takes a key out that has no meaning beside others.
func (m *maker) drop(key string) {
	kept := m.entries[:0]
	for _, e := range m.entries {
		if e.key == key {
			m.remark(e.flag, "synthetic data has no parts")
			continue
		}
		kept = append(kept, e)
	}
	m.entries = kept
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }
