package config

import "fmt"

// model holds the rules within the model section.
func (c *checker) model() {
	c.heads()
	c.positions()
	c.biases()
	c.activation()
	c.moe()
	c.mtp()
	m := &c.s.Model
	if m.RecomputeGranularity == "selective" {
		c.note("model.recompute_granularity selective has no effect: attention scores are never kept")
	}
	sizes := []string{"model.num_layers", "model.hidden_size", "model.num_attention_heads", "model.num_query_groups", "model.kv_channels",
		"model.ffn_hidden_size", "model.moe_ffn_hidden_size", "model.num_moe_experts", "model.moe_shared_expert_intermediate_size",
		"model.padded_vocab_size", "model.mtp_num_layers"}
	if n := m.Parameters(); c.ok(sizes...) && n > MaxParameters {
		c.report("model", fmt.Sprintf("has %s parameters, expected at most %d; reduce hidden_size, num_layers, num_moe_experts or padded_vocab_size",
			count(n), MaxParameters))
	}
}

func (c *checker) heads() {
	m := &c.s.Model
	const heads, groups, hidden, channels = "model.num_attention_heads", "model.num_query_groups", "model.hidden_size", "model.kv_channels"
	if m.NumQueryGroups > 0 && m.NumAttentionHeads%m.NumQueryGroups != 0 {
		c.fail(heads, fmt.Sprintf("%d is not divisible by num_query_groups %d; nearest legal num_query_groups: %d",
			m.NumAttentionHeads, m.NumQueryGroups, divisor(m.NumAttentionHeads, m.NumQueryGroups)), groups)
	}
	switch {
	case m.KVChannels == 0 && m.NumAttentionHeads > 0 && m.HiddenSize > 0 && m.HiddenSize%m.NumAttentionHeads != 0:
		c.fail(hidden, fmt.Sprintf("%d is not divisible by num_attention_heads %d; nearest legal: %d, or set kv_channels",
			m.HiddenSize, m.NumAttentionHeads, multiple(m.NumAttentionHeads, m.HiddenSize)), heads, channels)
	case m.KVChannels%2 != 0 && m.PositionEmbedding == "rope" && m.RotaryPercent == 1:
		c.fail(channels, fmt.Sprintf("%d is odd, and RoPE turns pairs of channels; nearest legal: %d", m.KVChannels, m.KVChannels+1), hidden)
	}
}

// positions holds the rules of how positions enter.
func (c *checker) positions() {
	m := &c.s.Model
	const percent = "model.rotary_percent"
	if m.PositionEmbedding != "rope" {
		c.noEffect("without position_embedding_type rope", "model.rotary_base", percent, "model.rotary_interleaved", "model.rope_scaling", "model.rope_scaling_factor")
	}
	if m.PositionEmbedding == "learned_absolute" {
		c.learnedPositions()
	} else {
		c.noEffect("without position_embedding_type learned_absolute", "model.max_position_embeddings")
	}
	if m.PositionEmbedding != "rope" {
		return
	}
	if d := m.RotaryDims(); m.KVChannels > 0 && (d < 2 || d%2 != 0) {
		legal := max(2, d+d%2)
		c.fail(percent, fmt.Sprintf("%s of kv_channels %d is %d channels, and RoPE turns pairs; nearest legal: %s for %d channels",
			number(m.RotaryPercent), m.KVChannels, d, number(float64(legal)/float64(m.KVChannels)), legal), "model.kv_channels", "model.hidden_size")
	}
	if !m.RopeScaling {
		c.noEffect("without rope_scaling", "model.rope_scaling_factor")
	}
}

func (c *checker) learnedPositions() {
	const key, length = "model.max_position_embeddings", "dataset.seq_length"
	n, s := c.s.Model.MaxPositionEmbeddings, c.s.Dataset.SeqLength
	switch {
	case n == 0 && s == 0:
		c.fail(key, "required with position_embedding_type learned_absolute; expected the greatest number of positions in a row", length, "dataset.rows", "dataset.kind")
	case n < s:
		c.fail(key, fmt.Sprintf("%d is below seq_length %d; nearest legal: %d", n, s, s), length)
	}
}

// biases holds the rules of biases.
func (c *checker) biases() {
	m := &c.s.Model
	if m.AddBiasLinear && m.NumMoEExperts > 0 {
		c.fail("model.add_bias_linear", "true with num_moe_experts, whose experts have no biases; use add_qkv_bias for attention alone", "model.num_moe_experts")
	}
}

func (c *checker) activation() {
	m := &c.s.Model
	const key, gate = "model.activation_func", "model.gated_linear_unit"
	switch {
	case m.ActivationFunc == "squared_relu" && m.GatedLinearUnit:
		c.fail(key, "squared_relu has no gated form; set gated_linear_unit: false, or use silu", gate)
	case m.ActivationFunc == "silu" && !m.GatedLinearUnit:
		c.fail(key, "silu needs a gate; set gated_linear_unit: true, or use squared_relu", gate)
	}
}

func (c *checker) mtp() {
	m := &c.s.Model
	if m.MTPNumLayers == 0 {
		c.noEffect("without mtp_num_layers", "model.mtp_loss_scaling_factor", "model.mtp_use_repeated_layer", "model.mtp_detach_heads", "model.mtp_loss_mask")
		return
	}
	if m.MTPUseRepeatedLayer && m.MTPNumLayers == 1 {
		c.note("model.mtp_use_repeated_layer has no effect with mtp_num_layers 1")
	}
	if n := c.s.Dataset.SeqLength; n > 0 && m.MTPNumLayers >= n && c.ok("dataset.seq_length", "model.mtp_num_layers") {
		c.note("model.mtp_num_layers %d: depths from %d on have no target in rows of seq_length %d", m.MTPNumLayers, n, n)
	}
}
