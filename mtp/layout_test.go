package mtp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/nn"
)

// Every layout over {1,2}³ gives the losses, gradients, norms and weights of the single rank, over two steps, also where
// ranks and microbatches count unequal numbers of tokens.
func TestI11_EveryLayoutIsTheSingleRank(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		m := trial.DrawModel(t)
		trial.DrawDropout(t, &m)
		j := trial.DrawJob(t, m, trial.DrawShape(t, m), 2, 2)
		require.NoError(t, j.Gains())
		want, err := j.Run(trial.Single, inproc.Options{})
		require.NoError(t, err)
		for _, l := range trial.Layouts()[1:] {
			l.CommType = rapid.SampledFrom(commTypes(m.NumQueryGroups/l.TP/l.CP)).Draw(t, "comm type")
			got, err := j.Run(l, inproc.Options{Seed: rapid.Uint64().Draw(t, "order"), Overtake: rapid.Bool().Draw(t, "overtake")})
			require.NoError(t, err)
			require.NoError(t, got.Same(want, 1e-9), "%s", l)
		}
	})
}

// loss_normalization upstream: the gradient is the mean over context-parallel ranks of what each has on its own, so of
// single-rank gradients whose mask is cut to the rank's positions, a rank without tokens adding
// nothing. With per-token loss, and on one rank, it is the exact one.
func TestUpstreamNormalisationIsAMeanOfLocalMeans(t *testing.T) {
	property.Check(t, 10, func(t *rapid.T) {
		m := drawPlain(t, 0)
		m.MTPNumLayers = 0
		s := trial.DrawShape(t, m)
		j := trial.DrawJob(t, m, s, 1, 2)
		upstream := *j
		upstream.Model.LossNormalization = "upstream"
		l := trial.Layout{TP: rapid.IntRange(1, 2).Draw(t, "tp"), CP: rapid.IntRange(1, 3).Draw(t, "cp"), DP: 1}
		want := map[string][]float64{}
		for r := range l.CP {
			local := eachBatch(j, func(mb *nn.Microbatch) {
				if !m.CalculatePerTokenLoss {
					mb.Loss = cutTo(mb, r, l.CP)
				}
			})
			g := run(t, local, trial.Single, 1).Steps[0].Grads
			if r > 0 {
				g = combined(1, want, 1, g)
			}
			want = g
		}
		got := run(t, &upstream, l, 1).Steps[0].Grads
		require.NoError(t, trial.NearAll("gradient of", got, combined(1/float64(l.CP), want, 0, want), 1e-9))
	})
}

// cutTo is the loss mask at the positions that a context-parallel rank holds, 0 elsewhere.
func cutTo(mb *nn.Microbatch, rank, cp int) *nn.LossMask {
	out := &nn.LossMask{B: mb.B, S: mb.S, Weight: make([]float32, mb.B*mb.S)}
	src, l := trial.Slots(mb.Docs, mb.B, mb.S, cp, 1)
	for i, p := range src[rank] {
		if p >= 0 {
			out.Weight[i/l*mb.S+p] = mb.Loss.At(i/l, p)
		}
	}
	return out
}

// More ranks than two on an axis: rings with a middle, neighbours on both sides, replicas that are not a power of two.
func TestI11_MoreRanks(t *testing.T) {
	property.Check(t, 4, func(t *rapid.T) {
		m := trial.DrawModel(t)
		trial.DrawDropout(t, &m)
		j := trial.DrawJob(t, m, trial.DrawShape(t, m), 1, 6)
		want, err := j.Run(trial.Single, inproc.Options{})
		require.NoError(t, err)
		for _, l := range []trial.Layout{{TP: 1, CP: 3, DP: 1}, {TP: 2, CP: 3, DP: 1, SP: true}, {TP: 2, CP: 4, DP: 1, SP: true, CommType: "all_gather"},
			{TP: 1, CP: 1, DP: 3}, {TP: 1, CP: 4, DP: 2}} {
			got, err := j.Run(l, inproc.Options{Seed: rapid.Uint64().Draw(t, "order")})
			require.NoError(t, err)
			require.NoError(t, got.Same(want, 1e-9), "%s", l)
		}
	})
}

// commTypes are those that a number of key heads per rank allows.
func commTypes(heads int) []string {
	if heads == 0 {
		return []string{"p2p", "all_gather"}
	}
	return []string{"p2p", "all_gather", "a2a"}
}
