package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const variantsText = `
variants:
  - {name: plain}
  - name: tp2
    set:
      model.tensor_model_parallel_size: 2
      dataset.rows.1.valid: 4
      expect.0: {quantity: q, equals: 1}
      model.moe_layer_freq: [0, 1]
      model.moe_z_loss_coeff: null
`

func TestVariants(t *testing.T) {
	f, problems := Parse("dir/v.yaml", []byte("name: v\n"+goodFile+variantsText), nil)
	require.Empty(t, problems)
	require.Equal(t, "v", f.Base.Name)
	require.Equal(t, []Variant{{Name: "plain"}, {Name: "tp2", Set: map[string]string{
		"model.tensor_model_parallel_size": "2", "dataset.rows.1.valid": "4", "expect.0": "{quantity: q, equals: 1}",
		"model.moe_layer_freq": "[0, 1]", "model.moe_z_loss_coeff": "null"}}}, f.Base.Variants)

	runs := f.Runs()
	require.Len(t, runs, 2)
	plain, tp2 := runs[0], runs[1]
	require.Equal(t, "v/plain", plain.Name)
	require.Equal(t, 1, plain.Model.TensorParallel)
	require.Equal(t, 11, *plain.Dataset.Rows[1].Valid)
	require.True(t, plain.Expect[0].Finite)
	require.Equal(t, "v/tp2", tp2.Name)
	require.Equal(t, "dir", tp2.Dir)
	require.Equal(t, 2, tp2.Model.TensorParallel)
	require.Equal(t, 2, tp2.Dist.WorldSize)
	require.Equal(t, 4, *tp2.Dataset.Rows[1].Valid)
	require.Equal(t, &Values{Scalar: true, Data: []float64{1}}, tp2.Expect[0].Equals)
	require.False(t, tp2.Expect[0].Finite)
	require.Equal(t, []int{0, 1}, tp2.Model.MoELayerFreq.Pattern)
	require.Nil(t, tp2.Variants)
	require.Len(t, tp2.Notes, 1)
	require.Empty(t, plain.Notes)
}

// TestOverridesWinOverVariants: what the user types is the last word.
func TestOverridesWinOverVariants(t *testing.T) {
	f, problems := Parse("v.yaml", []byte(goodFile+variantsText), []string{"dataset.rows.1.valid=9", "model.tensor_model_parallel_size=1"})
	require.Empty(t, problems)
	for _, s := range f.Runs() {
		require.Equal(t, 9, *s.Dataset.Rows[1].Valid)
		require.Equal(t, 1, s.Model.TensorParallel)
	}
	f, problems = Parse("v.yaml", []byte(goodFile+variantsText), []string{"variants=[]"})
	require.Empty(t, problems)
	require.Len(t, f.Runs(), 1)
	require.Equal(t, "v", f.Runs()[0].Name)
}

// TestVariantsCompleteTheFile: the file alone need not be runnable when it has variants.
func TestVariantsCompleteTheFile(t *testing.T) {
	text := edited(t, "  train_iters: 3\n", "", "expect:\n  - {quantity: lm loss, finite: true}\n", "") +
		"variants: [{name: a, set: {train.train_iters: 1}}, {name: b, set: {train.train_iters: 2}}]\n"
	f, problems := Parse("v.yaml", []byte(text), nil)
	require.Empty(t, problems)
	require.Equal(t, 1, f.Runs()[0].Train.TrainIters)
	require.Equal(t, 2, f.Runs()[1].Train.TrainIters)
}

func TestVariantProblems(t *testing.T) {
	for _, c := range []struct {
		name, variants string
		want           []string
	}{
		{"twice the same name", "[{name: a}, {name: a}]", []string{"f.yaml:24:24: variants.1.name: a is also the name of variant 0; names are unique"}},
		{"slash", "[{name: a/b}]", []string{"f.yaml:24:13: variants.0.name: found a/b, expected a name without a slash: the run is named file/variant"}},
		{"no name", "[{set: {}}]", []string{"f.yaml:24:12: variants.0.name: required key is missing; expected text"}},
		{"set is a list", "[{name: a, set: [1]}]", []string{"f.yaml:24:27: variants.0.set: found a list, expected dotted keys with values, as in {model.num_layers: 2}"}},
		{"sets the name", "[{name: a, set: {name: b}}]", []string{"f.yaml:24:28: name: is not for a variant to set; a run is named file/variant, and variants do not nest"}},
		{"sets a section", "[{name: a, set: {model: {num_layers: 3}}}]", []string{"f.yaml:24:28: model: sets a whole section; expected one of its keys, as in model.num_layers"}},
		{"unknown key", "[{name: a, set: {model.num_layer: 3}}, {name: b}]", []string{"f.yaml:24:28: model.num_layer: unknown key; did you mean model.num_layers? (in variant a)"}},
		{"wrong type", "[{name: a, set: {model.num_layers: 2.5}}, {name: b}]", []string{"f.yaml:24:46: model.num_layers: found 2.5, expected a whole number (in variant a)"}},
		{"beyond a list", "[{name: a, set: {dataset.rows.9.valid: 3}}]", []string{"f.yaml:24:28: dataset.rows.9.valid: found index 9 in a list of 2; expected 0 to 2 (2 appends)"}},
		{"rule broken by two of three", "[{name: a}, {name: b, set: {model.tensor_model_parallel_size: 4}}, {name: c, set: {model.tensor_model_parallel_size: 4}}]",
			[]string{"f.yaml:5:3: model.num_query_groups: num_query_groups 2 is not divisible by tensor_model_parallel_size 4; nearest legal tensor_model_parallel_size: 2 (in variant b, c)"}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, problemsOf(goodFile+"variants: "+c.variants+"\n")) })
	}
	shared := edited(t, "num_query_groups: 2", "num_query_groups: 3") + "variants: [{name: a}, {name: b}]\n"
	require.Equal(t, []string{"f.yaml:4:3: model.num_attention_heads: 4 is not divisible by num_query_groups 3; nearest legal num_query_groups: 2"}, problemsOf(shared))

	many := goodFile + "variants: [" + strings.Repeat("{name: a}, ", MaxVariants) + "{name: a}]\n"
	require.Contains(t, problemsOf(many), "f.yaml:24:1: variants: has 257 entries, expected at most 256")
}

// TestRunProblems: a run's own problems, so that one that expects to be refused can look for the text.
func TestRunProblems(t *testing.T) {
	text := edited(t, "{quantity: lm loss, finite: true}", "{refused: is not divisible}") +
		"variants: [{name: good}, {name: bad, set: {model.tensor_model_parallel_size: 4}}]\n"
	f, problems := Parse("f.yaml", []byte(text), nil)
	require.Len(t, problems, 1)
	require.Empty(t, f.RunProblems(0))
	require.Len(t, f.RunProblems(1), 1)
	want, ok := f.Runs()[1].ExpectsRefusal()
	require.True(t, ok)
	require.Contains(t, f.RunProblems(1).Error(), want)

	f, problems = Parse("f.yaml", []byte(goodFile), []string{"model.num_layers=0"})
	require.Equal(t, problems, f.RunProblems(0))
	_, ok = f.Runs()[0].ExpectsRefusal()
	require.False(t, ok)
}

// TestManyProblems: one file with fifteen different mistakes, each reported once, in order.
func TestManyProblems(t *testing.T) {
	dir := filepath.Join("testdata", "golden")
	src, err := os.ReadFile(filepath.Join(dir, "fifteen.yaml"))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(dir, "fifteen.txt"))
	require.NoError(t, err)
	_, problems := Parse("fifteen.yaml", src, nil)
	require.Equal(t, string(want), problems.Error()+"\n")
	require.Len(t, problems, 15)
}

// TestProblemsAreCapped: a report stops at MaxProblems and says how many more there are.
func TestProblemsAreCapped(t *testing.T) {
	text := edited(t, "{valid: 11}", "{tokens: ["+strings.Repeat("99, ", 999)+"99]}", "seq_length: 16", "seq_length: 1000")
	got := problemsOf(text)
	require.Len(t, got, MaxProblems+1)
	require.Equal(t, "f.yaml: … and 500 more problems", got[MaxProblems])
}

func TestProblemsAreAnError(t *testing.T) {
	require.NoError(t, Problems{}.Err())
	ps := Problems{{File: "a.yaml", Line: 1, Column: 2, Key: "k", Message: "m"}, {Message: "n"}}
	require.EqualError(t, ps.Err(), "a.yaml:1:2: k: m\nn")
}

func TestNames(t *testing.T) {
	for file, want := range map[string]string{"a/b.yaml": "b", "b": "b", "a.b.yaml": "a.b", "": "scenario", "..": "scenario", ".yaml": ".yaml"} {
		require.Equal(t, want, nameOf(file), file)
	}
	f, problems := Parse("scenarios/tiny.yaml", []byte("name: a/b c=1,d\n"+goodFile), nil)
	require.Empty(t, problems)
	require.Equal(t, "a/b c=1,d", f.Base.Name)
	require.Equal(t, "scenarios", f.Base.Dir)
}
