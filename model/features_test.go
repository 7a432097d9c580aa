package model_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/trial"
	"phalanx/nn"
)

// featured is one microbatch of a small model with everything that is added to the plain one: biases, learned
// positions, LayerNorm, dropout, smoothed labels.
func featured(repeated bool) *trial.Job {
	m := config.Model{NumLayers: 1, HiddenSize: 4, NumAttentionHeads: 2, NumQueryGroups: 1, KVChannels: 2, FFNHiddenSize: 3, PaddedVocabSize: 5,
		LayernormEpsilon: 1e-5, InitMethodStd: 0.6, GatedLinearUnit: true, MTPNumLayers: 2, MTPLossScaling: 0.7, MTPUseRepeatedLayer: repeated,
		Normalization: "LayerNorm", LayernormZeroCentered: repeated, QKLayernorm: true,
		PositionEmbedding: "learned_absolute", MaxPositionEmbeddings: 5, AddBiasLinear: true, HiddenDropout: 0.25, AttentionDropout: 0.25, LabelSmoothing: 0.1}
	mb := &nn.Microbatch{B: 2, S: 4, IDs: []int32{0, 1, 2, 3, 4, 4, 1, 0}, Labels: []int32{1, 2, 3, 0, 4, 1, 0, 2}, Positions: []int32{0, 1, 2, 3, 0, 1, 0, 1},
		Docs: nn.Docs{nil, {{Start: 0, Logical: 2, Physical: 2}, {Start: 2, Logical: 2, Physical: 2}}},
		Loss: &nn.LossMask{B: 2, S: 4, Weight: []float32{1, 1, 0, 1, 1, 1, 1, 0}}}
	return &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 6, Batches: [][]*nn.Microbatch{{mb}}}
}

// objective is what the gradients are those of.
func objective(s trial.Step, m config.Model) float64 {
	sum := s.Sums.LMLoss / float64(s.Sums.LMTokens)
	for _, l := range s.Sums.MTPLoss {
		sum += m.MTPLossScaling / float64(m.MTPNumLayers) * l
	}
	return sum
}

// TestGradientsAreFiniteDifferences: of every weight of a whole model, the table of positions and the biases too.
func TestGradientsAreFiniteDifferences(t *testing.T) {
	for _, repeated := range []bool{false, true} {
		j := featured(repeated)
		require.NoError(t, j.Gains())
		run := func() trial.Step {
			out, err := j.Run(trial.Single, inproc.Options{})
			require.NoError(t, err)
			return out.Steps[0]
		}
		grads := run().Grads
		require.Contains(t, grads, "model.embed_positions.weight")
		for _, name := range slices.Sorted(maps.Keys(grads)) {
			for i, want := range grads[name] {
				const eps = 1e-5
				w := j.Weights[name]
				old := w[i]
				w[i] = old + eps
				up := objective(run(), j.Model)
				w[i] = old - eps
				down := objective(run(), j.Model)
				w[i] = old
				require.InDelta(t, (up-down)/(2*eps), want, 1e-7*math.Max(1, math.Abs(want)), "%s[%d]", name, i)
			}
		}
	}
}

// A position that no token has, in the trunk or rolled in a depth, learns nothing; all others do.
func TestPositionsThatNobodyHasLearnNothing(t *testing.T) {
	j := featured(false)
	out, err := j.Run(trial.Single, inproc.Options{})
	require.NoError(t, err)
	g := out.Steps[0].Grads["model.embed_positions.weight"]
	require.Equal(t, make([]float64, 4), g[4*4:])
	for p := range 4 {
		require.NotEqual(t, make([]float64, 4), g[p*4:(p+1)*4], "position %d", p)
	}
}
