package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// caseFile is what FromReference reads of a reference case.
type caseFile struct {
	Config    map[string]any `json:"config"`
	Optimizer map[string]any `json:"optimizer"`
}

func readCase(t *testing.T, path string) caseFile {
	t.Helper()
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	var c caseFile
	require.NoError(t, json.Unmarshal(src, &c))
	return c
}

const casesDir = "../internal/golden/cases"

// refusedCases are the cases this version cannot take, with the keys that say why. All others must be taken.
// moe-embeddings and moe-packed* differ in their batches, not here.
var refusedCases = map[string][]string{
	"hybrid":            {"model.hybrid_layer_pattern", "model.mamba_head_dim", "model.mamba_num_groups", "model.mamba_num_heads", "model.mamba_state_dim"},
	"hybrid-embeddings": {"model.hybrid_layer_pattern", "model.mamba_head_dim", "model.mamba_num_groups", "model.mamba_num_heads", "model.mamba_state_dim"},
	"hybrid-packed":     {"model.hybrid_layer_pattern", "model.mamba_head_dim", "model.mamba_num_groups", "model.mamba_num_heads", "model.mamba_state_dim"},
}

// takenCases are cases that this version must take, whatever the folder holds.
var takenCases = []string{"dense", "dense-tied", "dense-mtp", "dense-mtp-nolossmask", "moe-mtp", "moe-mtp-nomask", "moe-mtp-allpad", "moe-pertoken",
	"moe-pertoken-dp2", "moe-repeated", "sft-answer-only", "text-curve", "tied-mtp", "moe-embeddings", "moe-packed", "moe-packed-padded",
	"moe-deepseek", "moe-deepseek-16", "moe-repeated-deepseek", "moe-seq-aux", "moe-capacity", "moe-global-aux-dp2"}

// TestReferenceCases: every case in the folder is taken, or refused by the keys that it must be refused by.
func TestReferenceCases(t *testing.T) {
	files, err := filepath.Glob(casesDir + "/*.json")
	require.NoError(t, err)
	refused, taken := 0, []string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			c := readCase(t, file)
			m, o, problems := FromReference(c.Config, c.Optimizer)
			want := refusedCases[name]
			if want == nil {
				require.NoError(t, problems.Err())
				requireMapped(t, c, m, o)
				taken = append(taken, name)
				return
			}
			refused++
			var keys []string
			for _, p := range problems {
				keys = append(keys, p.Key)
				require.Regexp(t, `Megatron has .*; Phalanx does not support it yet|which is not in this version; legal now: `, p.Message)
			}
			require.ElementsMatch(t, want, keys)
		})
	}
	require.Equal(t, len(refusedCases), refused)
	require.Subset(t, taken, takenCases)
}

// requireMapped compares each key of a case with the field that carries it, by way of JSON.
func requireMapped(t *testing.T, c caseFile, m Model, o Optimizer) {
	t.Helper()
	s := Scenario{Model: m, Optimizer: o}
	for section, object := range map[string]map[string]any{"model": c.Config, "optimizer": c.Optimizer} {
		require.NotEmpty(t, object)
		for key, want := range object {
			if want == nil {
				want = 0.0
			}
			got := lookup(&s, section+"."+key)
			switch x := got.(type) {
			case int:
				got = float64(x)
			case Words:
				require.Len(t, x, 1)
				got = x[0]
			case Numbers:
				require.Len(t, x, 1)
				got = x[0]
			}
			require.Equal(t, want, got, key)
		}
	}
	require.Equal(t, []int{1, 1, 1, 1, 1}, []int{m.TensorParallel, m.ContextParallel, m.PipelineParallel, m.ExpertParallel, m.ExpertTensorParallel})
	require.Equal(t, "adam", o.Optimizer)
}

// TestReferenceRules: a case goes through the rules of a scenario, and what it lacks is said.
func TestReferenceRules(t *testing.T) {
	base := func() map[string]any {
		return map[string]any{"num_layers": 2.0, "hidden_size": 16.0, "num_attention_heads": 4.0, "padded_vocab_size": 32.0}
	}
	lr := map[string]any{"lr": 0.1}
	m, o, problems := FromReference(base(), lr)
	require.NoError(t, problems.Err())
	require.Equal(t, 64, m.FFNHiddenSize)
	require.Equal(t, 0.999, o.AdamBeta2)

	for _, c := range []struct {
		key  string
		v    any
		want string
	}{
		{"num_layers", 2.5, "model.num_layers: found 2.5, expected a whole number"},
		{"num_layers", json.Number("3"), ""},
		{"num_layers", 3, ""},
		{"num_layers", nil, "model.num_layers: found nothing, expected a whole number; give a value or remove the key"},
		{"qk_layernorm", true, ""},
		{"qk_layernorm", 1.0, "model.qk_layernorm: found 1, expected true or false; write true"},
		{"moe_layer_freq", []any{1.0, 0.0}, ""},
		{"moe_layer_freq", []any{1.0}, "model.moe_layer_freq: has length 1, expected num_layers 2, one entry for each layer"},
		{"moe_router_load_balancing_type", []any{"aux_loss", "seq_aux_loss"}, ""},
		{"moe_router_load_balancing_type", []any{}, "model.moe_router_load_balancing_type: found an empty list, expected text or list of texts"},
		{"moe_aux_loss_coeff", []any{0.5}, ""},
		{"moe_expert_capacity_factor", -1.0, ""},
		{"moe_expert_capacity_factor", nil, ""},
		{"moe_expert_capacity_factor", -0.5, "model.moe_expert_capacity_factor: found -0.5, expected a number above 0"},
		{"num_query_groups", 3.0, "model.num_attention_heads: 4 is not divisible by num_query_groups 3; nearest legal num_query_groups: 2"},
		{"padded_vocab_size", 0.0, "model.padded_vocab_size: found 0, expected a whole number from 2 to 1048576"},
		{"zebra", map[string]any{"a": 1}, "model.zebra: unknown key; expected one of " + cut(strings.Join(sectionKeys("model"), ", "), 480)},
		{"num_moe_experts", struct{}{}, "model.num_moe_experts: found \"{} (struct {})\" (text), expected a whole number"},
	} {
		config := base()
		config[c.key] = c.v
		_, _, problems := FromReference(config, lr)
		require.Equal(t, c.want, problems.Error(), c.key)
	}
	_, _, problems = FromReference(map[string]any{}, nil)
	require.Equal(t, []string{"model.hidden_size: required key is missing; expected a whole number from 1 to 65536",
		"model.num_attention_heads: required key is missing; expected a whole number from 1 to 1024",
		"model.num_layers: required key is missing; expected a whole number from 1 to 1024",
		"model.padded_vocab_size: required key is missing; expected a whole number from 2 to 1048576",
		"optimizer.lr: required key is missing; expected a number of at least 0"}, printed(problems))
}
