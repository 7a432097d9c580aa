package train_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/train"
)

// A second optimizer that takes over weights, moments and the number of steps goes on with the same bits.
func TestStateCarriesOn(t *testing.T) {
	cfg := config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1e-8}
	p, q := twoParams(t), twoParams(t)
	p.List[0].Data[0], p.List[1].Data[0] = 1, -2
	a := adamOf(cfg, p)
	step := func(a *train.Adam[float64], grad float64) {
		for _, piece := range a.State() {
			require.Zero(t, piece.From)
			require.Len(t, piece.Weight, piece.To)
		}
		for _, x := range p.List {
			for i := range x.Grad {
				x.Grad[i], q.ByName(x.Name).Grad[i] = grad+float64(i), grad+float64(i)
			}
		}
		a.Step(train.Rates{LR: 0.01, WeightDecay: 0.1}, map[string]float64{}, nil)
	}
	for i := range 5 {
		step(a, float64(i))
	}
	b := adamOf(cfg, q)
	for i, from := range a.State() {
		to := b.State()[i]
		require.Equal(t, from.Spec.Name, to.Spec.Name)
		copy(to.Weight, from.Weight)
		copy(to.ExpAvg, from.ExpAvg)
		copy(to.ExpAvgSq, from.ExpAvgSq)
	}
	require.Equal(t, 5, a.Steps())
	b.SetSteps(5)
	step(a, 7)
	step(b, 7)
	require.Equal(t, p.List[0].Data, q.List[0].Data)
	require.Equal(t, p.List[1].Data, q.List[1].Data)
	require.NotEqual(t, []float64{1, 0}, p.List[0].Data)
}
