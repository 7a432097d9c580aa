package convert_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
	"phalanx/convert"
)

// TestRefusedFields: every field is mapped, known to change nothing, or refused by name at its line.
func TestRefusedFields(t *testing.T) {
	for _, c := range []struct{ of, field, value, want string }{
		{"glm4_moe", "kv_lora_rank", "512", "found 512: multi-latent attention is not in this version"},
		{"glm4_moe", "q_lora_rank", "1536", "multi-latent attention"},
		{"llama", "quantization_config", `{"quant_method": "fp8"}`, `found {"quant_method":"fp8"}: quantised weights`},
		{"llama", "rope_scaling", `{"rope_type": "yarn", "factor": 4.0}`, `rope_scaling.rope_type: found "yarn", expected "default" or "llama3": only plain RoPE`},
		{"llama", "rope_scaling", `{"type": "linear", "factor": 2.0}`, `rope_scaling.type: found "linear"`},
		{"llama", "rope_scaling", `{"rope_type": "llama3", "factor": 8, "low_freq_factor": 2.0}`, `low_freq_factor: found 2.0, expected 1.0 or 1`},
		{"llama", "rope_scaling", `[1]`, "found [1], expected an object"},
		{"llama", "rope_parameters", `{"rope_type": "default", "rope_theta": 5.0, "beta": 3}`, "rope_parameters.beta: found 3: a field this version does not know"},
		{"llama", "sliding_window", "4096", "sliding-window attention is not in this version"},
		{"qwen3", "use_sliding_window", "true", "found true, expected false: sliding-window"},
		{"qwen3", "layer_types", `["full_attention", "sliding_attention"]`, `found "sliding_attention", expected full_attention`},
		{"qwen3", "attention_bias", "true", "found true, expected false"},
		{"llama", "attention_bias", "true", "found true with mlp_bias false"},
		{"llama", "hidden_act", `"gelu"`, `found "gelu", expected "silu" or "swish": only SwiGLU`},
		{"llama", "final_logit_softcapping", "30.0", "capped logits"},
		{"llama", "attention_multiplier", "0.1", "a field this version does not know, and it may change the model"},
		{"llama", "vocab_sise", "7", "did you mean vocab_size?"},
		{"llama", "auto_map", `{"AutoConfig": "x.Y"}`, "code of its own"},
		{"llama", "num_hidden_layers", `"two"`, `found "two", expected a whole number`},
		{"llama", "num_hidden_layers", "-1", "found -1, expected a whole number from 0 on"},
		{"llama", "num_hidden_layers", "", "is missing, expected a whole number"},
		{"llama", "num_hidden_layers", "0", "model.num_layers"},
		{"llama", "num_key_value_heads", "3", "2 is not divisible by num_query_groups 3"},
		{"llama", "rms_norm_eps", "", "is missing"},
		{"llama", "tie_word_embeddings", "1", "found 1, expected true or false"},
		{"llama", "attention_dropout", "2", "model.attention_dropout"},
		{"llama", "model_type", `"deepseek_v3"`, "multi-latent attention is not in this version"},
		{"llama", "model_type", `"nemotron_h"`, "hybrid (Mamba) models are not in this version"},
		{"llama", "model_type", `"llamma"`, "did you mean llama?"},
		{"llama", "model_type", "", "model_type: is missing, expected one of llama, qwen3"},
		{"llama", "architectures", `["LlamaForSequenceClassification"]`, `expected ["LlamaForCausalLM"] for model_type llama`},
		{"qwen3_moe", "decoder_sparse_step", "0", "expected a number from 1 on"},
		{"qwen3_moe", "mlp_only_layers", "[3]", "found layer 3, expected 0 to 2"},
		{"qwen3_moe", "shared_expert_intermediate_size", "4", "a shared expert is not in Qwen3-MoE"},
		{"qwen3_moe", "head_dim", "", "head_dim: is missing"},
		{"glm4_moe", "norm_topk_prob", "false", "found false with num_experts_per_tok 2, expected true"},
		{"glm4_moe", "n_group", "3", "found 1 with num_experts_per_tok 2"},
		{"glm4_moe", "first_k_dense_replace", "4", "found 4 of 3 layers"},
		{"glm4_moe", "num_experts_per_tok", "4", "model.moe_router_topk: 4 is more than num_moe_experts 3"},
		{"glm4_moe", "scoring_func", `"softmax"`, "GLM-4.5 has sigmoid scores"},
	} {
		m := models("F32")[c.of].set(c.field, c.value)
		if c.field == "n_group" {
			m.set("topk_group", "1").set("num_experts_per_tok", "2").set("n_routed_experts", "3").set("topk_group", "3")
			c.want = "found 3 with num_experts_per_tok 2, expected 1"
		}
		t.Run(c.of+" "+c.field+" "+c.value, func(t *testing.T) { refused(t, m.write(t, 1), convert.Options{}, c.want, "config.json") })
	}
}

// TestPlaces: problems stand at line and column of their field.
func TestPlaces(t *testing.T) {
	m := dense("llama", "LlamaForCausalLM", "F32", false, false).set("hidden_act", `"gelu"`)
	refused(t, m.write(t, 1), convert.Options{}, "config.json:12:3: hidden_act: found")
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                            "config.json:1:1: found the end of the file, expected a JSON object",
		"[]":                          "config.json:1:2: found [, expected a JSON object",
		"{\n  \"a\": 1,\n  \"a\": 2}": "config.json:3:3: a: found the field twice",
		"{\n \"a\": }":                "config.json:2:2: a: found no JSON value",
		"{\"a\": 1} x":                "found more behind the object",
		"{\"a\": 1":                   "expected a closing }",
		"{\"\xff\": 1}":               "not UTF-8",
		"{\n  \"num_layers\": 2.5}":   "num_layers",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
		refused(t, dir, convert.Options{}, want)
	}
}

// TestRefusedTensors: every tensor is a parameter, a copy, or refused by name with the reason.
func TestRefusedTensors(t *testing.T) {
	for _, c := range []struct {
		change func(m *model)
		want   string
	}{
		{func(m *model) { delete(m.tensors, "model.layers.1.mlp.experts.2.up_proj.weight") }, "model.layers.1.mlp.experts.2.up_proj.weight: missing: expected a tensor of shape [4 8]"},
		{func(m *model) { delete(m.tensors, "lm_head.weight") }, "lm_head.weight: missing: expected a tensor of shape [32 8]; tie_word_embeddings is false"},
		{func(m *model) { m.add("model.layers.1.self_attn.kv_b_proj.weight", 2, 2) }, "kv_b_proj.weight: unexpected: F32 [2 2]"},
		{func(m *model) { m.add("model.layers.1.self_attn.kv_b_proj.weight", 2, 2) }, "multi-latent attention is not in this version"},
		{func(m *model) { m.add("model.layers.0.mlp.up_proj.weight_scale_inv", 1, 1) }, "quantised weights are not in this version"},
		{func(m *model) { m.add("model.layers.0.self_attn.o_proj.bias", 8) }, "o_proj.bias: unexpected"},
		{func(m *model) { m.add("model.norm.weight", 9) }, "model.norm.weight: found shape [9], expected [8]"},
		{func(m *model) {
			m.tensors["model.norm.weight"] = weight{"F8_E4M3", []int{8}, make([]byte, 8)}
		}, "model.norm.weight: found elements of F8_E4M3, expected F32, BF16, F16 or F64: quantised"},
		{func(m *model) { m.add("model.layers.3.embed_tokens.weight", 31, 8) }, "model.layers.3.embed_tokens.weight: found shape [31 8], expected that of model.embed_tokens.weight"},
		{func(m *model) { m.add("surprise", 1) }, "surprise: unexpected: F32 [1] is no tensor of the model that config.json describes"},
	} {
		m := glm("F32", 3, 1)
		c.change(m)
		refused(t, m.write(t, 2), convert.Options{}, c.want)
	}
	m := glm("F32", 3, 1)
	m.add("model.layers.0.self_attn.rotary_emb.inv_freq", 3)
	_, r := run(t, m.write(t, 1), convert.Options{})
	require.Equal(t, []convert.Left{{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Why: "follows from rotary_base"}}, r.Dropped)
}

// TestBrokenShards: index and files must agree.
func TestBrokenShards(t *testing.T) {
	const index = "model.safetensors.index.json"
	edit := func(old, new string) string {
		dir := glm("F32", 2, 0).write(t, 2)
		b, err := os.ReadFile(filepath.Join(dir, index))
		require.NoError(t, err)
		require.Contains(t, string(b), old)
		require.NoError(t, os.WriteFile(filepath.Join(dir, index), []byte(strings.Replace(string(b), old, new, 1)), 0o600))
		return dir
	}
	refused(t, edit(`"weight_map"`, `"weights"`), convert.Options{}, "weight_map: is missing")
	refused(t, edit(`"lm_head.weight":"model-00001-of-00002`, `"lm_head.weight":"model-00002-of-00002`), convert.Options{},
		`lm_head.weight: is in model-00001-of-00002.safetensors, and the index says "model-00002-of-00002.safetensors"`)
	refused(t, edit(`"lm_head.weight":"model-00001-of-00002.safetensors",`, ``), convert.Options{}, `lm_head.weight: is in model-00001-of-00002.safetensors, and the index says ""`)
	refused(t, edit(`"lm_head.weight":"model-00001-of-00002`, `"lm_head.weight":"../model-00001-of-00002`), convert.Options{}, "expected a .safetensors file of the same folder")
	refused(t, edit(`"lm_head.weight":"model-00001-of-00002`, `"lm_head.weight":"model-00003-of-00002`), convert.Options{}, "which is not there")
	refused(t, edit(`"lm_head.weight"`, `"lm_tail.weight"`), convert.Options{}, "lm_head.weight")
	_, r := run(t, edit(`"total_size":`, `"total_size":1`), convert.Options{})
	require.Contains(t, r.Notes[0], "metadata.total_size is 1")

	dir := glm("F32", 2, 0).write(t, 2)
	require.NoError(t, os.Truncate(filepath.Join(dir, "model-00002-of-00002.safetensors"), 2000))
	_, err := convert.Convert(context.Background(), dir, filepath.Join(t.TempDir(), "to"), convert.Options{})
	require.ErrorIs(t, err, checkpoint.ErrTruncated)

	bin := glm("F32", 2, 0).write(t, 1)
	require.NoError(t, os.Rename(filepath.Join(bin, "model.safetensors"), filepath.Join(bin, "pytorch_model.bin")))
	refused(t, bin, convert.Options{}, "found pytorch_model.bin, expected model.safetensors or model.safetensors.index.json")
}

// TestTarget: nothing is overwritten, and what cannot be is refused before anything is written.
func TestTarget(t *testing.T) {
	from, ctx := glm("F32", 2, 0).write(t, 1), context.Background()
	to := t.TempDir()
	_, err := convert.Convert(ctx, from, to, convert.Options{}) // empty: taken
	require.NoError(t, err)
	_, err = convert.Convert(ctx, from, to, convert.Options{})
	require.ErrorContains(t, err, "is not empty, expected a folder that is not there yet")
	_, err = convert.Convert(ctx, from, filepath.Join(to, "config.json"), convert.Options{})
	require.ErrorContains(t, err, "cannot be written: not a directory")
	refused(t, from, convert.Options{DType: "fp8"}, `--dtype: found "fp8", expected fp32, bf16 or fp64`)
	refused(t, filepath.Join(from, "nowhere"), convert.Options{}, "cannot be read: no such file or directory")
	refused(t, filepath.Join(from, "nowhere.json"), convert.Options{}, "cannot be read: no such file")
	refused(t, to, convert.Options{Architecture: "gpt3"}, `--architecture: found "gpt3", expected one of llama`)
	refused(t, to, convert.Options{Architecture: "qwen3_moe"}, "not qwen3_moe: add_qkv_bias: found true, expected false; rotary_percent: found 0.5, expected 1")

	refused(t, filepath.Join(from, "model.safetensors"), convert.Options{}, "is a file, expected a folder of Hugging Face")
	_, err = convert.Convert(ctx, filepath.Join(from, "config.json"), filepath.Join(t.TempDir(), "x"), convert.Options{})
	require.NoError(t, err)

	killed := filepath.Join(t.TempDir(), "to")
	require.NoError(t, os.Mkdir(killed+".partial", 0o755))
	require.NoError(t, os.WriteFile(killed+".partial/model.safetensors.partial", nil, 0o600))
	_, err = convert.Convert(ctx, from, killed, convert.Options{})
	require.NoError(t, err, "what a killed conversion has left is replaced")
	require.NoError(t, os.Mkdir(killed+"2.partial", 0o755))
	require.NoError(t, os.WriteFile(killed+"2.partial/diary.txt", nil, 0o600))
	_, err = convert.Convert(ctx, from, killed+"2", convert.Options{})
	require.ErrorContains(t, err, "is in the way and has diary.txt in it")

	stopped, stop := context.WithCancel(ctx)
	stop()
	aside := filepath.Join(t.TempDir(), "to")
	_, err = convert.Convert(stopped, from, aside, convert.Options{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = os.Stat(aside + ".partial")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, r := run(t, from, convert.Options{})
	require.Len(t, r.Files, 3)
	dry := filepath.Join(t.TempDir(), "dry")
	r, err = convert.Convert(ctx, from, dry, convert.Options{DryRun: true})
	require.NoError(t, err)
	require.Positive(t, r.Bytes)
	_, err = os.Stat(dry)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestNoArchitecture: a model that no architecture is, is refused with what each of them lacks.
func TestNoArchitecture(t *testing.T) {
	c, err := filepath.Abs("../internal/golden/cases/moe-deepseek.json")
	require.NoError(t, err)
	ours, _ := run(t, c, convert.Options{})
	refused(t, ours, convert.Options{}, "not glm4_moe: moe_router_group_topk: found 2 with moe_router_topk 2, expected half of it",
		"not llama: num_moe_experts: found 8, expected dense layers")
}

// TestBiasOfZero: GLM-4.5's router has an expert bias; a model without one gets zeros, which choose the same experts.
func TestBiasOfZero(t *testing.T) {
	ours, _ := run(t, glm("F32", 3, 1).write(t, 1), convert.Options{})
	path := filepath.Join(ours, "config.json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	text := strings.Replace(string(b), `"moe_router_enable_expert_bias": true`, `"moe_router_enable_expert_bias": false`, 1)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	refused(t, ours, convert.Options{}, "e_score_correction_bias: unexpected")
	f, err := checkpoint.Open(filepath.Join(ours, "model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	var kept []checkpoint.Tensor
	for name, w := range tensorsOf(t, ours) {
		if !strings.HasSuffix(name, "bias") || strings.Contains(name, "_proj") {
			kept = append(kept, checkpoint.Tensor{Name: name, DType: 1, Shape: w.shape, Data: w.data})
		}
	}
	require.NoError(t, checkpoint.Write(filepath.Join(ours, "model.safetensors"), kept, nil))
	hf, r := run(t, ours, convert.Options{DType: "bf16"})
	zero := tensorsOf(t, hf)["model.layers.1.mlp.gate.e_score_correction_bias"]
	require.Equal(t, weight{"F32", []int{3}, make([]byte, 12)}, zero)
	require.Len(t, r.Added, 2+3, "two copies for the MTP layer, a bias for each of two layers and the MTP layer")
}
