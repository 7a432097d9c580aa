package mtp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
)

// Every layout over {1,2}³ gives the losses, gradients, norms and weights of the single rank, over two steps, also where
// ranks and microbatches count unequal numbers of tokens.
func TestI11_EveryLayoutIsTheSingleRank(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		m := trial.DrawModel(t)
		j := trial.DrawJob(t, m, trial.DrawShape(t, m), 2, 2)
		require.NoError(t, j.Gains())
		want, err := j.Run(trial.Single, inproc.Options{})
		require.NoError(t, err)
		for _, l := range trial.Layouts()[1:] {
			l.CommType = rapid.SampledFrom(commTypes(m.NumQueryGroups/l.TP/l.CP)).Draw(t, "comm type")
			got, err := j.Run(l, inproc.Options{Seed: rapid.Uint64().Draw(t, "order")})
			require.NoError(t, err)
			require.NoError(t, got.Same(want, 1e-9), "%s", l)
		}
	})
}

// More ranks than two on an axis: rings with a middle, neighbours on both sides, replicas that are not a power of two.
func TestI11_MoreRanks(t *testing.T) {
	property.Check(t, 4, func(t *rapid.T) {
		m := trial.DrawModel(t)
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
