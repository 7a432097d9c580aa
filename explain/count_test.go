package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/data"
)

func data1() *data.Data { return &data.Data{Train: batches{rowsOf(4, 4)}} }

// E1 and G1: a microbatch of 5 tokens and one of 1, on two data-parallel ranks.
func TestStepCounts(t *testing.T) {
	s := scenario(1, layout{1, 1, 2, false})
	r := reported(t, s, nil, rowsOf(8, 5), rowsOf(8, 1))
	lm, depth := r.Terms[0], r.Terms[1]
	require.Equal(t, []int64{5, 1}, lm.TokensByDPRank)
	require.Equal(t, []int64{5, 1}, lm.TokensByMicrobatch)
	require.EqualValues(t, 6, lm.StepTokens)
	require.Equal(t, "microbatch", lm.DivisorOf)
	require.Equal(t, 2, lm.Means)
	require.InDelta(t, 1.0/5/2, lm.Shares[0].TokenWeight, 1e-15)
	require.Equal(t, []int64{4, 0}, depth.TokensByDPRank)
	notes := fmt.Sprint(r.Notes)
	require.Contains(t, notes, "mtp_1 counts no token on dp 1 in this step")
	require.Contains(t, notes, "(lm 1 to 5, mtp_1 0 to 4) and each is a mean of its own: a token of the smallest weighs up to 5 times")

	s.Model.CalculatePerTokenLoss = true
	r = reported(t, s, nil, rowsOf(8, 5), rowsOf(8, 1))
	require.Equal(t, "step", r.Terms[0].DivisorOf)
	require.Equal(t, 1, r.Terms[0].Means)
	require.InDelta(t, 1.0/6, r.Terms[0].Shares[0].TokenWeight, 1e-15)
	require.InDelta(t, 0.1/4, r.Terms[1].Shares[0].TokenWeight, 1e-15)
	require.NotContains(t, fmt.Sprint(r.Notes), "mean of its own")
}

// G3: nothing to learn here.
func TestNoTokens(t *testing.T) {
	r := reported(t, scenario(1, single), nil, rowsOf(8, 0), rowsOf(8, 5))
	require.EqualValues(t, 1, r.Terms[0].Shares[0].Divisor)
	require.Contains(t, fmt.Sprint(r.Notes), "lm counts no token in this microbatch, 5 in the step: here its loss is 0, its divisor is clamped to 1")
	r = reported(t, scenario(1, single), nil, rowsOf(8, 0))
	require.Contains(t, fmt.Sprint(r.Notes), "mtp_1 counts no token in the whole step")
	require.EqualValues(t, 1, r.Terms[1].Shares[0].Divisor)
}

// Default-mode upstream counts are a rank's own.
func TestUpstream(t *testing.T) {
	s := scenario(1, layout{1, 2, 1, false})
	s.Model.LossNormalization = "upstream"
	mb := rowsOf(8, 8)
	mb.Loss.Weight = []float32{1, 1, 1, 0, 0, 0, 0, 0}
	r := reported(t, s, nil, mb)
	depth := r.Terms[1]
	require.Equal(t, "rank", depth.DivisorOf)
	require.Equal(t, 2, depth.Means)
	require.Equal(t, []Share{{0, 2, 2, 0.1 / 2 / 2}, {1, 0, 1, 0.1 / 2}}, depth.Shares)
	notes := fmt.Sprint(r.Notes)
	require.Contains(t, notes, "pulls the average of the ranks down")
	require.Contains(t, notes, "count different numbers of tokens of lm, mtp_1 and each divides by its own")

	s.Model.CalculatePerTokenLoss = true
	r = reported(t, s, nil, mb)
	require.Equal(t, "step", r.Terms[0].DivisorOf)
	require.InDelta(t, 1.0/3, r.Terms[0].Shares[1].TokenWeight, 1e-15)
	require.InDelta(t, 0.1*2/2/3, r.Terms[1].Shares[0].TokenWeight, 1e-15) // Σ L_k · N_0/N_k over the step's N_0
}

// The microbatch's data-parallel rank is the one that owns it.
func TestDPRank(t *testing.T) {
	s := scenario(0, layout{1, 1, 2, false})
	for j, want := range []int{0, 0, 1, 1} {
		x, err := newSubject(&s, &data.Data{Train: batches{rowsOf(4, 4), rowsOf(4, 3), rowsOf(4, 2), rowsOf(4, 1)}}, Options{Step: 2, Microbatch: j})
		require.NoError(t, err)
		r, err := x.report()
		require.NoError(t, err)
		require.Equal(t, want, r.DPRank)
		require.EqualValues(t, 4-j, r.Terms[0].Tokens)
	}
}
