package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"phalanx/explain"
	"phalanx/telemetry"
)

// explainFlags choose the microbatch and where the page and the JSON go.
type explainFlags struct {
	step       int
	microbatch int
	html       string
	json       string
}

func (a *app) explainVerb() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain FILE [section.key=value …]",
		Short: "prints what every loss sees of a batch: tokens, masks, owners, denominators",
		Long: "Prints, for one microbatch of the data that training uses, per position and for the LM head and each MTP depth: input token,\n" +
			"label, loss mask, padding mask, position id, document and owner rank, and what the losses are divided by. Runs nothing.",
		RunE: func(_ *cobra.Command, args []string) error { return a.explain(args, f) },
	}
	c.Flags().IntVar(&f.step, "step", 1, "step, from 1")
	c.Flags().IntVar(&f.microbatch, "microbatch", 0, "microbatch of the step, from 0, over all data-parallel ranks")
	c.Flags().StringVar(&f.html, "html", "", "file for a page with the same as coloured grids; - is standard output")
	c.Flags().StringVar(&f.json, "json", "", "file for everything, one object a line; - is standard output")
	return c
}

// notExplained is what stands for the report of a scenario that is refused as it expects.
type notExplained struct {
	Name    string `json:"name"`
	Refused string `json:"refused"`
}

func (a *app) explain(args []string, f explainFlags) error {
	files, overrides, err := filesAndOverrides("explain", "scenario FILE", args, true)
	if err != nil {
		return err
	}
	if f.html == "-" && f.json == "-" {
		return usagef("phalanx explain: found --html - and --json -, expected a file for one of them")
	}
	all, problems := load(files, overrides)
	if len(problems) > 0 {
		return problems
	}
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	var reports []*explain.Report
	for i, s := range all {
		r, err := a.explainOne(s, f, i, j)
		if err != nil {
			return errors.Join(err, j.Close())
		}
		if r != nil {
			reports = append(reports, r)
		}
	}
	return errors.Join(a.writePage(f.html, reports), j.Close())
}

// explainOne prints one run of the file. It has no report if it is refused as it expects.
func (a *app) explainOne(s scenario, f explainFlags, i int, j *telemetry.JSON) (*explain.Report, error) {
	text := f.json != "-" && f.html != "-"
	if text {
		a.printf("%s", strings.Repeat("\n", min(i, 1)))
	}
	if s.refusedBy != "" {
		if text {
			a.printf("explain    %s\nrefused    %s\n", s.Name, s.refusedBy)
		}
		return nil, j.Write(notExplained{Name: s.Name, Refused: s.refusedBy})
	}
	r, err := explain.Make(s.Scenario, explain.Options{Step: f.step, Microbatch: f.microbatch})
	var outside *explain.RangeError
	switch {
	case errors.As(err, &outside):
		return nil, usagef("phalanx explain: %s: %v", s.Name, outside)
	case err != nil:
		return nil, err
	}
	if text {
		a.printf("%s", explain.Text(r))
	}
	return r, j.Write(r)
}

// writePage writes one page of all reports.
func (a *app) writePage(path string, reports []*explain.Report) error {
	if path == "" {
		return nil
	}
	page, err := explain.HTML(reports)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	if path == "-" {
		_, err = a.stdout.Write(page)
		return err
	}
	if err := os.WriteFile(path, page, 0o644); err != nil {
		return usagef("--html: the page cannot be written: %v; expected a file in a folder that exists, or - for standard output", err)
	}
	return nil
}
