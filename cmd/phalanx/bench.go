package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"phalanx/bench"
	"phalanx/config"
	"phalanx/run"
	"phalanx/telemetry"
)

func (a *app) benchVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench gemm|moe|recovery|step",
		Short: "measures matrix products, layers of experts, recovery or training steps, with the peak of the same minute beside them",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("phalanx bench: expected gemm, moe, recovery or step")
			}
			return usagef("phalanx bench: found %q, expected gemm, moe, recovery or step", args[0])
		},
	}
	c.AddCommand(a.benchGemm(), a.benchMoE(), a.benchRecovery(), a.benchStep())
	return c
}

func (a *app) benchGemm() *cobra.Command {
	o := bench.GemmOptions{Now: a.now}
	var json string
	c := &cobra.Command{
		Use:   "gemm",
		Short: "matrix products on every kernel path of this CPU; exit 3 if their bits differ",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("phalanx bench gemm: found %q, expected flags only", args[0])
			}
			return a.gemm(c.Context(), o, json)
		},
	}
	c.Flags().IntVar(&o.M, "m", 1024, "rows of C")
	c.Flags().IntVar(&o.N, "n", 768, "columns of C")
	c.Flags().IntVar(&o.K, "k", 768, "inner length")
	c.Flags().IntVar(&o.Reps, "reps", bench.GemmRepsMin, "repetitions")
	c.Flags().StringVar(&json, "json", "", "file for the result; - is standard output")
	return c
}

func (a *app) gemm(ctx context.Context, o bench.GemmOptions, json string) error {
	if err := o.Check(); err != nil {
		return usagef("phalanx bench gemm: %v", err)
	}
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	r, err := bench.Gemm(ctx, o)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	if json != "-" {
		r.Print(a.stdout)
	}
	code := run.ExitHeld
	if !r.SameBits {
		code = run.ExitNotHeld
	}
	return errors.Join(j.Write(r), j.Close(), ended(code))
}

func (a *app) benchMoE() *cobra.Command {
	o := bench.MoEOptions{Now: bench.ProcessorTime()}
	var json string
	c := &cobra.Command{
		Use:   "moe",
		Short: "a layer of experts against a dense layer of the same products; what each dispatcher sends",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("phalanx bench moe: found %q, expected flags only", args[0])
			}
			return a.moe(c.Context(), o, json)
		},
	}
	c.Flags().IntVar(&o.Experts, "experts", 64, "experts of the layer")
	c.Flags().IntVar(&o.Width, "width", 256, "hidden features of an expert; the dense layer has topk times as many")
	c.Flags().IntVar(&o.TopK, "topk", 8, "experts of a token")
	c.Flags().IntVar(&o.Tokens, "tokens", 2048, "rows, on every rank")
	c.Flags().IntVar(&o.Hidden, "hidden", 512, "features of a row")
	c.Flags().IntVar(&o.EP, "ep", 4, "ranks that share the experts, for the traffic of the dispatchers")
	c.Flags().IntVar(&o.Reps, "reps", bench.GemmRepsMin, "repetitions")
	c.Flags().StringVar(&json, "json", "", "file for the result; - is standard output")
	return c
}

func (a *app) moe(ctx context.Context, o bench.MoEOptions, json string) error {
	if err := o.Check(); err != nil {
		return usagef("phalanx bench moe: %v", err)
	}
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	r, err := bench.MoE(ctx, o)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	if json != "-" {
		r.Print(a.stdout)
	}
	return errors.Join(j.Write(r), j.Close())
}

func (a *app) benchStep() *cobra.Command {
	o := bench.StepOptions{Now: a.now, Train: a.trainer}
	var json string
	c := &cobra.Command{
		Use:   "step [section.key=value …]",
		Short: "training steps of a model with 23 million parameters",
		RunE: func(c *cobra.Command, args []string) error {
			files, overrides := split(args)
			if len(files) > 0 {
				return usagef("phalanx bench step: found %q, expected section.key=value", files[0])
			}
			o.Overrides = overrides
			return a.step(c.Context(), o, json)
		},
	}
	c.Flags().IntVar(&o.Steps, "steps", 8, "steps to measure")
	c.Flags().IntVar(&o.Warmup, "warmup", 2, "steps before them")
	c.Flags().IntVar(&o.CP, "cp", 1, "context-parallel ranks to compare with one rank")
	c.Flags().IntVar(&o.Threads, "threads", 1, "compute threads; 0 is one per core")
	c.Flags().StringVar(&json, "json", "", "file for the result; - is standard output")
	return c
}

func (a *app) step(ctx context.Context, o bench.StepOptions, json string) error {
	if o.Steps < 1 || o.Warmup < 1 {
		return usagef("phalanx bench step: found --steps %d --warmup %d, expected 1 or more of each", o.Steps, o.Warmup)
	}
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	r, err := bench.Step(ctx, o)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	if json != "-" {
		r.Print(a.stdout)
	}
	return errors.Join(j.Write(r), j.Close())
}

// trainer is package run as bench wants it.
func (a *app) trainer(ctx context.Context, s config.Scenario, clock func() time.Duration, step func(bench.Took)) (int64, error) {
	r, err := run.Execute(ctx, s, run.Options{Logger: a.logger(nil), ComputeClock: clock,
		Listen: run.Listener{Step: func(_ run.StepFigures, t run.Timing) { step(bench.Took{Ms: t.StepMs, ComputeMs: t.ComputeMs}) }}})
	if err != nil {
		return 0, err
	}
	return r.PeakRSSBytes, nil
}
