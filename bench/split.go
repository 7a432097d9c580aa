package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Split compares the computing of a step on several context-parallel ranks with that of the same step on one rank: forward,
// backward and the optimizer, whose work the ranks share (use_distributed_optimizer). Both run on one processor (GOMAXPROCS
// 1, one compute thread), and the programs of all ranks on one OS thread whose processor time is their computing: what links and
// the collector of garbage do in between is not in it. What copies a rank makes in its turns to send and take parts is.
type Split struct {
	CP         int     `json:"cp"`
	Rounds     int     `json:"rounds"`
	Clock      string  `json:"clock"`       // of computing: processor time | wall clock
	OneMs      float64 `json:"one_rank_ms"` // computing of a step on one rank; these three are medians over rounds
	ComputeMs  float64 `json:"compute_ms"`  // on all ranks together
	ExchangeMs float64 `json:"exchange_ms"` // step of all ranks without its computing: exchange, waiting, garbage collection
	// Ratio is ComputeMs over OneMs: the median over rounds, each of a run on one rank and one on all, and the quartiles.
	Ratio     float64 `json:"compute_ratio"`
	RatioLow  float64 `json:"compute_ratio_low"`
	RatioHigh float64 `json:"compute_ratio_high"`
}

// splitRounds is how often both are measured, in turns: short runs, many of them, because a shared machine changes its speed
// from minute to minute.
const (
	splitRounds = 20
	splitSteps  = 2
	splitWarmup = 1
)

// clocks are what a comparison reads.
type clocks struct {
	process func() time.Duration // of a step
	thread  func() time.Duration // of a turn, read on the thread that computes
}

// split measures a step on one rank and on all, in turns.
func split(ctx context.Context, o StepOptions) (*Split, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o.Threads, o.Steps, o.Warmup = 1, splitSteps, splitWarmup
	out := &Split{CP: o.CP, Rounds: splitRounds, Clock: "processor time"}
	if o.clocks.thread == nil {
		o.clocks = clocks{cpuTime, threadTime}
	}
	if o.clocks.thread() == 0 || o.clocks.process() == 0 {
		origin := o.Now()
		wall := func() time.Duration { return o.Now().Sub(origin) }
		o.clocks, out.Clock = clocks{wall, wall}, "wall clock"
	}
	set := [2][]string{nil, {fmt.Sprintf("model.context_parallel_size=%d", o.CP), fmt.Sprintf("dist.world_size=%d", o.CP), "optimizer.use_distributed_optimizer=true"}}
	var one, all, exchange, ratio []float64
	for round := range splitRounds {
		var took [2]stepTime
		for k := range took {
			which := (round + k) % 2 // who is first changes from round to round
			var err error
			if took[which], err = computing(ctx, o, set[which]); err != nil {
				return nil, err
			}
		}
		one, all, exchange = append(one, took[0].compute), append(all, took[1].compute), append(exchange, took[1].step-took[1].compute)
		ratio = append(ratio, share(took[1].compute, took[0].compute))
	}
	slices.Sort(ratio)
	out.OneMs, out.ComputeMs, out.ExchangeMs, out.Ratio = median(one), median(all), median(exchange), median(ratio)
	out.RatioLow, out.RatioHigh = ratio[len(ratio)/4], ratio[(3*len(ratio))/4]
	return out, nil
}

// stepTime is a step's time, and what of it is computing: medians over a run, in milliseconds.
type stepTime struct{ step, compute float64 }

// computing trains once and says what a step takes.
func computing(ctx context.Context, o StepOptions, set []string) (stepTime, error) {
	o.Overrides = append(append([]string(nil), o.Overrides...), append(set, fmt.Sprintf("train.train_iters=%d", o.Steps+o.Warmup))...)
	s, err := o.Scenario()
	if err != nil {
		return stepTime{}, err
	}
	var steps, compute []float64
	var last time.Duration
	seen := 0
	_, err = o.Train(ctx, s, o.clocks.thread, func(t Took) {
		now := o.clocks.process()
		if seen++; seen > o.Warmup {
			steps, compute = append(steps, (now-last).Seconds()*1e3), append(compute, t.ComputeMs)
		}
		last = now
	})
	if err == nil && len(steps) == 0 {
		err = fmt.Errorf("the run told of %d steps, expected more than the %d to warm up", seen, o.Warmup)
	}
	if err != nil {
		return stepTime{}, err
	}
	return stepTime{median(steps), median(compute)}, nil
}
