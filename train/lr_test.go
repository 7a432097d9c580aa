package train_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/train"
)

func ptr(x float64) *float64 { return &x }

// scheduler counts iterations of the given batch; 200 iterations.
func scheduler(o config.Optimizer, s config.Scheduler, batch int) train.Scheduler {
	return train.NewScheduler(o, s, config.Train{TrainIters: 200, GlobalBatchSize: batch})
}

// Warm-up 10, end 110, maximum 1, minimum .1, whatever the batch, in iterations, samples or as a fraction.
func TestCosine(t *testing.T) {
	o := config.Optimizer{LR: 1, MinLR: 0.1}
	for _, batch := range []int{1, 7} {
		for unit, s := range map[string]config.Scheduler{
			"iterations": {LRWarmupIters: 10, LRDecayIters: 110},
			"samples":    {LRWarmupSamples: 10 * batch, LRDecaySamples: 110 * batch},
			"fraction":   {LRWarmupFraction: ptr(10.0 / 110), LRDecayIters: 110},
		} {
			s.LRDecayStyle = "cosine"
			for n, want := range map[int]float64{0: 0, 5: 0.5, 10: 1, 60: 0.55, 110: 0.1, 111: 0.1, 150: 0.1} {
				require.InDelta(t, want, scheduler(o, s, batch).At(n).LR, 1e-15, "batch %d, %s, after %d", batch, unit, n)
			}
		}
	}
}

func TestLearningRates(t *testing.T) {
	o := config.Optimizer{LR: 1, MinLR: 0.2}
	for i, c := range []struct {
		s    config.Scheduler
		n    int
		want float64
	}{
		{config.Scheduler{LRDecayStyle: "constant"}, 199, 1},
		{config.Scheduler{}, 199, 1},
		{config.Scheduler{LRDecayStyle: "linear"}, 0, 1},
		{config.Scheduler{LRDecayStyle: "linear"}, 50, 0.8},
		{config.Scheduler{LRDecayStyle: "linear"}, 100, 0.6},
		{config.Scheduler{LRDecayStyle: "linear", LRDecayIters: 100}, 100, 0.2},
		{config.Scheduler{LRDecayStyle: "linear", LRDecayIters: 100}, 101, 0.2},
		{config.Scheduler{LRDecayStyle: "linear", LRDecayIters: 110, LRWarmupIters: 10}, 60, 0.6},
		// √4/√64; at the floor from √(1/25) on
		{config.Scheduler{LRDecayStyle: "inverse-square-root", LRWarmupIters: 4}, 64, 0.25},
		{config.Scheduler{LRDecayStyle: "inverse-square-root", LRWarmupIters: 4}, 100, 0.2},
		{config.Scheduler{LRDecayStyle: "inverse-square-root", LRWarmupIters: 4}, 144, 0.2},
		{config.Scheduler{LRDecayStyle: "inverse-square-root"}, 16, 0.25},
		{config.Scheduler{LRDecayStyle: "constant", LRWarmupIters: 10, LRWarmupInit: 0.1}, 0, 0.1},
		{config.Scheduler{LRDecayStyle: "constant", LRWarmupIters: 10, LRWarmupInit: 0.1}, 5, 0.55},
	} {
		require.InDelta(t, c.want, scheduler(o, c.s, 1).At(c.n).LR, 1e-15, "case %d", i)
	}
	// Without a warm-up the inverse square root counts samples: batch 4, after 4 updates √1/√16.
	require.InDelta(t, 0.25, scheduler(o, config.Scheduler{LRDecayStyle: "inverse-square-root"}, 4).At(4).LR, 1e-15)
}

// WSD: 1 until 80, then 20 iterations down to .2; half way a share of ½, ½, √2−1 or 1−√½ is left.
func TestWSD(t *testing.T) {
	o := config.Optimizer{LR: 1, MinLR: 0.2}
	for style, left := range map[string]float64{"linear": 0.5, "cosine": 0.5, "exponential": math.Sqrt2 - 1, "minus_sqrt": 1 - math.Sqrt(0.5)} {
		for unit, s := range map[string]config.Scheduler{
			"iterations": {LRWSDDecayIters: 20, LRDecayIters: 100},
			"samples":    {LRWSDDecaySamples: 60, LRDecayIters: 100},
		} {
			s.LRDecayStyle, s.LRWSDDecayStyle, s.LRWarmupIters = "WSD", style, 4
			for n, want := range map[int]float64{2: 0.5, 4: 1, 50: 1, 80: 1, 90: 0.2 + 0.8*left, 100: 0.2, 120: 0.2} {
				require.InDelta(t, want, scheduler(o, s, 3).At(n).LR, 1e-12, "%s, %s, after %d", style, unit, n)
			}
		}
	}
}

func TestDecoupledLR(t *testing.T) {
	s := config.Scheduler{LRDecayStyle: "linear", LRDecayIters: 10}
	same := scheduler(config.Optimizer{LR: 1, MinLR: 0.5}, s, 1).At(5)
	require.Equal(t, same.LR, same.DecoupledLR)
	own := scheduler(config.Optimizer{LR: 1, MinLR: 0.5, DecoupledLR: ptr(4), DecoupledMinLR: ptr(2)}, s, 1).At(5)
	require.Equal(t, []float64{0.75, 3}, []float64{own.LR, own.DecoupledLR})
	floor := scheduler(config.Optimizer{LR: 1, MinLR: 0.5, DecoupledLR: ptr(4)}, s, 1).At(10)
	require.Equal(t, []float64{0.5, 0.5}, []float64{floor.LR, floor.DecoupledLR})
}

// From .1 to .3 over 200 iterations: half way .2, after a quarter .15 or .1 + .2·½(1 + cos ¾π).
func TestWeightDecay(t *testing.T) {
	o := config.Optimizer{WeightDecay: 0.7}
	require.Equal(t, 0.7, scheduler(o, config.Scheduler{}, 5).At(9).WeightDecay)
	for style, quarter := range map[string]float64{"linear": 0.15, "cosine": 0.1 + 0.1*(1-math.Sqrt(0.5))} {
		s := config.Scheduler{WeightDecayIncrStyle: style, StartWeightDecay: ptr(0.1), EndWeightDecay: ptr(0.3)}
		for n, want := range map[int]float64{0: 0.1, 50: quarter, 100: 0.2, 200: 0.3, 300: 0.3} {
			t.Run(fmt.Sprint(style, n), func(t *testing.T) {
				require.InDelta(t, want, scheduler(o, s, 5).At(n).WeightDecay, 1e-15)
			})
		}
	}
}
