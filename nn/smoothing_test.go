package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/nn"
)

// With factor 0.3 and four ids the label has 0.7 of the target and every other id 0.1. The logits are ln 1, ln 2, ln 3,
// ln 4, so probabilities are 0.1 … 0.4, and with label 2 (from 0) the loss is −0.7·ln 0.3 − 0.1·(ln 0.1 + ln 0.2 + ln 0.4);
// the gradient of the logits is p − target.
func TestSmoothedLossByHand(t *testing.T) {
	r := gradcheck.New(1, 1)
	w := r.Declare("head", 4, 1)
	r.Build()
	for i := range w.Data {
		w.Data[i] = math.Log(float64(i + 1))
	}
	x := r.Random(1, 1)
	x.Data[0] = 1
	head := nn.Head[float64]{Table: w, Grad: w.Grad, Smoothing: nn.Smoothing(0.3, 4)}
	out := head.Loss(r.C, nn.HeadInput[float64]{Hidden: x, Labels: []int32{2}, Loss: &nn.LossMask{B: 1, S: 1, AllOnes: true}, Weight: 2, Grad: true})
	require.InDelta(t, -0.7*math.Log(.3)-.1*(math.Log(.1)+math.Log(.2)+math.Log(.4)), out.LossSum, 1e-12)
	require.InDeltaSlice(t, []float64{0, 2 * .1, 2 * (.3 - .7), 2 * .3}, w.Grad, 1e-12)
}
