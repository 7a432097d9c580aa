package model_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/model"
)

// placement is a layout of four decoder layers and two depths over a pipeline.
type placement struct {
	pp     int
	stages string
	spread bool // depths on several stages
}

var placements = []placement{
	{2, "Ett|ttmmL", false}, {2, "E|ttttmmL", false}, {2, "Etttt|mmL", false}, {3, "Ett|tt|mmL", false}, {3, "Etttt|mm|L", false},
	{4, "Et|tt|tmm|L", false}, {4, "E|tttt|mm|L", false}, {4, "Etttt|m|m|L", true}, {4, "Ettt|tm|m|L", true}, {3, "Etttt|m|mL", true},
	{2, "Et|t|t|tmmL", false}, {2, "E|tt|tt|mmL", false}, {2, "Et|t|t|t||mmL", false}, {3, "E|t|t|t|tmm|L", false}, {3, "E|tt|tt|m|m|L", true},
}

// microbatches is a number that every placement can take: interleaving takes as many at a time as there are stages.
const microbatches = 6

// sameBits compares norms, gradients and weights to the bit. Logged auxiliary losses are added stage by stage.
func sameBits(got, want *trial.Outcome) error {
	errs := []error{trial.NearAll("weight", got.Weights, want.Weights, 0)}
	for i := range want.Steps {
		a, b := &got.Steps[i], &want.Steps[i]
		errs = append(errs, a.SameFigures(b, "", 1e-12), trial.Near("norm", []float64{a.GradNorm}, []float64{b.GradNorm}, 0), trial.NearAll("gradient", a.Grads, b.Grads, 0))
	}
	return errors.Join(errs...)
}

// Every placement of layers, depths and the loss has the bits of one stage, gradients and weights, whatever the order in
// which messages arrive; copies of the embedding stay equal, and the gradient norm counts each parameter once
// (I17, I18, I27, I30). Losses are sums of the same numbers.
func TestPlacementsHaveTheBitsOfOneStage(t *testing.T) {
	property.Check(t, 25, func(t *rapid.T) {
		m := trial.DrawModel(t)
		m.NumLayers, m.MTPNumLayers, m.MTPLossScaling = 4, 2, 0.5
		if m.NumMoEExperts > 0 {
			m.MoELayerFreq.Pattern = []int{0, 1, 0, 1}
		}
		s := trial.DrawShape(t, m)
		j := trial.DrawJob(t, m, s, 2, microbatches)
		require.NoError(t, j.Gains())
		one, err := j.Run(trial.Single, inproc.Options{})
		require.NoError(t, err)
		for range 2 {
			p := rapid.SampledFrom(placements).Draw(t, "placement")
			if p.spread && m.MTPUseRepeatedLayer {
				continue
			}
			l := trial.Layout{TP: 1, CP: 1, DP: 1, PP: p.pp, Stages: p.stages}
			o := inproc.Options{Seed: rapid.Uint64().Draw(t, "order"), Overtake: true}
			got, err := j.Run(l, o)
			require.NoError(t, err)
			require.NoError(t, sameBits(got, one), "%s", l)
		}
	})
}

// The same holds beside the other axes, against the same axes on one stage.
func TestPlacementsOnOtherAxes(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		m := trial.DrawModel(t)
		m.NumLayers, m.MTPNumLayers, m.MTPLossScaling, m.MTPUseRepeatedLayer = 4, 2, 0.5, false
		if m.NumMoEExperts > 0 {
			m.MoELayerFreq.Pattern = []int{1, 1, 0, 1}
		}
		j := trial.DrawJob(t, m, trial.DrawShape(t, m), 1, 2*microbatches)
		require.NoError(t, j.Gains())
		l := rapid.SampledFrom(trial.Layouts()).Draw(t, "layout")
		one, err := j.Run(l, inproc.Options{})
		require.NoError(t, err)
		p := rapid.SampledFrom(placements).Draw(t, "placement")
		l.PP, l.Stages = p.pp, p.stages
		got, err := j.Run(l, inproc.Options{Seed: rapid.Uint64().Draw(t, "order"), Overtake: true})
		require.NoError(t, err)
		require.NoError(t, sameBits(got, one), "%s", l)
	})
}

// A layout that the model does not fit is an error that names it.
func TestPlacementThatDoesNotFit(t *testing.T) {
	m := mixture()
	m.NumLayers = 3
	m.MoELayerFreq.Pattern = []int{0, 0, 1}
	j := &trial.Job{Model: m, Optimizer: trial.Adam}
	for _, stages := range []string{"", "Ett|tL|"} {
		_, err := j.Run(trial.Layout{TP: 1, CP: 1, DP: 1, PP: 2, Stages: stages}, inproc.Options{})
		require.Error(t, err, fmt.Sprintf("%q", stages))
	}
}

// Ranks are built without a word to each other, in any order, tied and interleaved (NVIDIA/Megatron-LM#6747): copies of
// the embedding are drawn, not sent.
func TestRanksAreBuiltAlone(t *testing.T) {
	m := mixture()
	m.NumLayers, m.MoELayerFreq.Pattern, m.MTPNumLayers = 4, []int{0, 0, 0, 1}, 1
	s := trial.Job{Model: m, Optimizer: trial.Adam, Seed: 3}.Scenario(trial.Layout{TP: 1, CP: 1, DP: 1, PP: 2, Stages: "Et|t|t|tmL"})
	for _, rank := range []int{1, 0} {
		programs, err := model.Programs(model.Env{Scenario: s, Rank: rank})
		require.NoError(t, err)
		require.Equal(t, rank == 0, programs[1] == nil, "the depth runs on the last stage alone")
	}
}
