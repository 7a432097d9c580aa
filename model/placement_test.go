package model_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
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

// validated is the LM loss and tokens of a validation of 600 microbatches after one step.
func validated(t *testing.T, l trial.Layout, seed uint64) (sums messages.Sums) {
	m := mixture()
	m.NumLayers, m.MoELayerFreq.Pattern, m.MTPNumLayers, m.MTPLossScaling = 4, []int{0, 0, 0, 1}, 1, 0.5
	j := trial.Job{Model: m, Optimizer: trial.Adam, Seed: 3}
	rng := rand.New(rand.NewPCG(5, 5))
	var step []*nn.Microbatch
	for range 6 {
		mb := &nn.Microbatch{B: 1, S: 4}
		trial.Fill(rng, mb, trial.Shape{B: 1, S: 4, V: m.PaddedVocabSize, H: m.HiddenSize}, []bool{true, true, true, true}, 0.8)
		step = append(step, mb)
	}
	j.Batches = [][]*nn.Microbatch{step}
	s := j.Scenario(l)
	s.Train.EvalInterval, s.Train.EvalIters = 1, 100
	err := inproc.Run(s.Sizes(), func(rank int) []func(nn.Comm) {
		programs, err := model.Programs(model.Env{Scenario: s, Rank: rank, Train: &j, Validation: always{step}, Emit: func(e messages.Event) {
			if e, ok := e.(messages.EvalDone); ok {
				sums.Add(e.Sums)
			}
		}})
		require.NoError(t, err)
		return programs
	}, inproc.Options{Seed: seed, Overtake: true})
	require.NoError(t, err)
	return sums
}

// always is a validation of the same batches again and again.
type always struct{ step []*nn.Microbatch }

func (a always) Microbatch(_, j int) *nn.Microbatch { return a.step[j] }

// A first stage is not ahead of the last by a whole validation, and every placement has the losses of one stage.
func TestValidationOnPlacements(t *testing.T) {
	want := validated(t, trial.Single, 0)
	require.Positive(t, want.LMTokens)
	for _, p := range []placement{{2, "Ett|ttmL", false}, {2, "Et|t|t|tmL", false}, {3, "Ett|tt|mL", false}, {4, "Ett|tt|m|L", false}} {
		for seed := range uint64(2) {
			got := validated(t, trial.Layout{TP: 1, CP: 1, DP: 1, PP: p.pp, Stages: p.stages}, seed)
			require.Equal(t, want, got, p.stages)
		}
	}
}
