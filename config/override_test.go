package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverrideProblems: every problem of an override stands at the override, whole.
func TestOverrideProblems(t *testing.T) {
	long := strings.Repeat("a.", 70) + "b=1"
	for _, c := range []struct{ override, want string }{
		{"x", "found no =; expected section.key=value"},
		{"=3", `"": found a dotted key with an empty part; expected section.key, as in train.train_iters`},
		{"model..x=1", "model..x: found a dotted key with an empty part; expected section.key, as in train.train_iters"},
		{"model.num_layers= ", `model.num_layers: found no value after =; expected section.key=value (null for nothing, "" for an empty text)`},
		{"model={num_layers: 2}", "model: sets a whole section; expected one of its keys, as in model.num_layers"},
		{"model.num_layers=2.5", "model.num_layers: found 2.5, expected a whole number"},
		{"model.num_layers=0", "model.num_layers: found 0, expected a whole number from 1 to 1024"},
		{"model.num_layer=3", "model.num_layer: unknown key; did you mean model.num_layers?"},
		{"model.moe_grouped_gemm=true", "model.moe_grouped_gemm: Megatron has model.moe_grouped_gemm; Phalanx does not support it yet"},
		{"recovery.heartbeat_ms=1", "recovery.heartbeat_ms: found 1, expected a whole number from 10 to 10000"},
		{"faults.0.action=kill", "faults.0: says nothing that fails; expected at: {rank, hook} and an action, during and link with a share of messages, or server with at.step and an action"},
		{"model.num_layers.x=3", "model.num_layers.x: x has no keys: the value above it is 2"},
		{"dataset.rows.3={valid: 1}", "dataset.rows.3: found index 3 in a list of 2; expected 0 to 2 (2 appends)"},
		{"dataset.rows.x=3", "dataset.rows.x: found x for an entry of a list; expected a number from 0 to 2"},
		{"dataset.rows.-1.valid=2", "dataset.rows.-1.valid: found -1 for an entry of a list; expected a number from 0 to 2"},
		{"dataset.rows.0.valid=17", "dataset.rows.0.valid: the row has 17 tokens, expected at most seq_length 16"},
		{"dataset.rows=[{valid: 17}]", "dataset.rows.0.valid: the row has 17 tokens, expected at most seq_length 16"},
		{"dataset.rows.0.tokens.0=1", "dataset.rows.0.tokens: is given beside valid; give valid (a length, tokens are synthetic) or tokens"},
		{"model.num_layers=[1", "model.num_layers: not YAML: did not find expected ',' or ']' while parsing a flow sequence that starts at line 1"},
		{"rng.seed=!!int 3", "rng.seed: found the tag !!int; a scenario has no tags, write the plain value"},
		{"expect.0.equals={a: 1, a: 2}", "expect.0.equals.a: duplicate key; it is already set, remove one"},
		{"model.tensor_model_parallel_size=4", ""},
	} {
		t.Run(c.override, func(t *testing.T) {
			got := problemsOf(goodFile, c.override)
			if c.want == "" {
				require.Equal(t, []string{"f.yaml:5:3: model.num_query_groups: num_query_groups 2 is not divisible by " +
					"tensor_model_parallel_size 4; nearest legal tensor_model_parallel_size: 2"}, got)
				return
			}
			require.NotEmpty(t, got)
			require.Equal(t, `override "`+c.override+`": `+c.want, got[0])
		})
	}
	got := problemsOf(goodFile, long)
	require.Len(t, got, 1)
	require.True(t, strings.HasSuffix(got[0], "found 71 dotted parts; no key has more than 64"), got[0])
	require.Less(t, len(got[0]), 300)
}

// TestNullUnsets: null as an override, in a variant too, is as if nobody had set the key; a key that must be there is then
// missing, and a key that does not exist is no key.
func TestNullUnsets(t *testing.T) {
	f, problems := Parse("f.yaml", []byte(goodFile), []string{"dataset.seq_length=null", "name=null", "logger.mask_report=null"})
	require.Empty(t, problems)
	require.Equal(t, 16, f.Base.Dataset.SeqLength, "the longest row")
	require.Equal(t, "f", f.Base.Name)
	require.Equal(t, []string{"f.yaml:11:1: train.train_iters: required key is missing; expected a whole number from 1 to 2147483647"},
		problemsOf(goodFile, "train.train_iters=null"))
	require.Contains(t, problemsOf(goodFile, "model.num_layer=null")[0], "unknown key; did you mean model.num_layers?")

	variants := edited(t, "seq_length: 16", "seq_length: 16\n  min_valid: 3", "kind: rows", "kind: synthetic") + `
variants:
  - {name: synthetic, set: {dataset.rows: null, expect: null}}
  - {name: rows, set: {dataset.kind: rows, dataset.min_valid: null, dataset.seq_length: null}}
`
	f, problems = Parse("f.yaml", []byte(variants), nil)
	require.Empty(t, problems)
	require.Nil(t, f.Runs()[0].Dataset.Rows)
	require.Empty(t, f.Runs()[0].Expect)
	require.Equal(t, 16, f.Runs()[1].Dataset.SeqLength)
}

func TestOverridesApply(t *testing.T) {
	f, problems := Parse("f.yaml", []byte(goodFile), []string{
		"dataset.rows.0.valid=3",                     // changes an entry
		"dataset.rows.2={valid: 5}",                  // appends one
		"dataset.rows.3.valid=6",                     // appends by its key
		"logger.mask_report=true",                    // creates a section
		" train.dtype = fp64",                        // spaces around key and value
		"about=a=b",                                  // = in the value
		"model.moe_layer_freq=[0, 1]",                // YAML in the value
		"train.train_iters=5", "train.train_iters=6", // the last wins
		"expect.0={quantity: q, equals: -13/48}",
	})
	require.Empty(t, problems.Err())
	s := f.Base
	var valid []int
	for _, r := range s.Dataset.Rows {
		valid = append(valid, *r.Valid)
	}
	require.Equal(t, []int{3, 11, 5, 6}, valid)
	require.True(t, s.Logger.MaskReport)
	require.Equal(t, "fp64", s.Train.DType)
	require.Equal(t, "a=b", s.About)
	require.Equal(t, LayerFreq{Pattern: []int{0, 1}}, s.Model.MoELayerFreq)
	require.Equal(t, 6, s.Train.TrainIters)
	require.Equal(t, []float64{-13. / 48}, s.Expect[0].Equals.Data)
}

// TestOverrideReplacesBadValue: a value of the file that an override replaces is not a problem.
func TestOverrideReplacesBadValue(t *testing.T) {
	bad := edited(t, "num_layers: 2\n", "num_layers: two\n")
	require.Len(t, problemsOf(bad), 1)
	require.Empty(t, problemsOf(bad, "model.num_layers=2"))
}

// TestOverrideLeavesAliasAlone: an override of one use of an alias does not change the other.
func TestOverrideLeavesAliasAlone(t *testing.T) {
	text := edited(t, "    - {valid: 16}\n    - {valid: 11}\n", "    - &r {valid: 4}\n    - *r\n")
	f, problems := Parse("f.yaml", []byte(text), []string{"dataset.rows.1.valid=7"})
	require.Empty(t, problems)
	require.Equal(t, 4, *f.Base.Dataset.Rows[0].Valid)
	require.Equal(t, 7, *f.Base.Dataset.Rows[1].Valid)
}
