package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"phalanx/bench"
	"phalanx/config"
	"phalanx/run"
	"phalanx/telemetry"
)

func (a *app) benchRecovery() *cobra.Command {
	o := bench.RecoveryOptions{Train: a.trainer, Deaths: a.deaths}
	var json string
	c := &cobra.Command{
		Use:   "recovery [section.key=value …]",
		Short: "what the log of sent messages costs a step, and how long ranks that are killed take to be where they were",
		RunE: func(c *cobra.Command, args []string) error {
			files, overrides := split(args)
			if len(files) > 0 {
				return usagef("phalanx bench recovery: found %q, expected section.key=value", files[0])
			}
			o.Overrides = overrides
			return a.recovery(c.Context(), o, json)
		},
	}
	c.Flags().IntVar(&o.Pairs, "pairs", bench.PairsMin, "pairs of runs with the log and without")
	c.Flags().IntVar(&o.Steps, "steps", 6, "steps of each run")
	c.Flags().IntVar(&o.Warmup, "warmup", 2, "steps before them")
	c.Flags().IntVar(&o.Kills, "kills", 20, "ranks to kill; 0: none")
	c.Flags().StringVar(&json, "json", "", "file for the result; - is standard output")
	return c
}

func (a *app) recovery(ctx context.Context, o bench.RecoveryOptions, json string) error {
	if err := o.Check(); err != nil {
		return usagef("phalanx bench recovery: %v", err)
	}
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	r, err := bench.Recovery(ctx, o)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	if json != "-" {
		r.Print(a.stdout)
	}
	return errors.Join(j.Write(r), j.Close())
}

// deaths is package run as bench wants it: every rank in a process of its own.
func (a *app) deaths(ctx context.Context, s config.Scenario) (all []bench.Death, err error) {
	r, err := run.Execute(ctx, s, run.Options{Procs: s.Sizes().World(), Self: a.self, Logger: a.logger(nil), OnAbandon: a.leaving.add})
	if err != nil {
		return nil, err
	}
	for _, d := range r.Recoveries {
		all = append(all, bench.Death{DetectionMs: d.DetectionMs, BackoffMs: d.BackoffMs, RestartMs: d.RestartMs, ReplayMs: d.ReplayMs})
	}
	return all, nil
}
