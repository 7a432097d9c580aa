package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
)

// locals runs a job from a rank's states and returns those at each boundary, by step and rank.
func locals(t *testing.T, j *trial.Job, l trial.Layout, from [][]byte) map[int][][]byte {
	s := j.Scenario(l)
	out := map[int][][]byte{}
	err := inproc.Run(s.Sizes(), func(rank int) []func(nn.Comm) {
		env := model.Env{Scenario: s, Rank: rank, Train: j, Emit: func(messages.Event) {}, Boundary: func(step int, local func() []byte) {
			if out[step] == nil {
				out[step] = make([][]byte, s.Sizes().World())
			}
			out[step][rank] = local()
		}}
		if from != nil {
			env.Local = from[rank]
		}
		programs, err := model.Programs(env)
		require.NoError(t, err)
		return programs
	}, inproc.Options{})
	require.NoError(t, err)
	return out
}

// A rank that begins with its local state of a step goes on with the same bits.
func TestLocalStateIsTheWholeState(t *testing.T) {
	m := mixture()
	m.NumLayers, m.MoELayerFreq.Pattern, m.MTPNumLayers, m.MTPLossScaling = 2, []int{0, 1}, 1, 0.5
	m.MoERouterScore, m.MoERouterEnableExpertBias, m.MoERouterBiasUpdateRate = "sigmoid", true, 0.01
	j := &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 3}
	for range 3 {
		j.Batches = append(j.Batches, []*nn.Microbatch{plainBatch(m.PaddedVocabSize), plainBatch(m.PaddedVocabSize)})
	}
	for _, l := range []trial.Layout{trial.Single, {TP: 2, CP: 1, DP: 1, SP: true, PP: 2}, {TP: 1, CP: 1, DP: 2}} {
		whole := locals(t, j, l, nil)
		require.Len(t, whole, 4)
		for step := range 4 {
			require.Equal(t, whole[3], locals(t, j, l, whole[step])[3], "%s from step %d", l, step)
		}
	}
}

// A local state of another model, a cut one and a damaged one are refused.
func TestLocalStateIsChecked(t *testing.T) {
	j := &trial.Job{Model: mixture(), Optimizer: trial.Adam}
	j.Model.MoELayerFreq.Pattern = []int{1}
	good := locals(t, j, trial.Single, nil)[0][0]
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)/2] ^= 1
	other := append([]byte(nil), good...)
	other[0] ^= 1
	for want, b := range map[string][]byte{"found checksum": damaged, "bytes, expected": good[:40], "found magic": other} {
		_, err := model.Programs(model.Env{Scenario: j.Scenario(trial.Single), Train: j, Local: b})
		var e *model.LocalError
		require.ErrorAs(t, err, &e)
		require.ErrorContains(t, err, want)
	}
}

func plainBatch(v int) *nn.Microbatch {
	mb := &nn.Microbatch{B: 1, S: 6, Loss: &nn.LossMask{B: 1, S: 6, AllOnes: true}}
	for i := range int32(6) {
		mb.IDs, mb.Labels, mb.Positions = append(mb.IDs, i%int32(v)), append(mb.Labels, (i+1)%int32(v)), append(mb.Positions, i)
	}
	return mb
}
