package bench

import (
	"context"
	"fmt"
	"runtime"
)

// Split compares a step on several context-parallel ranks with the same step on one rank. Both run on one processor
// (GOMAXPROCS 1, one compute thread), so that times of computing add up and the rest of the wall clock is exchange.
type Split struct {
	CP         int     `json:"cp"`
	OneMs      float64 `json:"one_rank_ms"` // a step of one rank: all of it is computing
	StepMs     float64 `json:"step_ms"`
	ComputeMs  float64 `json:"compute_ms"`  // of all ranks together
	ExchangeMs float64 `json:"exchange_ms"` // step without compute
	Ratio      float64 `json:"ratio"`       // compute of all ranks over that of one rank
}

// split measures both, one after the other, twice in turns, and takes the better median of each.
func split(ctx context.Context, o StepOptions) (*Split, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	out := &Split{CP: o.CP}
	o.Threads = 1
	ranks := o
	ranks.Overrides = append(append([]string(nil), o.Overrides...), fmt.Sprintf("model.context_parallel_size=%d", o.CP), fmt.Sprintf("dist.world_size=%d", o.CP))
	for range 2 {
		one, _, err := steps(ctx, o)
		if err != nil {
			return nil, err
		}
		wall, compute, err := steps(ctx, ranks)
		if err != nil {
			return nil, err
		}
		if out.OneMs == 0 || one < out.OneMs {
			out.OneMs = one
		}
		if out.ComputeMs == 0 || compute < out.ComputeMs {
			out.StepMs, out.ComputeMs, out.ExchangeMs = wall, compute, wall-compute
		}
	}
	out.Ratio = share(out.ComputeMs, out.OneMs)
	return out, nil
}

// steps trains and gives the medians of a step's wall clock and computing time.
func steps(ctx context.Context, o StepOptions) (wallMs, computeMs float64, err error) {
	s, err := o.Scenario()
	if err != nil {
		return 0, 0, err
	}
	c := counter{warmup: o.Warmup, steps: o.Steps}
	if _, err := o.Train(ctx, s, c.step); err != nil {
		return 0, 0, err
	}
	return median(c.ms), median(c.computeMs), nil
}
