package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse: no text makes Parse panic; problems are in order, on one line and of bounded number; a text without problems
// has runs whose normal form means the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		goodFile, smallFile, goodFile + variantsText, "", "# c\n", "---\n", "- 1\n", "a: 1\n---\nb: 2\n", "a: &x [*x]\n", "a: &a [1,1]\nb: [*a,*a]\n",
		"a:\n\tb: 1\n", "a: \x00", "a: \xff", "model: 3\n", "? [a]\n: 1\n", "<<: {a: 1}\n", "a: !!int 3\n", "%YAML 1.3\n---\n", "\xef\xbb\xbfmodel:\n",
		"model: {num_layers: 99999999999999999999}\n", "expect: [{equals: [[1/2, -0], .inf]}]\n", "model: {moe_layer_freq: ([0]*1+[1]*3)*2}\n",
		"variants: [{name: a, set: {expect.0.equals: [1, {a: b}], model.x.y: 1}}]\n", "\"\": 1\n\"a.b\": 2\n", "dataset: {kind: rows, rows: [~, {valid: -1}]}\n",
		"mutate: mask_none\nprobe: {token_loss: {lm: [[.nan, 1/2], []], \"\": [[1]]}}\nexpect: [{detected: true, first: a}, {same_as: single_rank, tolerance: 0}]\n",
	} {
		f.Add(text, "model.num_layers=3")
	}
	f.Add(probeFile+"mutate: [mask_none, shard_roll]\nprobe: {token_loss: {lm: [[.nan, 1], [-.inf, -0]], mtp_2: [[1/3, .inf]]}}\n", "expect=[{detected: true, first: a}]")
	f.Add(probeFile+"probe: {token_loss: [[.nan, 1]]}\n", "expect=[{same_as: r.json, tolerance: 0}]")
	for _, o := range []string{"model.moe_router_load_balancing_type=[aux_loss, none, aux_loss]", "model.moe_aux_loss_coeff=[]", "model.moe_expert_capacity_factor=-1",
		"model.expert_model_parallel_size=-9223372036854775808", "model.moe_router_num_groups=9223372036854775807", "model.moe_router_group_topk=2"} {
		f.Add(strings.Replace(goodFile, "  mtp_num", "  moe_router_num_groups: 2\n  expert_tensor_parallel_size: 4\n  moe_aux_loss_coeff: [1, 2]\n  mtp_num", 1), o)
	}
	f.Add(goodFile+"mutate: []\nprobe: bias_only\n", "probe.token_loss=[[1]]")
	src, err := os.ReadFile(filepath.Join("testdata", "golden", "fifteen.yaml"))
	require.NoError(f, err)
	f.Add(string(src), "dataset.rows.0.valid=4")
	for _, o := range []string{"", "=", "x", "a..b=1", "a.0.1.2=[", "variants.0.set.model\\.x=1", "dataset.rows=[{valid: 1}]", "expect.0={}", "name=\"\\0\"", "model=null"} {
		f.Add(goodFile, o)
	}
	f.Fuzz(func(t *testing.T, text, override string) {
		file, problems := Parse("f.yaml", []byte(text), []string{override})
		require.NotNil(t, file)
		require.LessOrEqual(t, len(problems), MaxProblems+1)
		for _, p := range problems {
			require.NotEmpty(t, p.Message)
			require.NotContains(t, p.String(), "\n")
			require.Positive(t, p.Line*p.Column+boolInt(p.File != "f.yaml" || p.Line == 0))
		}
		lines := make([]int, len(problems))
		for i, p := range problems {
			lines[i] = p.Line
		}
		if len(lines) > MaxProblems {
			lines = lines[:MaxProblems]
		}
		require.True(t, slices.IsSorted(lines))
		if len(problems) == 0 {
			require.NotEmpty(t, file.Runs())
			for _, s := range file.Runs() {
				requireSame(t, s)
			}
		}
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
