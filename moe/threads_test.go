package moe_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// wide is a layer whose rows are long enough to be moved and added by several threads, run forward and backward.
func wide(tokens int) [][]float32 {
	const e, h, f, k = 3, 4096, 5, 2
	rng := rand.New(rand.NewPCG(7, 0))
	random := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * rng.NormFloat64())
		}
		return x
	}
	weights := func(out, in int) nn.Weights[float32] {
		return nn.Weights[float32]{Out: out, In: in, W: random(out*in, 0.02), G: make([]float32, out*in)}
	}
	act := nn.Activation[float32]{Gated: true}
	l := &moe.Layer[float32]{Place: moe.Place{Experts: e, EP: 1, ETP: 1}, Act: act, Router: moe.Router[float32]{Weight: weights(e, h), K: k}}
	out := [][]float32{l.Router.Weight.G}
	for range e {
		x := moe.Expert[float32]{FC1: weights(act.Width(f), h), FC2: weights(h, f)}
		l.Experts = append(l.Experts, x)
		out = append(out, x.FC1.G, x.FC2.G)
	}
	frames := nn.NewFrames(nil, 1, tokens, 1, 1)
	c := &nn.Ctx[float32]{Comm: nn.Solo{}, Arena: &tensor.Arena[float32]{}, B: 1, Frame: frames[0], Frames: frames, Site: nn.Site{Phase: nn.Forward}, Aux: nn.AuxScale{Divisor: 1}}
	y, saved := l.Forward(c, tensor.MatOf(random(tokens*h, 1), tokens, h))
	dx := l.Backward(c, saved, tensor.MatOf(random(tokens*h, 1), tokens, h))
	return append(out, y.Data, dx.Data)
}

// Threads change no bit.
func TestThreadsChangeNoBit(t *testing.T) {
	defer kernel.SetThreads(kernel.Threads())
	kernel.SetThreads(1)
	want := wide(96)
	for _, threads := range []int{2, 3} {
		kernel.SetThreads(threads)
		require.Equal(t, want, wide(96))
	}
}
