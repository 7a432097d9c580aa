package config

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config/mutation"
)

// probeFile is a small scenario with two depths, rows of two and two microbatches a step.
const probeFile = `model: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, mtp_num_layers: 2}
train: {train_iters: 3, micro_batch_size: 1, global_batch_size: 2}
optimizer: {lr: 0.01}
dataset: {kind: rows, rows: [{valid: 2}]}
`

// probeOf is the probe of a file and its line of the normal form.
func probeOf(t *testing.T, text string, overrides ...string) (Probe, string) {
	t.Helper()
	s := parsed(t, probeFile+text, overrides...)
	requireSame(t, s)
	require.NotEqual(t, "", s.probeText())
	return s.Probe, s.probeText()
}

func TestProbes(t *testing.T) {
	p, text := probeOf(t, "probe: bias_only\n")
	require.Equal(t, Probe{BiasOnly: true}, p)
	require.Equal(t, "bias_only", text)
	require.True(t, p.On())

	one := [][]float64{{2, 20}}
	p, text = probeOf(t, "probe: {token_loss: [[2, 20]]}\n")
	require.Equal(t, Probe{TokenLoss: map[string][][]float64{"lm": one, "mtp_1": one, "mtp_2": one}}, p)
	require.Equal(t, "{token_loss: [[2, 20]]}", text)
	same, sameText := probeOf(t, "probe: {token_loss: {lm: [[2, 20]], mtp_2: [[2, 20]], mtp_1: [[2.0, 2e1]]}}\n")
	require.Equal(t, p, same)
	require.Equal(t, text, sameText)

	p, text = probeOf(t, "probe: {token_loss: {mtp_1: [[2, 1/2], [-1, 1e300]]}}\n")
	require.Equal(t, Probe{TokenLoss: map[string][][]float64{"mtp_1": {{2, 0.5}, {-1, 1e300}}}}, p)
	require.Equal(t, "{token_loss: {mtp_1: [[2, 0.5], [-1, 1e+300]]}}", text)
	require.True(t, p.On())
}

// TestProbeNotFinite: a table may hold what a loss must not be.
func TestProbeNotFinite(t *testing.T) {
	p, text := probeOf(t, "probe: {token_loss: {lm: [[.nan, .inf], [-.INF, +.Inf]]}}\n")
	table := p.TokenLoss["lm"]
	require.True(t, math.IsNaN(table[0][0]))
	require.Equal(t, []float64{math.Inf(1), math.Inf(-1), math.Inf(1)}, []float64{table[0][1], table[1][0], table[1][1]})
	require.Equal(t, "{token_loss: {lm: [[.nan, .inf], [-.inf, .inf]]}}", text)
}

// TestProbeOverrides: a probe is a value, with keys below it, that the command line may set or take away.
func TestProbeOverrides(t *testing.T) {
	p, _ := probeOf(t, "", "probe=bias_only")
	require.True(t, p.BiasOnly)
	p, _ = probeOf(t, "", "probe.token_loss.lm=[[1, 2]]", "probe.token_loss.lm.0.1=3")
	require.Equal(t, map[string][][]float64{"lm": {{1, 3}}}, p.TokenLoss)
	s := parsed(t, probeFile+"probe: bias_only\nmutate: mask_none\n", "probe=null", "mutate=null")
	require.False(t, s.Probe.On())
	require.Nil(t, s.Mutate)
	require.NotContains(t, string(s.Normalised()), "probe")
	require.NotContains(t, string(s.Normalised()), "mutate")
}

// TestProbeOfReference: the length of rows is the case's, so a table need only be one.
func TestProbeOfReference(t *testing.T) {
	text := replaced(t, probeFile, "{kind: rows, rows: [{valid: 2}]}", "{kind: reference, path: c.json}")
	require.Empty(t, problemsOf(text+"probe: {token_loss: [[1, 2, 3], [1, 2, 3]]}\n"))
	require.Equal(t, []string{"f.yaml:5:33: probe.token_loss.1: has length 2, expected seq_length 3, a loss for each position"},
		problemsOf(text+"probe: {token_loss: [[1, 2, 3], [1, 2]]}\n"))
}

// TestProbeCheck: probes and expectations built in Go go through the same rules.
func TestProbeCheck(t *testing.T) {
	s := parsed(t, probeFile)
	s.Probe = Probe{BiasOnly: true, TokenLoss: map[string][][]float64{}}
	require.Equal(t, "probe: has bias_only and token_loss at once; expected one of the two", s.Check().Error())
	s.Probe.BiasOnly = false
	require.Equal(t, "probe.token_loss: has no table; give one for a term, as {lm: [[2, 20], [2, 2]]}", s.Check().Error())
	s.Probe.TokenLoss = map[string][][]float64{"lm": {{1, 2}}, "mtp_3": nil, "mtp_1": nil}
	require.Equal(t, []string{"probe.token_loss.mtp_1: has length 0, expected micro_batch_size 1 or global_batch_size 2, a list for each row",
		"probe.token_loss.mtp_3: found the term mtp_3, expected lm, mtp_1 or mtp_2 (mtp_num_layers 2)"}, printed(s.Check()))
	s.Probe, s.Mutate = Probe{}, []string{"mask_nun"}
	require.Equal(t, "mutate.0: found mask_nun, which is no planted bug; did you mean mask_none?", s.Check().Error())
}

// TestHostileDepths: a number of depths that is refused makes no tables.
func TestHostileDepths(t *testing.T) {
	s, problems := Parse("f.yaml", []byte(probeFile+"probe: {token_loss: [[1, 2]]}\n"), []string{"model.mtp_num_layers=999999999999"})
	require.Len(t, problems, 1)
	require.Len(t, s.Base.Probe.TokenLoss, 1+MaxMTPDepths)
}

// TestMutations: every planted bug is taken, and every planned one is known.
func TestMutations(t *testing.T) {
	for _, name := range mutation.Names() {
		require.Contains(t, listedMutations, name)
		require.Equal(t, []string{name}, parsed(t, smallFile, "mutate="+name).Mutate)
	}
	for _, name := range laterMutations() {
		_, err := mutation.Parse([]string{name})
		require.Error(t, err, name)
	}
	require.Len(t, allMutations(), len(listedMutations))
	require.Len(t, listedMutations, 39)
	require.Equal(t, mutation.Names(), legalNow(specs["mutate"]))
}
