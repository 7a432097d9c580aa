package convert_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/convert"
	"phalanx/internal/golden"
)

func run(t *testing.T, from string, o convert.Options) (string, *convert.Report) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "to")
	r, err := convert.Convert(context.Background(), from, to, o)
	require.NoError(t, err)
	_, err = os.Stat(to + ".partial")
	require.ErrorIs(t, err, os.ErrNotExist)
	return to, r
}

// refused wants a conversion to fail with every text, to be one of the user's input, and to leave nothing behind.
func refused(t *testing.T, from string, o convert.Options, texts ...string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "to")
	_, err := convert.Convert(context.Background(), from, to, o)
	var problems convert.Problems
	require.ErrorAs(t, err, &problems)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
	for _, name := range []string{to, to + ".partial"} {
		_, err = os.Stat(name)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

// models are one of each architecture.
func models(dtype string) map[string]*model {
	return map[string]*model{
		"llama": dense("llama", "LlamaForCausalLM", dtype, false, false), "qwen3": dense("qwen3", "Qwen3ForCausalLM", dtype, false, true),
		"qwen2": dense("qwen2", "Qwen2ForCausalLM", dtype, true, false), "qwen3_moe": qwenMoE(dtype), "glm4_moe": glm(dtype, 3, 2),
		"llama biases": biased(dtype),
	}
}

// biased is a Llama whose projections all have a bias, with Llama 3's RoPE.
func biased(dtype string) *model {
	m := dense("llama", "LlamaForCausalLM", dtype, true, false).set("attention_bias", "true").set("mlp_bias", "true").set("rope_scaling",
		`{"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}`)
	for i := range 2 {
		m.add(layer(i)+".self_attn.o_proj.bias", 8)
		m.add(layer(i)+".mlp.gate_proj.bias", 10)
		m.add(layer(i)+".mlp.up_proj.bias", 10)
		m.add(layer(i)+".mlp.down_proj.bias", 8)
	}
	return m
}

// TestRoundTrip: import and export give back every tensor byte for byte, names, types and shapes, for fp32, and for bf16
// through fp32. config.json comes back with every field that matters.
func TestRoundTrip(t *testing.T) {
	for _, dtype := range []string{"F32", "BF16"} {
		for name, m := range models(dtype) {
			t.Run(name+" "+dtype, func(t *testing.T) {
				for files := 1; files <= 3; files += 2 {
					from := m.write(t, files)
					ours, r := run(t, from, convert.Options{})
					require.Equal(t, "import", r.Direction)
					o := convert.Options{ShardBytes: 4000}
					if dtype == "BF16" {
						o.DType = "bf16"
					}
					back, r := run(t, ours, o)
					require.Equal(t, strings.Fields(name)[0], r.Architecture)
					require.Equal(t, tensorsOf(t, from), tensorsOf(t, back))
					sameConfig(t, configOf(t, from), configOf(t, back))
				}
			})
		}
	}
}

// sameConfig compares the fields that say what a model computes.
func sameConfig(t *testing.T, want, got map[string]any) {
	t.Helper()
	for name, value := range want {
		switch name {
		case "pad_token_id", "eos_token_id", "bos_token_id", "max_position_embeddings", "transformers_version", "use_cache", "torch_dtype",
			"max_window_layers", "output_router_logits", "sliding_window":
			continue
		}
		require.Equal(t, value, got[name], name)
	}
}

// TestImportedBits: the values in our checkpoint are those of the source: fp32 bits as they are, bf16 as the upper half
// of fp32, and an expert bias untouched.
func TestImportedBits(t *testing.T) {
	m := glm("BF16", 3, 1)
	ours, r := run(t, m.write(t, 2), convert.Options{})
	got := tensorsOf(t, ours)
	copies := 0
	for name, w := range m.tensors {
		if strings.HasSuffix(name, "3.embed_tokens.weight") || strings.HasSuffix(name, "shared_head.head.weight") {
			require.NotContains(t, got, name)
			copies++
			continue
		}
		require.Equal(t, "F32", got[name].dtype, name)
		require.Equal(t, w.shape, got[name].shape, name)
		want := w.data
		if w.dtype == "BF16" {
			want = nil
			for i := 0; i < len(w.data); i += 2 {
				want = append(want, 0, 0, w.data[i], w.data[i+1])
			}
		}
		require.Equal(t, want, got[name].data, name)
	}
	require.Equal(t, 2, copies)
	require.Len(t, got, len(m.tensors)-2)
	require.Equal(t, []convert.Left{{Name: "model.layers.3.embed_tokens.weight", Why: "equals model.embed_tokens.weight"},
		{Name: "model.layers.3.shared_head.head.weight", Why: "equals lm_head.weight"}}, r.Checked)
	require.Equal(t, 1, r.MTPLayers)
	require.Equal(t, []string{"BF16", "F32"}, r.Read)
	require.Equal(t, []string{"F32"}, r.Wrote)
	c := configOf(t, ours)
	for key, want := range map[string]any{"num_layers": 3.0, "hidden_size": 8.0, "num_query_groups": 1.0, "kv_channels": 12.0, "ffn_hidden_size": 10.0,
		"padded_vocab_size": 32.0, "layernorm_epsilon": 1e-5, "rotary_base": 1e6, "qk_layernorm": true, "add_qkv_bias": true, "rotary_percent": 0.5, "untie_embeddings_and_output_weights": true,
		"num_moe_experts": 3.0, "moe_layer_freq": []any{0.0, 1.0, 1.0}, "moe_ffn_hidden_size": 4.0, "moe_router_topk": 2.0,
		"moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": true, "moe_router_topk_scaling_factor": 2.5,
		"moe_shared_expert_intermediate_size": 4.0, "mtp_num_layers": 1.0} {
		require.Equal(t, want, c[key], key)
	}
}

// TestFusedExperts: tensors that hold all experts of a layer give the same checkpoint as one tensor for each matrix.
func TestFusedExperts(t *testing.T) {
	m := glm("F32", 3, 1)
	want, _ := run(t, m.write(t, 1), convert.Options{})
	m.fuse(3)
	require.Contains(t, m.tensors, "model.layers.3.mlp.experts.gate_up_proj")
	require.NotContains(t, m.tensors, "model.layers.3.mlp.experts.0.up_proj.weight")
	got, _ := run(t, m.write(t, 1), convert.Options{})
	require.Equal(t, tensorsOf(t, want), tensorsOf(t, got))
	w := m.tensors["model.layers.1.mlp.experts.down_proj"]
	w.shape = []int{3, 4, 8}
	m.tensors["model.layers.1.mlp.experts.down_proj"] = w
	refused(t, m.write(t, 1), convert.Options{}, "model.layers.1.mlp.experts.down_proj: found shape [3 4 8], expected [3 8 4]: [experts, outputs, inputs]")
}

// TestIndex: the index names every tensor's file and all bytes, and no shard but that of a tensor larger than the limit
// is larger than it.
func TestIndex(t *testing.T) {
	ours, _ := run(t, glm("F32", 3, 1).write(t, 1), convert.Options{})
	const limit = 1500
	hf, r := run(t, ours, convert.Options{ShardBytes: limit})
	b, err := os.ReadFile(filepath.Join(hf, "model.safetensors.index.json"))
	require.NoError(t, err)
	var index struct {
		Metadata  map[string]int64  `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	require.NoError(t, json.Unmarshal(b, &index))
	total, sizes, files := int64(0), map[string]int64{}, map[string]int{}
	for name, w := range tensorsOf(t, hf) {
		total += int64(len(w.data))
		sizes[index.WeightMap[name]] += int64(len(w.data))
		files[index.WeightMap[name]]++
	}
	require.Equal(t, map[string]int64{"total_size": total}, index.Metadata)
	require.Equal(t, total, r.Bytes)
	require.Len(t, index.WeightMap, r.Tensors)
	require.Greater(t, len(sizes), 3)
	for file, n := range sizes {
		require.True(t, n <= limit || files[file] == 1, "%s has %d bytes in %d tensors", file, n, files[file])
		_, err := os.Stat(filepath.Join(hf, file))
		require.NoError(t, err)
	}
	require.Contains(t, sizes, fmt.Sprintf("model-%05d-of-%05d.safetensors", len(sizes), len(sizes)))
}

// TestCopyThatDiffers: an MTP layer's embedding or head that is not the model's own is refused by name.
func TestCopyThatDiffers(t *testing.T) {
	for _, name := range []string{"model.layers.3.embed_tokens.weight", "model.layers.4.shared_head.head.weight"} {
		m := glm("F32", 3, 2)
		w := m.tensors[name]
		w.data = slices.Clone(w.data)
		w.data[4*100] ^= 1
		m.tensors[name] = w
		refused(t, m.write(t, 1), convert.Options{}, name+": differs from", "element 100 is")
		_, r := run(t, m.write(t, 1), convert.Options{DropMTP: true})
		require.Empty(t, r.Checked)
	}
	m := dense("llama", "LlamaForCausalLM", "F32", false, false) // tied, and the head is there all the same
	m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]
	ours, r := run(t, m.write(t, 1), convert.Options{})
	require.NotContains(t, tensorsOf(t, ours), "lm_head.weight")
	require.Equal(t, "lm_head.weight", r.Checked[0].Name)
	m.add("lm_head.weight", 32, 8)
	refused(t, m.write(t, 1), convert.Options{}, "lm_head.weight: differs from model.embed_tokens.weight")
}

// TestExampleH5: every MTP layer is mapped, not the first alone (NVIDIA-NeMo/Megatron-Bridge#5495, modelscope/ms-swift#9504).
// Four layers with three MTP layers behind them come back bit for bit; without the depths all three prefixes are gone.
func TestExampleH5(t *testing.T) {
	m := glm("BF16", 4, 3)
	from := m.write(t, 2)
	ours, r := run(t, from, convert.Options{})
	require.Equal(t, 3, r.MTPLayers)
	back, _ := run(t, ours, convert.Options{DType: "bf16"})
	require.Equal(t, tensorsOf(t, from), tensorsOf(t, back))

	onImport, r := run(t, from, convert.Options{DropMTP: true})
	require.Zero(t, r.MTPLayers)
	var want, dropped []string
	for name := range m.tensors {
		if strings.HasPrefix(name, "model.layers.4.") || strings.HasPrefix(name, "model.layers.5.") || strings.HasPrefix(name, "model.layers.6.") {
			want = append(want, name)
		}
	}
	for _, l := range r.Dropped {
		require.Equal(t, "--drop-mtp", l.Why)
		dropped = append(dropped, l.Name)
	}
	require.ElementsMatch(t, want, dropped)
	require.EqualValues(t, 0, configOf(t, onImport)["mtp_num_layers"])

	onExport, _ := run(t, ours, convert.Options{DropMTP: true, DType: "bf16"})
	require.EqualValues(t, 0, configOf(t, onExport)["num_nextn_predict_layers"])
	for name := range tensorsOf(t, onExport) {
		delete(m.tensors, name)
	}
	require.Len(t, m.tensors, len(want), "what is not exported is the three layers")

	fewer := glm("BF16", 4, 3).set("num_nextn_predict_layers", "1")
	refused(t, fewer.write(t, 1), convert.Options{}, "model.layers.5.enorm.weight: unexpected", "config.json says 1; --drop-mtp")
	more := glm("BF16", 4, 1).set("num_nextn_predict_layers", "2")
	refused(t, more.write(t, 1), convert.Options{}, "model.layers.5.enorm.weight: missing", "no such MTP layer")
}

// TestExampleH6: an expert bias stays fp32 in a bf16 model (NVIDIA/Megatron-LM#1482, vllm-project/vllm#47797). bf16 would
// make 0.501 the same as 0.5, and a tie goes to the lower expert.
func TestExampleH6(t *testing.T) {
	m := glm("BF16", 2, 0)
	const name = "model.layers.1.mlp.gate.e_score_correction_bias"
	bias := []byte{0, 0, 0, 0x3f, 0x89, 0x41, 0x00, 0x3f, 0, 0, 0, 0} // 0.5, 0.501, 0
	m.tensors[name] = weight{"F32", []int{3}, bias}
	ours, _ := run(t, m.write(t, 1), convert.Options{})
	require.Equal(t, bias, tensorsOf(t, ours)[name].data)
	back, _ := run(t, ours, convert.Options{DType: "bf16"})
	require.Equal(t, m.tensors[name], tensorsOf(t, back)[name])
	onceMore, _ := run(t, m.write(t, 1), convert.Options{DType: "bf16"})
	require.Equal(t, m.tensors[name], tensorsOf(t, onceMore)[name])
}

// TestReferenceCases: the parameters that this package expects of a model are, by name and shape, those of the reference
// cases, which another implementation wrote; their weights become a checkpoint.
func TestReferenceCases(t *testing.T) {
	dir, err := golden.Dir()
	require.NoError(t, err)
	names, err := golden.Cases(dir)
	require.NoError(t, err)
	ran := 0
	for _, name := range names {
		if strings.HasPrefix(name, "hybrid") {
			refused(t, filepath.Join(dir, name+".json"), convert.Options{}, "hybrid_layer_pattern")
			continue
		}
		c, err := golden.Load(filepath.Join(dir, name+".json"))
		require.NoError(t, err)
		ours, r := run(t, c.Path, convert.Options{DType: "fp64"})
		got := tensorsOf(t, ours)
		require.Len(t, got, len(c.ParamNames()))
		require.Equal(t, []string{"F64"}, r.Wrote)
		ran++
		require.NoError(t, c.Close())
	}
	require.Greater(t, ran, 15)
}
