package main

import (
	"strings"

	"github.com/spf13/cobra"

	"phalanx/run"
	"phalanx/telemetry"
)

func (a *app) planVerb() *cobra.Command {
	var json string
	c := &cobra.Command{
		Use:   "plan FILE [section.key=value …]",
		Short: "prints ranks, groups, placement, messages and memory of a scenario",
		RunE:  func(_ *cobra.Command, args []string) error { return a.plan(args, json) },
	}
	c.Flags().StringVar(&json, "json", "", "file for the result, one object a line; - is standard output")
	return c
}

// planRecord is a plan as JSON.
type planRecord struct {
	Name    string   `json:"name"`
	Refused string   `json:"refused,omitempty"` // why it does not run, if it expects that
	Lines   []string `json:"lines"`
}

func (a *app) plan(args []string, json string) error {
	files, overrides, err := filesAndOverrides("plan", "scenario FILE", args, true)
	if err != nil {
		return err
	}
	all, problems := load(files, overrides)
	if len(problems) > 0 {
		return problems
	}
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	for i, s := range all {
		record, err := planOf(s)
		if err != nil {
			return err
		}
		if json != "-" {
			a.printf("%s%s\n", strings.Repeat("\n", min(i, 1)), strings.Join(record.Lines, "\n"))
		}
		if err := j.Write(record); err != nil {
			return err
		}
	}
	return j.Close()
}

func planOf(s scenario) (planRecord, error) {
	if s.refusedBy != "" {
		return planRecord{Name: s.Name, Refused: s.refusedBy, Lines: []string{"scenario   " + s.Name, "refused    " + s.refusedBy}}, nil
	}
	p, err := run.MakePlan(s.Scenario)
	if err != nil {
		return planRecord{}, err
	}
	return planRecord{Name: s.Name, Lines: p.Lines}, nil
}
