package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Split compares the computing of a step on several context-parallel ranks with that of the same step on one rank: forward,
// backward and the optimizer, whose work the ranks share (use_distributed_optimizer). Both run on one processor (GOMAXPROCS
// 1, one compute thread, turns one after the other), so that the times of all turns add up and the rest is exchange.
//
// Computing is processor time where the system says it, which neighbours on the machine disturb less than wall clock. What
// copies a rank makes in its turns to send and take parts is in it.
type Split struct {
	CP         int     `json:"cp"`
	Rounds     int     `json:"rounds"`
	Clock      string  `json:"clock"`       // of computing: processor time | wall clock
	OneMs      float64 `json:"one_rank_ms"` // computing of a step on one rank; these three are medians over rounds
	ComputeMs  float64 `json:"compute_ms"`  // on all ranks together
	ExchangeMs float64 `json:"exchange_ms"` // step of all ranks without its computing, by the same clock: exchange, waiting, garbage collection
	// Ratio is ComputeMs over OneMs: the median over rounds, each of a run on one rank and one on all, and the least and
	// greatest.
	Ratio     float64 `json:"compute_ratio"`
	RatioLow  float64 `json:"compute_ratio_low"`
	RatioHigh float64 `json:"compute_ratio_high"`
}

// splitRounds is how often both are measured, in turns.
const splitRounds = 5

// split measures a step on one rank and on all, in turns.
func split(ctx context.Context, o StepOptions) (*Split, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o.Threads = 1
	if o.cpu == nil {
		o.cpu = cpuTime
	}
	out := &Split{CP: o.CP, Rounds: splitRounds, Clock: "processor time"}
	if o.cpu() == 0 {
		o.cpu, out.Clock = nil, "wall clock"
	}
	ranks := []string{fmt.Sprintf("model.context_parallel_size=%d", o.CP), fmt.Sprintf("dist.world_size=%d", o.CP), "optimizer.use_distributed_optimizer=true"}
	var one, all, exchange, ratio []float64
	for range splitRounds {
		alone, err := computing(ctx, o, nil)
		if err != nil {
			return nil, err
		}
		shared, err := computing(ctx, o, ranks)
		if err != nil {
			return nil, err
		}
		one, all, exchange = append(one, alone.compute), append(all, shared.compute), append(exchange, shared.step-shared.compute)
		ratio = append(ratio, share(shared.compute, alone.compute))
	}
	out.OneMs, out.ComputeMs, out.ExchangeMs, out.Ratio = median(one), median(all), median(exchange), median(ratio)
	out.RatioLow, out.RatioHigh = ratio[0], ratio[0]
	for _, r := range ratio {
		out.RatioLow, out.RatioHigh = min(out.RatioLow, r), max(out.RatioHigh, r)
	}
	return out, nil
}

// stepTime is a step's time by one clock, and what of it is computing: medians over a run, in milliseconds.
type stepTime struct{ step, compute float64 }

// computing trains once and says what a step takes.
func computing(ctx context.Context, o StepOptions, set []string) (stepTime, error) {
	o.Overrides = append(append([]string(nil), o.Overrides...), set...)
	s, err := o.Scenario()
	if err != nil {
		return stepTime{}, err
	}
	var steps, compute []float64
	var last time.Duration
	seen := 0
	_, err = o.Train(ctx, s, o.cpu, func(t Took) {
		ms := t.Ms
		if o.cpu != nil {
			now := o.cpu()
			ms = (now - last).Seconds() * 1e3
			last = now
		}
		if seen++; seen > o.Warmup {
			steps, compute = append(steps, ms), append(compute, t.ComputeMs)
		}
		if s.Sizes().World() == 1 && len(compute) > 0 { // one rank never waits: its run is one turn
			compute[len(compute)-1] = ms
		}
	})
	if err == nil && len(steps) == 0 {
		err = fmt.Errorf("the run told of %d steps, expected more than the %d to warm up", seen, o.Warmup)
	}
	if err != nil {
		return stepTime{}, err
	}
	return stepTime{median(steps), median(compute)}, nil
}
