package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Split compares a step on several context-parallel ranks with the same step on one rank. Both run on one processor
// (GOMAXPROCS 1, one compute thread, turns one after the other), so that times of computing add up and the rest of the
// wall clock is exchange.
//
// Every rank runs the optimizer over all parameters, whatever the number of ranks. What context parallelism splits is
// the work of a microbatch: its forward and backward passes. Their cost is the difference between a step of two
// microbatches and a step of one.
type Split struct {
	CP           int     `json:"cp"`
	OneMs        float64 `json:"one_rank_ms"` // a step of one rank: all of it is computing
	StepMs       float64 `json:"step_ms"`
	ComputeMs    float64 `json:"compute_ms"`               // of all ranks together
	ExchangeMs   float64 `json:"exchange_ms"`              // step without compute
	OneMBMs      float64 `json:"one_rank_microbatch_ms"`   // forward and backward of a microbatch
	MicrobatchMs float64 `json:"microbatch_compute_ms"`    // the same of all ranks together
	Ratio        float64 `json:"microbatch_compute_ratio"` // MicrobatchMs over OneMBMs
	StepRatio    float64 `json:"step_compute_ratio"`       // ComputeMs over OneMs
	// Processor time of a microbatch, which neighbours and the clock rate disturb less: on one rank, on all with their
	// exchange, and the ratio. 0 where the system does not say.
	OneMBCPUMs float64 `json:"one_rank_microbatch_cpu_ms"`
	MBCPUMs    float64 `json:"microbatch_cpu_ms"`
	CPURatio   float64 `json:"microbatch_cpu_ratio"`
}

// splitRounds is how often everything is measured, in turns; the least time of each counts.
const splitRounds = 2

// split measures steps of one and two microbatches, on one rank and on all.
func split(ctx context.Context, o StepOptions) (*Split, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o.Threads = 1
	s, err := o.Scenario()
	if err != nil {
		return nil, err
	}
	more := fmt.Sprintf("train.global_batch_size=%d", 2*s.Train.GlobalBatchSize)
	ranks := []string{fmt.Sprintf("model.context_parallel_size=%d", o.CP), fmt.Sprintf("dist.world_size=%d", o.CP)}
	one, two := &least{}, &least{}
	all, allTwo := &least{}, &least{}
	for range splitRounds {
		for _, m := range []struct {
			into *least
			set  []string
		}{{one, nil}, {all, ranks}, {two, []string{more}}, {allTwo, append([]string{more}, ranks...)}} {
			if err := m.into.measure(ctx, o, m.set); err != nil {
				return nil, err
			}
		}
	}
	out := &Split{CP: o.CP, OneMs: one.wall, StepMs: all.wall, ComputeMs: all.compute, ExchangeMs: all.wall - all.compute,
		OneMBMs: two.wall - one.wall, MicrobatchMs: allTwo.compute - all.compute}
	out.Ratio, out.StepRatio = share(out.MicrobatchMs, out.OneMBMs), share(out.ComputeMs, out.OneMs)
	if one.cpu > 0 {
		out.OneMBCPUMs, out.MBCPUMs = two.cpu-one.cpu, allTwo.cpu-all.cpu
		out.CPURatio = share(out.MBCPUMs, out.OneMBCPUMs)
	}
	return out, nil
}

// least is the run with the least time of computing, by the medians of its steps.
type least struct {
	wall, compute float64
	cpu           float64 // processor time of a step, the least of its own
	set           bool
}

func (l *least) measure(ctx context.Context, o StepOptions, set []string) error {
	o.Overrides = append(append([]string(nil), o.Overrides...), set...)
	s, err := o.Scenario()
	if err != nil {
		return err
	}
	c := counter{warmup: o.Warmup, steps: o.Steps, cpu: o.cpu}
	if _, err := o.Train(ctx, s, c.step); err != nil {
		return err
	}
	wall, compute := median(c.ms), median(c.computeMs)
	if s.Sizes().World() == 1 {
		compute = wall // one rank never waits
	}
	cpu := float64(c.cpuTo-c.cpuFrom) / float64(time.Millisecond) / float64(max(o.Steps, 1))
	if l.set {
		cpu = min(cpu, l.cpu)
	}
	if !l.set || compute < l.compute {
		l.wall, l.compute = wall, compute
	}
	l.cpu, l.set = cpu, true
	return nil
}
