package main

import (
	"errors"

	"github.com/spf13/cobra"

	"phalanx/config"
	"phalanx/data"
	"phalanx/run"
	"phalanx/telemetry"
)

func (a *app) validateVerb() *cobra.Command {
	var json string
	c := &cobra.Command{
		Use:   "validate FILE… [section.key=value …]",
		Short: "prints every problem of scenarios, and runs nothing",
		Long:  "Prints every problem of every file with line:column, what was found and what is expected; FILE: ok if there is none.",
		RunE:  func(_ *cobra.Command, args []string) error { return a.validate(args, json) },
	}
	c.Flags().StringVar(&json, "json", "", "file for the results, one object a line; - is standard output")
	return c
}

// validation is one file's problems as JSON.
type validation struct {
	File     string          `json:"file"`
	OK       bool            `json:"ok"`
	Problems []problemRecord `json:"problems"`
}

// problemRecord is one problem; line and column are 0 when it has no place in the file.
type problemRecord struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key"`
	Message string `json:"message"`
}

func (a *app) validate(args []string, json string) error {
	files, overrides, err := filesAndOverrides("validate", "scenario FILE", args, false)
	if err != nil {
		return err
	}
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	code := run.ExitHeld
	for _, f := range files {
		problems := check(f, overrides)
		if len(problems) > 0 {
			code = run.ExitBadInput
		}
		if json != "-" {
			a.printProblems(f, problems)
		}
		if err := j.Write(validationOfFile(f, problems)); err != nil {
			return err
		}
	}
	return errors.Join(j.Close(), ended(code))
}

// check is every problem of a file: of its values, and of the data that it names once the values are right.
func check(file string, overrides []string) config.Problems {
	runs, problems := loadFile(file, overrides)
	if len(problems) > 0 {
		return problems
	}
	for _, s := range runs {
		if s.refusedBy == "" {
			problems = append(problems, dataProblems(s)...)
		}
	}
	return append(problems, inputProblems(runs, "", "")...)
}

// dataProblems opens the data of a scenario; variants that share data share its problems.
func dataProblems(s scenario) config.Problems {
	_, err := data.Open(&s.Scenario)
	var bad *data.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &bad):
		return config.Problems{{File: s.file, Message: err.Error()}}
	}
	var problems config.Problems
	for _, p := range bad.Problems {
		problems = append(problems, s.problem("dataset", p.String()))
	}
	return problems
}

func (a *app) printProblems(file string, problems config.Problems) {
	if len(problems) == 0 {
		a.printf("%s: ok\n", file)
		return
	}
	for _, p := range problems {
		a.printf("%s\n", p)
	}
}

func validationOfFile(file string, problems config.Problems) validation {
	v := validation{File: file, OK: len(problems) == 0, Problems: []problemRecord{}}
	for _, p := range problems {
		v.Problems = append(v.Problems, problemRecord(p))
	}
	return v
}
