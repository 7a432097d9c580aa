package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"phalanx/config"
	"phalanx/run"
	"phalanx/telemetry"
)

// runFlags say how to launch; what to train is the scenario.
type runFlags struct {
	nats           string
	json           string
	out            string
	procs          int
	resume         bool
	listQuantities bool
}

func (a *app) runVerb() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run FILE… [section.key=value …]",
		Short: "runs scenarios",
		Long:  "Runs scenarios one after the other and checks what they expect. Overrides hold for every file.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkNATS(c); err != nil {
				return err
			}
			if err := checkProcs(c, f.procs); err != nil {
				return err
			}
			return a.run(c.Context(), args, f)
		},
	}
	c.Flags().StringVar(&f.nats, "nats", "", "URL of a running NATS server; without it one runs inside this process")
	c.Flags().StringVar(&f.json, "json", "", "file for the results, one object a line; - is standard output")
	c.Flags().StringVar(&f.out, "out", "", "folder for logs, report and checkpoints")
	c.Flags().IntVar(&f.procs, "procs", 0, "processes to spread the ranks over; one that dies is started again alone")
	c.Flags().BoolVar(&f.resume, "resume", false, "go on from the newest checkpoint in checkpoint.save, if there is one")
	c.Flags().BoolVar(&f.listQuantities, "list-quantities", false, "print the names that expectations can use, and run nothing")
	return c
}

// checkNATS refuses --nats without a value, as an unset variable of a shell gives it: it would start a server of its own.
func checkNATS(c *cobra.Command) error {
	if f := c.Flags().Lookup("nats"); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return usagef("phalanx %s: --nats has no value, expected the URL of a NATS server as nats://127.0.0.1:4222; without the flag one runs inside this process", c.Name())
	}
	return nil
}

// checkProcs refuses a number of processes that there cannot be.
func checkProcs(c *cobra.Command, procs int) error {
	if c.Flags().Changed("procs") && procs < 1 {
		return usagef("phalanx %s: --procs: found %d, expected 1 or more processes; without the flag all ranks are in this one", c.Name(), procs)
	}
	return nil
}

// run loads every file before anything runs, so that a bad last file does not cost the time of those before it.
func (a *app) run(ctx context.Context, args []string, f runFlags) error {
	files, overrides, err := filesAndOverrides("run", "scenario FILE", args, false)
	if err != nil {
		return err
	}
	all, problems := load(files, overrides)
	if len(problems) > 0 {
		return problems
	}
	if f.listQuantities {
		return a.listQuantities(all)
	}
	if problems := append(inputProblems(all, f.out, f.json), processProblems(all, f.procs)...); len(problems) > 0 {
		return problems
	}
	for _, s := range all {
		if f.resume && s.Checkpoint.Save == "" {
			return usagef("--resume: %s has no checkpoint.save, where it would have kept its checkpoints; set it, or name one with checkpoint.load", s.Name)
		}
	}
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	code := run.ExitHeld
	var saved kept
	for i, s := range all {
		if s, err = saved.located(s); err != nil {
			return errors.Join(err, j.Close())
		}
		saved.add(s.Scenario, folder(f.out, s.Name, len(all)))
		one, err := a.runScenario(ctx, s, f, folder(f.out, s.Name, len(all)), heading(i, len(all), s.Name), j)
		if i+1 < len(all) && a.patience.spent() {
			one = run.ExitInterrupted
		}
		if err != nil {
			fmt.Fprintln(a.logs(), errorText(err))
			one = worse(one, exitCode(err))
		}
		if code = worse(code, one); err != nil || one == run.ExitInterrupted {
			return errors.Join(ended(code), j.Close())
		}
	}
	return errors.Join(j.Close(), ended(code))
}

// processProblems are keys that need processes where there are none.
func processProblems(all []scenario, procs int) (problems config.Problems) {
	for _, s := range all {
		switch world := s.Sizes().World(); {
		case s.refusedBy != "":
		case procs == 0:
			problems = append(problems, s.NeedsProcs...)
		case procs > world:
			problems = append(problems, config.Problem{File: s.file, Message: fmt.Sprintf("%s has %s; --procs %d is more than one process for each", s.Name, plural(world, "rank"), procs)})
		}
	}
	return problems
}

// folder is where a scenario's files go: --out itself, or a folder per scenario if there are several.
func folder(out, name string, scenarios int) string {
	if out == "" || scenarios == 1 {
		return out
	}
	return filepath.Join(out, filepath.FromSlash(name))
}

// heading announces one of several scenarios.
func heading(i, scenarios int, name string) string {
	if scenarios == 1 {
		return ""
	}
	return fmt.Sprintf("scenario %d of %d: %s", i+1, scenarios, name)
}

// runScenario runs one scenario and prints it. The error is one of writing; how the run went is in the code.
func (a *app) runScenario(ctx context.Context, s scenario, f runFlags, dir, head string, j *telemetry.JSON) (int, error) {
	out, err := newOutDir(dir)
	if err != nil {
		return run.ExitBadInput, err
	}
	defer out.close()
	console := telemetry.NewConsole(telemetry.ConsoleOptions{Out: out.lines(a.lines(f)), LogInterval: s.Logger.LogInterval,
		Now: a.now, Progress: a.progress})
	if head != "" {
		console.Text(head)
	}
	o := run.Options{NATS: f.nats, Procs: f.procs, Self: a.self, Out: dir, Listen: listener(console), Logger: a.logger(out.logs()), Resume: f.resume,
		OnAbandon: a.leaving.add}
	if s.Checkpoint.Save != "" {
		stop, end := a.patience.begin()
		defer end()
		o.Stop = stop
	}
	if f.procs > 0 {
		asked, end := ask()
		defer end()
		o.Ask = asked
	}
	report, err := a.train(ctx, s, o)
	code := run.ExitCode(err)
	if code == run.ExitHeld && report.Verdict != "pass" {
		code = run.ExitNotHeld
	}
	if err == nil || len(report.Steps) > 0 {
		for _, line := range outcome(report) {
			console.Text(line)
		}
	}
	if code == run.ExitPoison && (report.Recording != nil || report.Bundle != "") {
		console.Text(fmt.Sprintf("the rank can be looked at alone: phalanx replay %s --rank R", cmp.Or(report.Bundle, dir)))
	}
	closed := console.Close()
	if text := errorText(err); text != "" {
		fmt.Fprintf(a.logs(), "%s\n", text)
	}
	return code, errors.Join(closed, out.lost(), j.Write(report), writeReport(dir, report))
}

// lines is where console lines go: not where JSON goes.
func (a *app) lines(f runFlags) io.Writer {
	if f.json == "-" {
		return a.logs()
	}
	return a.stdout
}

// train executes a scenario, or reports the refusal that it expects. There is always a report.
func (a *app) train(ctx context.Context, s scenario, o run.Options) (*run.Report, error) {
	if s.refusedBy != "" {
		return refusedReport(s), nil
	}
	report, err := run.Execute(ctx, s.Scenario, o)
	if key := (*run.KeyError)(nil); errors.As(err, &key) {
		err = config.Problems{s.problem(key.Key, key.Err.Error())}
	}
	if report == nil {
		report = emptyReport(s.Name)
	}
	if err != nil {
		report.Verdict, report.Error = "fail", err.Error()
	}
	if report.Steps == nil {
		report.Steps = []run.StepFigures{}
	}
	return report, err
}

// emptyReport is a report of nothing, with lists where scripts expect lists.
func emptyReport(name string) *run.Report {
	return &run.Report{Name: name, Verdict: "fail", Steps: []run.StepFigures{}, Expect: []run.ExpectResult{},
		Messages: map[string]run.Count{}, RecoveryMs: []float64{}}
}

// refusedReport is the report of a scenario that was refused as it expects.
func refusedReport(s scenario) *run.Report {
	text, _ := s.ExpectsRefusal()
	r := emptyReport(s.Name)
	r.Verdict = "pass"
	r.Expect = append(r.Expect, run.ExpectResult{Text: "refused: " + text, OK: true, Got: s.refusedBy})
	return r
}

// outcome is what stands below the last step.
func outcome(r *run.Report) []string {
	lines := append([]string(nil), r.Reports...)
	for _, u := range r.FaultsUnused {
		lines = append(lines, u.String())
	}
	for _, e := range r.Expect {
		verdict := "holds"
		if !e.OK {
			verdict = "DOES NOT HOLD"
		}
		lines = append(lines, fmt.Sprintf("expect %s: %s, got %s", e.Text, verdict, e.Got))
	}
	parts := []string{fmt.Sprintf("%s: %s", r.Name, r.Verdict), plural(len(r.Steps), "step")}
	if r.TokensPerS > 0 {
		parts = append(parts, fmt.Sprintf("%.0f tokens/s", r.TokensPerS))
	}
	if r.PeakRSSBytes > 0 {
		parts = append(parts, "peak RSS "+bytesText(r.PeakRSSBytes))
	}
	if c := r.Recording; c != nil {
		text := "recording " + bytesText(c.Bytes)
		if c.TimeShare > 0 {
			text += fmt.Sprintf(", %.1f %% of the computing time", 100*c.TimeShare)
		}
		parts = append(parts, text)
	}
	if r.Transport != "" {
		parts = append(parts, r.Transport)
	}
	if r.WeightsSHA256 != "" {
		parts = append(parts, "weights "+r.WeightsSHA256)
	}
	return append(lines, strings.Join(parts, " | "))
}

// writeReport keeps the report in --out.
func writeReport(dir string, r *run.Report) error {
	if dir == "" {
		return nil
	}
	j, err := telemetry.OpenJSON(filepath.Join(dir, "report.json"), nil)
	if err != nil {
		return err
	}
	return errors.Join(j.Write(r), j.Close())
}

// listQuantities prints what expectations can name.
func (a *app) listQuantities(all []scenario) error {
	for i, s := range all {
		if len(all) > 1 {
			a.printf("%s%s:\n", strings.Repeat("\n", min(i, 1)), s.Name)
		}
		names, err := run.Quantities(s.Scenario)
		if err != nil {
			return err
		}
		for _, n := range names {
			fmt.Fprintln(a.stdout, n)
		}
	}
	return nil
}
