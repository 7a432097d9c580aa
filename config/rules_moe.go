package config

import (
	"fmt"
	"slices"
	"strings"
)

// moe holds the rules of mixtures of experts; those of the ranks that share them are in rules_parallel.go.
func (c *checker) moe() {
	m := &c.s.Model
	const freq = "model.moe_layer_freq"
	if n := len(m.MoELayerFreq.Pattern); m.MoELayerFreq.Pattern != nil && n != m.NumLayers {
		c.fail(freq, fmt.Sprintf("has length %d, expected num_layers %d, one entry for each layer", n, m.NumLayers), "model.num_layers")
	}
	if m.NumMoEExperts == 0 {
		c.noEffect("without num_moe_experts", append(moeKeys(), "checkpoint.save_routing", "checkpoint.load_routing")...)
		if m.MoEFFNHiddenSize != m.FFNHiddenSize {
			c.note("model.moe_ffn_hidden_size has no effect without num_moe_experts")
		}
		return
	}
	c.expertBias()
	c.choice()
	c.groups()
	c.balancing()
	c.capacity()
	c.replay()
	if m.MoESharedExpertGate && m.MoESharedExpertSize == 0 {
		c.fail("model.moe_shared_expert_gate", "true has no shared expert to gate; set moe_shared_expert_intermediate_size, or remove it",
			"model.moe_shared_expert_intermediate_size")
	}
	if c.ok(freq, "model.num_layers") && !m.HasMoE() {
		c.note("model.moe_layer_freq makes no decoder layer MoE: num_moe_experts has no effect")
	}
}

// moeKeys are the keys that do nothing without experts, but for the experts' width, whose default follows from another key.
func moeKeys() []string {
	var keys []string
	for _, name := range sectionKeys("model") {
		if strings.HasPrefix(name, "moe_") && name != "moe_ffn_hidden_size" {
			keys = append(keys, "model."+name)
		}
	}
	return keys
}

// choice holds the rules of how experts are scored and chosen.
func (c *checker) choice() {
	m := &c.s.Model
	const topk, experts, score, pre = "model.moe_router_topk", "model.num_moe_experts", "model.moe_router_score_function", "model.moe_router_pre_softmax"
	if m.MoERouterTopK > m.NumMoEExperts {
		c.fail(topk, fmt.Sprintf("%d is more than num_moe_experts %d; nearest legal: %d", m.MoERouterTopK, m.NumMoEExperts, m.NumMoEExperts), experts)
	}
	if m.MoERouterScore == "softmax" && m.MoERouterTopK == 1 && !m.MoERouterPreSoftmax {
		c.fail(topk, "1 with a softmax over the chosen experts makes every weight 1, and the router learns nothing "+
			"(Megatron refuses it too); set moe_router_pre_softmax: true", pre, score)
	}
	if m.MoERouterScore != "softmax" && c.ok(score) {
		c.noEffect("with moe_router_score_function "+m.MoERouterScore, pre)
	}
	c.fusion()
	if m.MoERouterForceLoadBalancing {
		c.note("model.moe_router_force_load_balancing chooses experts at random, and the router learns nothing: for benchmarks only")
	}
}

// fusion: the one-pass router has softmax scores without groups. Nor has it an expert bias, which softmax never has.
func (c *checker) fusion() {
	m := &c.s.Model
	const key, score, groups = "model.moe_router_fusion", "model.moe_router_score_function", "model.moe_router_num_groups"
	found := ""
	switch {
	case !m.MoERouterFusion:
		return
	case m.MoERouterScore != "softmax":
		found = "moe_router_score_function " + show(m.MoERouterScore)
	case m.MoERouterNumGroups != 0:
		found = fmt.Sprintf("moe_router_num_groups %d", m.MoERouterNumGroups)
	default:
		return
	}
	c.fail(key, "true is legal with softmax scores without groups and without expert bias, found "+found+"; set moe_router_fusion: false",
		score, groups, "model.moe_router_enable_expert_bias")
}

func (c *checker) expertBias() {
	m := &c.s.Model
	const key, score = "model.moe_router_enable_expert_bias", "model.moe_router_score_function"
	switch {
	case !m.MoERouterEnableExpertBias:
		c.noEffect("without moe_router_enable_expert_bias", "model.moe_router_bias_update_rate")
	case m.MoERouterScore == "softmax":
		c.fail(key, "true needs moe_router_score_function sigmoid or sqrtsoftplus, found softmax (Megatron refuses it too); set one of them, or remove it", score)
	}
}

// groups holds the rules of the group-limited choice: top-k experts from the best groups, equally many from each in its score.
func (c *checker) groups() {
	m := &c.s.Model
	const groups, top, experts = "model.moe_router_num_groups", "model.moe_router_group_topk", "model.num_moe_experts"
	n, g := m.MoERouterNumGroups, m.MoERouterGroupTopK
	switch {
	case n == 0 && g == 0:
	case g == 0:
		c.fail(groups, fmt.Sprintf("%d groups need moe_router_group_topk, from 1 to %d; set both or neither", n, n), top)
	case n == 0:
		c.fail(top, fmt.Sprintf("%d needs moe_router_num_groups, a divisor of num_moe_experts %d; set both or neither", g, m.NumMoEExperts), groups, experts)
	case m.NumMoEExperts%n != 0:
		c.fail(groups, fmt.Sprintf("%d does not divide num_moe_experts %d; nearest legal: %d", n, m.NumMoEExperts, divisor(m.NumMoEExperts, n)), experts)
	default:
		c.groupTopK(n, g, m.NumMoEExperts/n)
	}
}

// groupTopK checks g groups of n with size experts each.
func (c *checker) groupTopK(n, g, size int) {
	k, why := c.s.Model.MoERouterTopK, ""
	legal := func(g int) bool { return g > 0 && g <= n && k%g == 0 && k/g <= size }
	switch {
	case legal(g):
		return
	case g > n:
		why = fmt.Sprintf("%d is more than moe_router_num_groups %d", g, n)
	case g < 0 || k%g != 0:
		why = fmt.Sprintf("%d does not divide moe_router_topk %d", g, k)
	default:
		why = fmt.Sprintf("%d takes moe_router_topk / moe_router_group_topk = %d experts of each group, and a group has %d", g, k/g, size)
	}
	tip := fmt.Sprintf("no value is legal with moe_router_topk %d and %d groups of %d experts: change one of these", k, n, size)
	if best := nearestLegal(g, 1, n, legal); legal(best) {
		tip = fmt.Sprintf("nearest legal: %d", best)
	}
	c.fail("model.moe_router_group_topk", why+"; "+tip, "model.moe_router_topk", "model.moe_router_num_groups", "model.num_moe_experts")
}

// balancing holds the rules of the balancing losses and their coefficients.
func (c *checker) balancing() {
	m := &c.s.Model
	const key, coeff, perRow = "model.moe_router_load_balancing_type", "model.moe_aux_loss_coeff", "model.moe_seq_aux_per_row"
	types := m.MoERouterBalancing
	for i, t := range types {
		switch {
		case slices.Contains(types[:i], t):
			c.fail(c.entry(key, i), show(t)+" is given twice; remove one")
		case t == "none" && len(types) > 1:
			c.fail(c.entry(key, i), "none goes alone; remove it, or the others")
		}
	}
	if n := len(m.MoEAuxLossCoeff); n > 1 && n != len(types) {
		c.fail(coeff, fmt.Sprintf("has length %d, expected one number, or %d: one for each moe_router_load_balancing_type", n, len(types)), key)
	}
	if m.MoESeqAuxPerRow && !types.Has("seq_aux_loss") {
		c.fail(perRow, fmt.Sprintf("true needs seq_aux_loss in moe_router_load_balancing_type, found %s; add it, or remove moe_seq_aux_per_row",
			strings.Join(types, ", ")), key)
	}
	if m.MoEAuxLossCoeff.At(0) != 0 && types.Has("none") {
		c.note("model.moe_aux_loss_coeff has no effect with moe_router_load_balancing_type none")
	}
}

// replay: choices are recorded in a file or played from one.
func (c *checker) replay() {
	const key, save, load = "model.moe_enable_routing_replay", "checkpoint.save_routing", "checkpoint.load_routing"
	on, saves, loads := c.s.Model.MoEEnableRoutingReplay, c.s.Checkpoint.SaveRouting != "", c.s.Checkpoint.LoadRouting != ""
	switch {
	case on && !saves && !loads:
		c.fail(key, "true has no file; set checkpoint.save_routing to record the routers' choices, or checkpoint.load_routing to play them", save, load)
	case on && saves && loads:
		c.fail(save, "records what checkpoint.load_routing plays; remove one of the two", load)
	case !on && saves:
		c.fail(save, "needs model.moe_enable_routing_replay: true", key)
	case !on && loads:
		c.fail(load, "needs model.moe_enable_routing_replay: true", key)
	}
}

// capacity holds the rules of filling up, and notes keys of dropping where nothing is dropped.
func (c *checker) capacity() {
	m := &c.s.Model
	const pad, factor, drop = "model.moe_pad_expert_input_to_capacity", "model.moe_expert_capacity_factor", "model.moe_drop_padding_tokens"
	switch {
	case !m.MoEPadExpertInput:
	case m.MoEExpertCapacityFactor == 0:
		c.fail(pad, "true needs moe_expert_capacity_factor (Megatron refuses it too); set it, or remove moe_pad_expert_input_to_capacity", factor)
	case m.MoEDropPaddingTokens:
		c.fail(pad, "true has experts compute as many rows as their capacity is, and moe_drop_padding_tokens takes padding from them; remove one of the two", drop)
	}
	if m.MoEExpertCapacityFactor == 0 {
		c.noEffect("without moe_expert_capacity_factor", "model.moe_token_drop_policy")
	}
	if c.s.Dataset.PaddingMask == "absent" {
		c.noEffect("with dataset.padding_mask absent", "model.moe_drop_padding_tokens")
	}
}
