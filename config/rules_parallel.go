package config

import "fmt"

// split is a size that tensor parallelism must divide.
type split struct {
	key, name string
	size      int
}

// splits are the sizes that tensor_model_parallel_size must divide. The width of experts is not among them: it is cut over
// expert_tensor_parallel_size. Nor is seq_length: the model inserts slots where it has to.
func (c *checker) splits() []split {
	m := &c.s.Model
	all := []split{
		{"model.num_attention_heads", "num_attention_heads", m.NumAttentionHeads},
		{"model.num_query_groups", "num_query_groups", m.NumQueryGroups},
		{"model.padded_vocab_size", "padded_vocab_size", m.PaddedVocabSize},
	}
	if m.HasDense() {
		all = append(all, split{"model.ffn_hidden_size", "ffn_hidden_size", m.FFNHiddenSize})
	}
	if m.HasMoE() && m.MoESharedExpertSize > 0 {
		all = append(all, split{"model.moe_shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", m.MoESharedExpertSize})
	}
	return all
}

// parallel holds the rules between the layout and the sizes.
func (c *checker) parallel() {
	m := &c.s.Model
	const tp = "model.tensor_model_parallel_size"
	if m.TensorParallel > 1 && c.ok(tp) {
		c.tensorParallel(tp)
	}
	if m.SequenceParallel && m.TensorParallel == 1 {
		c.note("model.sequence_parallel has no effect with tensor_model_parallel_size 1")
	}
	if m.HasMoE() && m.TensorParallel > 1 && !m.SequenceParallel && m.ExpertParallel <= 1 && m.ExpertTensorParallel <= 1 {
		c.note("MoE with tensor_model_parallel_size %d and without sequence_parallel: Megatron refuses this for training; here every TP rank routes all rows", m.TensorParallel)
	}
	if m.ContextParallel == 1 {
		c.noEffect("with context_parallel_size 1", "model.cp_comm_type")
	} else if m.CPCommType == "a2a" {
		c.allToAll()
	}
	c.inserted()
	c.world()
	c.pipeline()
	c.expertParallel()
}

// inserted notes the lengths for which the model inserts slots that hold nothing and count nowhere. Megatron has no such
// slots and refuses these lengths.
func (c *checker) inserted() {
	m, seq := &c.s.Model, c.s.Dataset.SeqLength
	const tp, cp = "model.tensor_model_parallel_size", "model.context_parallel_size"
	if seq == 0 || !c.ok(tp, cp, "dataset.seq_length") {
		return
	}
	local, of := seq, fmt.Sprintf("dataset.seq_length %d", seq)
	if chunks := product(2, m.ContextParallel); m.ContextParallel > 1 {
		if seq%chunks != 0 {
			c.note("dataset.seq_length %d is not divisible by 2 · context_parallel_size = %d: each document is padded to a multiple of it "+
				"with slots that count nowhere; Megatron refuses this", seq, chunks)
		}
		local = product(2, (seq-1)/chunks+1)
		of = fmt.Sprintf("dataset.seq_length: the share of each context-parallel rank, %d,", local)
	}
	if m.SequenceParallel && m.TensorParallel > 1 && local%m.TensorParallel != 0 {
		c.note("%s is not divisible by tensor_model_parallel_size %d, as sequence_parallel splits it: slots are inserted "+
			"that count nowhere; Megatron refuses this", of, m.TensorParallel)
	}
}

// allToAll: with cp_comm_type a2a every rank computes whole heads, so TP and CP divide them together.
func (c *checker) allToAll() {
	m := &c.s.Model
	const tp, cp = "model.tensor_model_parallel_size", "model.context_parallel_size"
	if !c.ok(tp, cp) {
		return
	}
	ranks := product(m.TensorParallel, m.ContextParallel)
	for _, s := range c.splits()[:2] {
		if s.size%m.TensorParallel == 0 && s.size%ranks != 0 {
			c.fail(s.key, fmt.Sprintf("%s %d is not divisible by tensor · context parallel size = %d · %d, as cp_comm_type a2a needs; nearest legal context_parallel_size: %d",
				s.name, s.size, m.TensorParallel, m.ContextParallel, divisor(s.size/m.TensorParallel, m.ContextParallel)), tp, cp)
		}
	}
}

func (c *checker) tensorParallel(key string) {
	t := c.s.Model.TensorParallel
	all := c.splits()
	for _, s := range all {
		if !c.ok(s.key) {
			return
		}
	}
	legal := nearestLegal(t, 1, MaxWorld, func(t int) bool {
		for _, s := range all {
			if s.size%t != 0 {
				return false
			}
		}
		return true
	})
	for _, s := range all {
		if s.size%t == 0 {
			continue
		}
		c.fail(s.key, fmt.Sprintf("%s %d is not divisible by tensor_model_parallel_size %d; nearest legal tensor_model_parallel_size: %d",
			s.name, s.size, t, legal), key)
	}
}

// world holds the rules between world size, layout and batch sizes.
func (c *checker) world() {
	m, t := &c.s.Model, &c.s.Train
	const world, global, micro = "dist.world_size", "train.global_batch_size", "train.micro_batch_size"
	layout := []string{"model.tensor_model_parallel_size", "model.context_parallel_size", "model.pipeline_model_parallel_size"}
	ranks := c.s.modelParallel()
	if !c.ok(append(layout, world)...) || ranks == 0 {
		return
	}
	if n := c.s.Dist.WorldSize; n%ranks != 0 {
		c.fail(world, fmt.Sprintf("%d is not a multiple of tensor · context · pipeline parallel size = %d · %d · %d = %d; nearest legal: %d",
			n, m.TensorParallel, m.ContextParallel, m.PipelineParallel, ranks, multiple(ranks, n)))
		return
	}
	if !c.ok(global, micro) {
		return
	}
	dp := c.s.DataParallel()
	rows := product(t.MicroBatchSize, dp)
	switch {
	case t.GlobalBatchSize%rows != 0:
		c.fail(global, fmt.Sprintf("%d is not divisible by micro_batch_size · data-parallel size = %d · %d = %d; nearest legal: %d",
			t.GlobalBatchSize, t.MicroBatchSize, dp, rows, multiple(rows, t.GlobalBatchSize)))
	case t.GlobalBatchSize/rows > MaxMicrobatches:
		c.fail(global, fmt.Sprintf("%d makes %d microbatches a step, expected at most %d; nearest legal: %d",
			t.GlobalBatchSize, t.GlobalBatchSize/rows, MaxMicrobatches, product(MaxMicrobatches, rows)))
	}
}

// count prints a number of parameters; the greatest int64 stands for an overflow.
func count(n int64) string {
	if n == 1<<63-1 {
		return "more than 2^63"
	}
	return fmt.Sprint(n)
}
