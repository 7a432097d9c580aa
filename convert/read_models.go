package convert

import (
	"fmt"
	"slices"

	"phalanx/config"
)

// readLlama: its biases are on all projections of attention, and apart from that on those of feed-forward layers.
func readLlama(r *fields) {
	r.rope(1)
	attention, mlp := r.yes("attention_bias", false), r.yes("mlp_bias", false)
	if attention != mlp {
		r.fail("attention_bias", "found %t with mlp_bias %t: every projection has a bias here, or none", attention, mlp)
	}
	if attention {
		r.set("add_bias_linear", "true", "attention_bias")
	}
}

func readQwen3(r *fields) {
	r.rope(1)
	r.only("attention_bias", "a bias on the output projection alone is not in this version", "false")
	r.headDim()
	r.set("qk_layernorm", "true", "model_type")
}

func readQwen2(r *fields) {
	r.rope(1)
	r.set("add_qkv_bias", "true", "model_type")
}

// headDim: these models' code has a default of its own, which files should not lean on.
func (r *fields) headDim() {
	if _, ok := r.take("head_dim"); !ok {
		r.need("head_dim", "a whole number")
	}
}

func readQwen3MoE(r *fields) {
	readQwen3(r)
	r.refuse("a shared expert is not in Qwen3-MoE", "shared_expert_intermediate_size")
	experts := "num_experts"
	if _, ok := r.take(experts); !ok {
		if _, ok := r.take("num_local_experts"); ok {
			experts = "num_local_experts"
		}
	}
	r.setCount(experts, "num_moe_experts")
	r.experts()
	r.set("moe_router_pre_softmax", fmt.Sprint(!r.yes("norm_topk_prob", false)), "norm_topk_prob")
	r.sparse()
	r.set("moe_router_load_balancing_type", "aux_loss", "router_aux_loss_coef")
	r.setNumber("router_aux_loss_coef", "moe_aux_loss_coeff", 0.001)
}

// experts are width and choice, as every mixture has them.
func (r *fields) experts() {
	r.setCount("moe_intermediate_size", "moe_ffn_hidden_size")
	r.setCount("num_experts_per_tok", "moe_router_topk")
}

// sparse reads which layers have experts: those not named in mlp_only_layers, every decoder_sparse_step-th of them.
func (r *fields) sparse() {
	layers, step := r.count("num_hidden_layers", 0), r.count("decoder_sparse_step", 1)
	dense, _ := list[int](r, "mlp_only_layers")
	if step < 1 || layers > config.MaxLayers {
		r.fail("decoder_sparse_step", "found %d for %d layers, expected a number from 1 on", step, layers)
		return
	}
	bits := make([]int, layers)
	for i := range bits {
		if !slices.Contains(dense, i) && (i+1)%step == 0 {
			bits[i] = 1
		}
	}
	for _, i := range dense {
		if i < 0 || i >= layers {
			r.fail("mlp_only_layers", "found layer %d, expected 0 to %d", i, layers-1)
		}
	}
	r.layers(bits, "mlp_only_layers")
}

// layers sets which decoder layers have experts.
func (r *fields) layers(bits []int, from string) {
	if slices.Contains(bits, 0) {
		r.set("moe_layer_freq", pattern(bits), from)
	}
}

func readGLM(r *fields) {
	r.rope(0.5)
	r.headDim()
	if r.yes("attention_bias", false) {
		r.set("add_qkv_bias", "true", "attention_bias")
	}
	r.set("qk_layernorm", fmt.Sprint(r.yes("use_qk_norm", false)), "use_qk_norm")
	r.setCount("n_routed_experts", "num_moe_experts")
	r.experts()
	r.sigmoidRouter()
	r.firstDense()
	if n := r.count("n_shared_experts", 0); n > 0 {
		r.set("moe_shared_expert_intermediate_size", fmt.Sprint(n*r.count("moe_intermediate_size", 0)), "n_shared_experts")
	}
	if n := r.count("num_nextn_predict_layers", 0); n > 0 {
		r.set("mtp_num_layers", fmt.Sprint(n), "num_nextn_predict_layers")
	}
}

// sigmoidRouter reads sigmoid scores with a bias on the choice, groups and a factor on the weights.
func (r *fields) sigmoidRouter() {
	r.only("scoring_func", "GLM-4.5 has sigmoid scores", `"sigmoid"`)
	r.only("topk_method", "GLM-4.5 chooses with an expert bias", `"noaux_tc"`)
	r.set("moe_router_score_function", "sigmoid", "model_type")
	r.set("moe_router_enable_expert_bias", "true", "model_type")
	r.set("moe_router_load_balancing_type", "none", "model_type")
	topk := r.count("num_experts_per_tok", 0)
	if norm := r.yes("norm_topk_prob", true); norm != (topk > 1) {
		r.fail("norm_topk_prob", "found %t with num_experts_per_tok %d, expected %t: weights of more than one expert are divided by their sum, "+
			"that of one is its score", norm, topk, topk > 1)
	}
	if x := r.number("routed_scaling_factor", 1); x != 1 {
		r.set("moe_router_topk_scaling_factor", numberText(x), "routed_scaling_factor")
	}
	groups, top := r.count("n_group", 1), r.count("topk_group", 1)
	switch {
	case groups <= 1:
	case topk != 2*top:
		r.fail("topk_group", "found %d with num_experts_per_tok %d, expected %d: groups are ranked by their two best experts, and here by "+
			"num_experts_per_tok / topk_group", top, topk, topk/2)
	default:
		r.set("moe_router_num_groups", fmt.Sprint(groups), "n_group")
		r.set("moe_router_group_topk", fmt.Sprint(top), "topk_group")
	}
}

// firstDense reads the number of dense layers before those with experts.
func (r *fields) firstDense() {
	layers, dense := r.count("num_hidden_layers", 0), r.count("first_k_dense_replace", -1)
	if dense > layers || layers > config.MaxLayers {
		r.fail("first_k_dense_replace", "found %d of %d layers, expected fewer", dense, layers)
		return
	}
	bits := make([]int, layers)
	for i := dense; i < layers; i++ {
		bits[i] = 1
	}
	r.layers(bits, "first_k_dense_replace")
}
