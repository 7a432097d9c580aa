package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// trained is a Trainer whose steps take the given times.
func trained(ms ...float64) Trainer {
	return func(_ context.Context, _ config.Scenario, _ func() time.Duration, step func(Took)) (int64, error) {
		for _, v := range ms {
			step(Took{Ms: v, ComputeMs: v})
		}
		return 512 << 20, nil
	}
}

func stepOptions(t Trainer) StepOptions {
	return StepOptions{Steps: 3, Warmup: 2, Threads: 1, Train: t, Now: stepping(250 * time.Millisecond)}
}

func TestStepScenarioIsTheOneOfTheHouse(t *testing.T) {
	s, err := stepOptions(nil).Scenario()
	require.NoError(t, err)
	h, ffn, v := int64(384), int64(1024), int64(32000)
	matrices := 6*(4*h*h+3*h*ffn) + v*h
	require.EqualValues(t, 22904832, matrices)
	norms := 6*2*h + h
	require.Equal(t, matrices+norms, s.Model.Parameters())
	require.Equal(t, 5, s.Train.TrainIters)
	require.Equal(t, 1, s.Train.Threads)
	require.Equal(t, "fp32", s.Train.DType)
	require.Equal(t, 1, s.Sizes().World())
	require.False(t, s.Model.UntieEmbeddings)
	require.Equal(t, 64, s.Model.KVChannels)
}

func TestFlopsPerTokenAgainstHandNumbers(t *testing.T) {
	s, err := stepOptions(nil).Scenario()
	require.NoError(t, err)
	// 6·22909824 = 137458944; 12·6·384·256 = 7077888.
	require.Equal(t, 137458944.0+7077888.0, FlopsPerToken(&s.Model, 256))
}

func TestStepFigures(t *testing.T) {
	r, err := Step(context.Background(), stepOptions(trained(9000, 9000, 2000, 4000, 1000)))
	require.NoError(t, err)
	require.Equal(t, 3, r.Steps)
	require.Equal(t, 1024, r.TokensPerStep)
	require.Equal(t, 2000.0, r.MedianMs)
	require.Equal(t, 1000.0, r.BestMs)
	require.Equal(t, 512.0, r.TokensPerS)
	require.Equal(t, 1024.0, r.BestTokensPerS)
	require.InDelta(t, 144536832.0*512/1e9, *r.ModelGFlops, 1e-9)
	require.InDelta(t, *r.ModelGFlops/((r.PeakBefore+r.PeakAfter)/2), *r.Share, 1e-12)
	require.EqualValues(t, 512<<20, r.PeakRSSBytes)
}

func TestStepOverridesComeLast(t *testing.T) {
	o := stepOptions(trained(1, 1, 5))
	o.Overrides = []string{"train.train_iters=3", "model.num_layers=2", "train.threads=2"}
	r, err := Step(context.Background(), o)
	require.NoError(t, err)
	require.Equal(t, 1, r.Steps)
	require.Equal(t, 2, r.Threads)
	require.Contains(t, r.Model, "2 layers, hidden 384")

	o.Overrides = []string{"train.train_iters=2"}
	_, err = Step(context.Background(), o)
	require.ErrorContains(t, err, "expected at least one step after them")

	o.Overrides = []string{"model.num_layer=2"}
	_, err = Step(context.Background(), o)
	var problems config.Problems
	require.ErrorAs(t, err, &problems)
}

func TestStepWithoutTheFormula(t *testing.T) {
	o := stepOptions(trained(1, 1, 1, 1, 1))
	o.Overrides = []string{"model.mtp_num_layers=1"}
	r, err := Step(context.Background(), o)
	require.NoError(t, err)
	require.Nil(t, r.ModelGFlops)
	require.Nil(t, r.Share)
	var out bytes.Buffer
	r.Print(&out)
	require.Contains(t, out.String(), "model FLOP/s         not said")
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.NotContains(t, string(text), `"share"`)
}

func TestStepErrors(t *testing.T) {
	_, err := Step(context.Background(), stepOptions(trained(1, 1, 1)))
	require.ErrorContains(t, err, "told of 1 steps after the warm-up, expected 3")
	gone := errors.New("gone")
	_, err = Step(context.Background(), stepOptions(func(context.Context, config.Scenario, func() time.Duration, func(Took)) (int64, error) {
		return 0, gone
	}))
	require.ErrorIs(t, err, gone)
}

func TestHeapIsCountedAfterTheWarmUp(t *testing.T) {
	c := counter{warmup: 1, steps: 2}
	keep := make([][]byte, 0, 16)
	c.step(Took{Ms: 1})
	for range 2 {
		for range 4 {
			keep = append(keep, make([]byte, 1<<16))
		}
		c.step(Took{Ms: 1})
	}
	count, bytes := c.heapPerStep()
	require.Len(t, keep, 8)
	require.GreaterOrEqual(t, count, 4.0)
	require.GreaterOrEqual(t, bytes, 4*65536.0)
	require.Less(t, bytes, 8*65536.0)
}

func TestProcessorTime(t *testing.T) {
	c := counter{ms: []float64{1500, 500}, cpuFrom: time.Second, cpuTo: 4 * time.Second}
	require.Equal(t, 1.5, c.cpuShare(1))
	require.Equal(t, 0.75, c.cpuShare(2))
	require.Zero(t, new(counter).cpuShare(1))
	require.GreaterOrEqual(t, cpuTime(), time.Duration(0))
}

func TestStepPrintsAndHasAShape(t *testing.T) {
	flops, model, of := 144536832.0, 74.0, 0.5
	r := &StepResult{Name: "bench-step", Model: "M", Kernel: "avx2", Threads: 1, Warmup: 2, Steps: 8, TokensPerStep: 1024,
		Parameters: 22909824, MedianMs: 2000, BestMs: 1000, TokensPerS: 512, BestTokensPerS: 1024, FlopsPerToken: &flops,
		ModelGFlops: &model, PeakBefore: 150, PeakAfter: 146, Share: &of, CPUShare: 0.97, PeakRSSBytes: 512 << 20, HeapCount: 3, HeapBytes: 100}
	var out bytes.Buffer
	r.Print(&out)
	require.Equal(t, `model                M: 22909824 parameters
steps                8 of 1024 tokens, after 2 to warm up; threads 1, kernel avx2
step                 2000.0 ms median, 1000.0 ms best
tokens/s             512.0 median, 1024.0 best
FMA peak             150.0 GFLOP/s before, 146.0 after, threads 1
model FLOP/s         74.00 GFLOP/s = 6·N·tokens + 12·L·h·S·tokens a second; N = 22909824 parameters without position tables
share of peak        50.0 % of the mean of both peaks
processor time       97 % of wall clock and threads
peak RSS             512.0 MiB
heap per step        3.0 allocations, 100 bytes
`, out.String())
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"bench-step","model":"M","kernel":"avx2","threads":1,"warmup_steps":2,"steps":8,"tokens_per_step":1024,
		"parameters":22909824,"median_step_ms":2000,"best_step_ms":1000,"tokens_per_s":512,"best_tokens_per_s":1024,
		"model_flops_per_token":144536832,"model_gflops":74,"fma_peak_before_gflops":150,"fma_peak_after_gflops":146,"share":0.5,"cpu_share":0.97,
		"peak_rss_bytes":536870912,"heap_allocations_per_step":3,"heap_bytes_per_step":100}`, string(text))
}

// Two ranks compute a step in 84 ms of processor time where one takes 80, and exchange for 30. The first step, to warm up,
// takes longer, and the ranks of every fourth round run slow.
func TestSplitComparesComputing(t *testing.T) {
	var worked time.Duration
	runs, slowly := 0, 0
	o := stepOptions(func(_ context.Context, s config.Scenario, clock func() time.Duration, step func(Took)) (int64, error) {
		require.Equal(t, worked/2, clock(), "the thread's clock")
		require.Equal(t, splitSteps+splitWarmup, s.Train.TrainIters)
		many := s.Model.ContextParallel > 1
		require.Equal(t, many, s.Optimizer.UseDistributedOptimizer, "the optimizer's work is split")
		if runs%4 < 2 {
			require.Equal(t, runs%2 == 1, many, "one rank is first")
		} else {
			require.Equal(t, runs%2 == 0, many, "the ranks are first")
		}
		runs++
		rounds := (runs - 1) / 2
		if many && rounds%4 == 1 {
			slowly++
		}
		for i := range s.Train.TrainIters {
			slow := 1.0
			if i < 1 || many && rounds%4 == 1 {
				slow = 1.5
			}
			ms := func(v float64) time.Duration { return time.Duration(v * slow * float64(time.Millisecond)) }
			compute := 80.0
			if many {
				compute = 84
				worked += ms(30)
			}
			worked += ms(compute)
			step(Took{Ms: 1000, ComputeMs: compute * slow})
		}
		return 1, nil
	})
	worked = time.Second
	o.CP, o.clocks = 2, clocks{func() time.Duration { return worked }, func() time.Duration { return worked / 2 }}
	s, err := split(context.Background(), o)
	require.NoError(t, err)
	require.Equal(t, &Split{CP: 2, Rounds: splitRounds, Clock: "processor time", OneMs: 80, ComputeMs: 84, ExchangeMs: 30, Ratio: 1.05, RatioLow: 1.05, RatioHigh: 1.575}, s)
	require.Equal(t, 2*splitRounds, runs)
	require.Equal(t, splitRounds/4, slowly)
}

// Where the system does not say processor time, wall clock is what is compared.
func TestSplitByWallClock(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := stepOptions(func(_ context.Context, s config.Scenario, clock func() time.Duration, step func(Took)) (int64, error) {
		before := clock()
		for range s.Train.TrainIters {
			now = now.Add(100 * time.Millisecond)
			step(Took{Ms: 100, ComputeMs: 90})
		}
		require.Equal(t, time.Duration(s.Train.TrainIters)*100*time.Millisecond, clock()-before)
		return 1, nil
	})
	o.Now = func() time.Time { return now }
	o.CP, o.clocks = 2, clocks{cpuTime, func() time.Duration { return 0 }}
	s, err := split(context.Background(), o)
	require.NoError(t, err)
	require.Equal(t, &Split{CP: 2, Rounds: splitRounds, Clock: "wall clock", OneMs: 90, ComputeMs: 90, ExchangeMs: 10, Ratio: 1, RatioLow: 1, RatioHigh: 1}, s)
}
