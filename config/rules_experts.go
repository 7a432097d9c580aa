package config

import "fmt"

const (
	expertModelKey  = "model.expert_model_parallel_size"
	expertTensorKey = "model.expert_tensor_parallel_size"
)

// expertParallel holds the rules of the ranks that share experts.
func (c *checker) expertParallel() {
	m := &c.s.Model
	if m.ExpertParallel <= 1 && m.ExpertTensorParallel <= 1 {
		if m.NumMoEExperts > 0 {
			c.noEffect("with expert_model_parallel_size and expert_tensor_parallel_size 1", "model.moe_token_dispatcher_type")
		}
		return
	}
	c.worthSharing(expertTensorKey, m.ExpertTensorParallel)
	c.worthSharing(expertModelKey, m.ExpertParallel)
	c.expertTensor()
	c.expertModel()
}

// worthSharing checks that there is something to share, and that no row would be sent twice.
func (c *checker) worthSharing(key string, size int) {
	m := &c.s.Model
	switch {
	case size <= 1:
	case m.NumMoEExperts == 0:
		c.fail(key, fmt.Sprintf("%d without num_moe_experts has no experts to share; nearest legal: 1", size), "model.num_moe_experts")
	case m.TensorParallel > 1 && !m.SequenceParallel:
		c.fail(key, fmt.Sprintf("%d with tensor_model_parallel_size %d needs sequence_parallel: without it each TP rank would dispatch the same rows; "+
			"nearest legal: 1, or set sequence_parallel: true", size, m.TensorParallel), "model.sequence_parallel", "model.tensor_model_parallel_size")
	}
}

// expertTensor checks what expert_tensor_parallel_size must divide.
func (c *checker) expertTensor() {
	t, width, ranks := c.s.Model.ExpertTensorParallel, c.s.Model.MoEFFNHiddenSize, c.stageRanks()
	if t <= 1 || width <= 0 {
		return
	}
	legal := nearestLegal(t, 1, MaxWorld, func(t int) bool { return width%t == 0 && ranks%t == 0 })
	switch {
	case width%t != 0:
		c.fail(expertTensorKey, fmt.Sprintf("%d does not divide moe_ffn_hidden_size %d; nearest legal: %d", t, width, legal), "model.moe_ffn_hidden_size")
	case ranks%t != 0:
		c.fail(expertTensorKey, fmt.Sprintf("%d %s", t, c.notLaid(t, legal)))
	}
}

// expertModel checks what expert_model_parallel_size must divide, alone and together with expert_tensor_parallel_size.
func (c *checker) expertModel() {
	e, t, experts, ranks := c.s.Model.ExpertParallel, c.s.Model.ExpertTensorParallel, c.s.Model.NumMoEExperts, c.stageRanks()
	if e <= 1 || experts <= 0 {
		return
	}
	if t < 1 || !c.ok(expertTensorKey) {
		t = 1
	}
	legal := nearestLegal(e, 1, MaxWorld, func(e int) bool { return experts%e == 0 && ranks%product(t, e) == 0 })
	switch both := product(t, e); {
	case experts%e != 0:
		c.fail(expertModelKey, fmt.Sprintf("%d does not divide num_moe_experts %d; nearest legal: %d", e, experts, legal), "model.num_moe_experts")
	case ranks%both != 0:
		c.fail(expertModelKey, fmt.Sprintf("expert tensor · expert parallel size = %d · %d = %d %s", t, e, both, c.notLaid(both, legal)))
	}
}

// notLaid says that n ranks with one copy of the experts do not divide a pipeline stage, and what helps.
func (c *checker) notLaid(n, legal int) string {
	m := &c.s.Model
	replica := product(m.TensorParallel, m.ContextParallel)
	a, b := n, max(replica, 1) // their greatest common divisor
	for b != 0 {
		a, b = b, a%b
	}
	return fmt.Sprintf("does not divide tensor · context · data parallel size = %d · %d · %d = %d; nearest legal: %d, or a dist.world_size that is a multiple of %d",
		m.TensorParallel, m.ContextParallel, c.s.DataParallel(), c.stageRanks(), legal, product(c.s.modelParallel(), n/a))
}

// stageRanks is the number of ranks of a pipeline stage, over which the experts are laid; 0, which every size divides,
// while the layout has a problem.
func (c *checker) stageRanks() int {
	m := &c.s.Model
	if !c.ok("model.tensor_model_parallel_size", "model.context_parallel_size", "model.pipeline_model_parallel_size", "dist.world_size") {
		return 0
	}
	return product(m.TensorParallel, m.ContextParallel, c.s.DataParallel())
}
