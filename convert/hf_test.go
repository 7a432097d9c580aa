package convert_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
)

// weight is one tensor of a test model: its type and the bits of its elements.
type weight struct {
	dtype string // F32, BF16 or F16
	shape []int
	data  []byte
}

// model is a Hugging Face folder written by hand: fields of config.json in order, and tensors.
type model struct {
	config  [][2]string // name and JSON
	tensors map[string]weight
	rng     *rand.Rand
	dtype   string
}

func newModel(dtype string, config ...[2]string) *model {
	return &model{config: config, tensors: map[string]weight{}, rng: rand.New(rand.NewPCG(7, uint64(len(config)))), dtype: dtype}
}

func f(name string, value any) [2]string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return [2]string{name, string(b)}
}

// add draws a tensor: bits of any finite or infinite number, so that nothing may be lost in between.
func (m *model) add(name string, shape ...int) { m.addAs(m.dtype, name, shape...) }

func (m *model) addAs(dtype, name string, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for range n {
		switch dtype {
		case "F32":
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(m.rng.NormFloat64())))
		case "BF16":
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(m.rng.NormFloat64()))>>16))
		case "F16":
			data = binary.LittleEndian.AppendUint16(data, uint16(m.rng.Uint32N(0x7c00))|uint16(m.rng.Uint32N(2))<<15)
		}
	}
	m.tensors[name] = weight{dtype, shape, data}
}

// set replaces a field of config.json, or adds it; "" takes it out.
func (m *model) set(name, value string) *model {
	i := slices.IndexFunc(m.config, func(f [2]string) bool { return f[0] == name })
	switch {
	case value == "" && i >= 0:
		m.config = slices.Delete(m.config, i, i+1)
	case i >= 0:
		m.config[i][1] = value
	default:
		m.config = append(m.config, [2]string{name, value})
	}
	return m
}

// linear is a weight, and its bias if asked for.
func (m *model) linear(name string, out, in int, bias bool) {
	m.add(name+".weight", out, in)
	if bias {
		m.add(name+".bias", out)
	}
}

func (m *model) swiglu(name string, h, f int) {
	m.linear(name+".gate_proj", f, h, false)
	m.linear(name+".up_proj", f, h, false)
	m.linear(name+".down_proj", h, f, false)
}

// attention has 2 query heads and 1 key head of 12 channels over a width of 8: no two shapes are alike.
func (m *model) attention(name string, bias, norms bool) {
	m.linear(name+".q_proj", 24, 8, bias)
	m.linear(name+".k_proj", 12, 8, bias)
	m.linear(name+".v_proj", 12, 8, bias)
	m.linear(name+".o_proj", 8, 24, false)
	if norms {
		m.add(name+".q_norm.weight", 12)
		m.add(name+".k_norm.weight", 12)
	}
}

func layer(i int) string { return fmt.Sprintf("model.layers.%d", i) }

// norms are the two norms of a layer.
func (m *model) norms(l string) {
	m.add(l+".input_layernorm.weight", 8)
	m.add(l+".post_attention_layernorm.weight", 8)
}

// glm is GLM-4.5's architecture: the first of the layers dense, then mixtures with a shared expert and an expert bias
// in fp32; depths MTP layers behind them, each with its copies of embedding and head.
func glm(dtype string, layers, depths int) *model {
	m := newModel(dtype, f("architectures", []string{"Glm4MoeForCausalLM"}), f("attention_bias", true), f("attention_dropout", 0.0),
		f("pad_token_id", 31), f("eos_token_id", []int{29, 30}), f("head_dim", 12), f("hidden_act", "silu"), f("hidden_size", 8),
		f("partial_rotary_factor", 0.5), f("initializer_range", 0.02), f("intermediate_size", 10), f("max_position_embeddings", 131072),
		f("model_type", "glm4_moe"), f("moe_intermediate_size", 4), f("norm_topk_prob", true), f("num_attention_heads", 2),
		f("n_group", 1), f("topk_group", 1), f("n_routed_experts", 3), f("n_shared_experts", 1), f("routed_scaling_factor", 2.5),
		f("num_experts_per_tok", 2), f("first_k_dense_replace", 1), f("num_hidden_layers", layers), f("num_key_value_heads", 1),
		f("num_nextn_predict_layers", depths), f("rms_norm_eps", 1e-5), f("rope_scaling", nil), f("rope_theta", 1000000),
		f("tie_word_embeddings", false), f("torch_dtype", "bfloat16"), f("transformers_version", "4.54.0"), f("use_cache", true),
		f("use_qk_norm", true), f("vocab_size", 32))
	m.add("model.embed_tokens.weight", 32, 8)
	m.add("lm_head.weight", 32, 8)
	m.add("model.norm.weight", 8)
	for i := range layers + depths {
		l := layer(i)
		m.norms(l)
		m.attention(l+".self_attn", true, true)
		if i == 0 {
			m.swiglu(l+".mlp", 8, 10)
			continue
		}
		m.add(l+".mlp.gate.weight", 3, 8)
		m.addAs("F32", l+".mlp.gate.e_score_correction_bias", 3)
		for e := range 3 {
			m.swiglu(fmt.Sprintf("%s.mlp.experts.%d", l, e), 8, 4)
		}
		m.swiglu(l+".mlp.shared_experts", 8, 4)
	}
	for k := range depths {
		l := layer(layers + k)
		m.add(l+".enorm.weight", 8)
		m.add(l+".hnorm.weight", 8)
		m.add(l+".eh_proj.weight", 8, 16)
		m.add(l+".shared_head.norm.weight", 8)
		m.tensors[l+".embed_tokens.weight"] = m.tensors["model.embed_tokens.weight"]
		m.tensors[l+".shared_head.head.weight"] = m.tensors["lm_head.weight"]
	}
	return m
}

// dense is Llama's, Qwen3's or Qwen2's architecture.
func dense(kind, class, dtype string, bias, norms bool) *model {
	m := newModel(dtype, f("architectures", []string{class}), f("model_type", kind), f("hidden_size", 8), f("num_hidden_layers", 2),
		f("num_attention_heads", 2), f("num_key_value_heads", 1), f("head_dim", 12), f("intermediate_size", 10), f("vocab_size", 32),
		f("rms_norm_eps", 1e-6), f("hidden_act", "silu"), f("rope_theta", 500000.0), f("tie_word_embeddings", true), f("bos_token_id", 1))
	m.add("model.embed_tokens.weight", 32, 8)
	m.add("model.norm.weight", 8)
	for i := range 2 {
		m.norms(layer(i))
		m.attention(layer(i)+".self_attn", bias, norms)
		m.swiglu(layer(i)+".mlp", 8, 10)
	}
	return m
}

// qwenMoE is Qwen3-MoE's architecture: the second of three layers is dense.
func qwenMoE(dtype string) *model {
	m := newModel(dtype, f("architectures", []string{"Qwen3MoeForCausalLM"}), f("attention_bias", false), f("attention_dropout", 0.1),
		f("decoder_sparse_step", 1), f("head_dim", 12), f("hidden_act", "silu"), f("hidden_size", 8), f("initializer_range", 0.02),
		f("intermediate_size", 10), f("max_position_embeddings", 40960), f("max_window_layers", 48), f("mlp_only_layers", []int{1}),
		f("model_type", "qwen3_moe"), f("moe_intermediate_size", 4), f("norm_topk_prob", true), f("num_attention_heads", 2),
		f("num_experts", 3), f("num_experts_per_tok", 2), f("num_hidden_layers", 3), f("num_key_value_heads", 1),
		f("output_router_logits", false), f("rms_norm_eps", 1e-6), f("rope_scaling", nil), f("rope_theta", 1000000.0),
		f("router_aux_loss_coef", 0.001), f("sliding_window", nil), f("tie_word_embeddings", false), f("use_sliding_window", false),
		f("vocab_size", 32))
	m.add("model.embed_tokens.weight", 32, 8)
	m.add("lm_head.weight", 32, 8)
	m.add("model.norm.weight", 8)
	for i := range 3 {
		m.norms(layer(i))
		m.attention(layer(i)+".self_attn", false, true)
		if i == 1 {
			m.swiglu(layer(i)+".mlp", 8, 10)
			continue
		}
		m.add(layer(i)+".mlp.gate.weight", 3, 8)
		for e := range 3 {
			m.swiglu(fmt.Sprintf("%s.mlp.experts.%d", layer(i), e), 8, 4)
		}
	}
	return m
}

// fuse puts the experts of every layer into tensors of all experts, as newer releases do.
func (m *model) fuse(experts int) {
	for name, w := range maps.Clone(m.tensors) {
		var i int
		if n, _ := fmt.Sscanf(name, "model.layers.%d.mlp.experts.0.gate_proj.weight", &i); n != 1 || name != layer(i)+".mlp.experts.0.gate_proj.weight" {
			continue
		}
		p := layer(i) + ".mlp.experts."
		var gateUp, down []byte
		for e := range experts {
			for _, part := range []string{"gate_proj", "up_proj"} {
				n := fmt.Sprintf("%s%d.%s.weight", p, e, part)
				gateUp = append(gateUp, m.tensors[n].data...)
				delete(m.tensors, n)
			}
			n := fmt.Sprintf("%s%d.down_proj.weight", p, e)
			down = append(down, m.tensors[n].data...)
			delete(m.tensors, n)
		}
		f, h := w.shape[0], w.shape[1]
		m.tensors[p+"gate_up_proj"] = weight{w.dtype, []int{experts, 2 * f, h}, gateUp}
		m.tensors[p+"down_proj"] = weight{w.dtype, []int{experts, h, f}, down}
	}
}

// write makes the folder: in one file, or in several with an index, tensors dealt to them in turn.
func (m *model) write(t *testing.T, files int) string {
	t.Helper()
	dir := t.TempDir()
	text := "{"
	for i, f := range m.config {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("\n  %q: %s", f[0], f[1])
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text+"\n}\n"), 0o600))
	parts, where, total := make([][]checkpoint.Info, files), map[string]string{}, 0
	for i, name := range slices.Sorted(maps.Keys(m.tensors)) {
		w := m.tensors[name]
		parts[i%files] = append(parts[i%files], checkpoint.Info{Name: name, DType: w.dtype, Shape: w.shape})
		where[name] = shardName(i%files, files)
		total += len(w.data)
	}
	for i, part := range parts {
		path := filepath.Join(dir, shardName(i, files))
		if files == 1 {
			path = filepath.Join(dir, "model.safetensors")
		}
		require.NoError(t, checkpoint.WriteStream(path, part, nil, func(w io.Writer, name string) error {
			_, err := w.Write(m.tensors[name].data)
			return err
		}))
	}
	if files == 1 {
		return dir
	}
	index, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": where})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o600))
	return dir
}

func shardName(i, n int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n) }

// tensorsOf are all tensors of all safetensors files of a folder.
func tensorsOf(t *testing.T, dir string) map[string]weight {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	out := map[string]weight{}
	for _, name := range names {
		file, err := checkpoint.Open(name)
		require.NoError(t, err)
		for _, n := range file.Names() {
			i, _ := file.Info(n)
			data, err := file.Raw(n)
			require.NoError(t, err)
			require.NotContains(t, out, n)
			out[n] = weight{i.DType, i.Shape, data}
		}
		require.NoError(t, file.Close())
	}
	return out
}

// configOf is config.json of a folder.
func configOf(t *testing.T, dir string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}
