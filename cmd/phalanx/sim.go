package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"phalanx/config"
	"phalanx/recovery"
	"phalanx/run"
	"phalanx/sim"
	"phalanx/telemetry"
)

// simFlags choose the seeds and what becomes of a failing one.
type simFlags struct {
	seeds    string
	minimize bool
	json     string
	planted  string
}

func (a *app) simVerb() *cobra.Command {
	var f simFlags
	c := &cobra.Command{
		Use:   "sim FILE --seeds A-B [section.key=value …]",
		Short: "runs a scenario in one goroutine on virtual time under seeded faults and checks what recovery promises",
		Long: "Runs the whole job of a scenario, with its own model, layout and data, in one goroutine on virtual time, once for each seed. A seed\n" +
			"draws its faults: processes that die, stop or are taken for dead, messages that are lost, doubled or damaged, links that begin anew,\n" +
			"full disks, supervisors that die. A scenario with faults has those, and a seed draws the order of events only. After every event the\n" +
			"promises of recovery are checked; the first seed that breaks one ends the run with exit code 3 and the command that repeats it.",
		RunE: func(c *cobra.Command, args []string) error { return a.sim(c.Context(), args, f) },
	}
	c.Flags().StringVar(&f.seeds, "seeds", "0-99", "first and last seed, as 0-499, or one")
	c.Flags().BoolVar(&f.minimize, "minimize", false, "find the faults without which a failing seed does not fail")
	c.Flags().StringVar(&f.json, "json", "", "file for the result, one object a line; - is standard output")
	c.Flags().StringVar(&f.planted, "planted", "", "a bug of the protocol, to test the simulator")
	_ = c.Flags().MarkHidden("planted")
	return c
}

// simRecord is a result as JSON.
type simRecord struct {
	Name      string         `json:"name"`
	Refused   string         `json:"refused,omitempty"` // why it does not run, if it expects that
	Ranks     int            `json:"ranks"`
	Steps     int            `json:"steps"`
	Schedules int            `json:"schedules"`
	Seconds   float64        `json:"seconds"`
	PerMinute float64        `json:"per_minute"`
	Restarts  int            `json:"restarts"`
	Jumps     int            `json:"jumps"`
	Messages  int            `json:"messages"`
	Faults    map[string]int `json:"faults"`
	Failure   *simFailure    `json:"failure,omitempty"`
}

type simFailure struct {
	Seed      uint64   `json:"seed"`
	Promise   string   `json:"promise"`
	AtUs      int64    `json:"at_us"`
	Cause     string   `json:"cause"`
	Trace     string   `json:"trace"`
	Minimized bool     `json:"minimized"`
	Events    []string `json:"events"`
	Repeat    string   `json:"repeat"`
}

func (a *app) sim(ctx context.Context, args []string, f simFlags) error {
	files, overrides, err := filesAndOverrides("sim", "scenario FILE", args, true)
	if err != nil {
		return err
	}
	from, until, err := seedRange(f.seeds)
	if err != nil {
		return err
	}
	all, problems := load(files, overrides)
	if len(problems) > 0 {
		return problems
	}
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	code := run.ExitHeld
	for i, s := range all {
		r, err := a.simOne(ctx, s, from, until, f, repeatOf(files[0], overrides, f.planted))
		if err != nil {
			return errors.Join(of(s, len(all), err), j.Close())
		}
		if f.json != "-" {
			a.printf("%s%s", strings.Repeat("\n", min(i, 1)), r.text())
		}
		if r.Failure != nil {
			code = run.ExitNotHeld
		}
		if err := j.Write(r); err != nil {
			return err
		}
	}
	return errors.Join(j.Close(), ended(code))
}

// of names the run of a file in an error, if there are several and it is no problem, which has its place.
func of(s scenario, scenarios int, err error) error {
	var problems config.Problems
	if scenarios == 1 || errors.As(err, &problems) || errors.Is(err, errInterrupted) {
		return err
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

// repeatOf is the command for a file, up to its seeds.
func repeatOf(file string, overrides []string, planted string) string {
	words := append([]string{"phalanx", "sim", file}, overrides...)
	if planted != "" {
		words = append(words, "--planted", planted)
	}
	for i, w := range words {
		if strings.ContainsAny(w, " \t\"'$&|<>(){}[]*?#;\\") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Seeds have a bit less than a word, so that there is a number behind the last.
const (
	seedBits = 63
	seedMax  = uint64(1)<<seedBits - 1
)

// seedRange reads A-B, both included, or A.
func seedRange(text string) (from, until uint64, err error) {
	first, last, two := strings.Cut(text, "-")
	if !two {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, seedBits)
	to, err2 := strconv.ParseUint(last, 10, seedBits)
	if errors.Is(errors.Join(err1, err2), strconv.ErrRange) {
		return 0, 0, usagef("phalanx sim: --seeds: found %q, expected seeds from 0 to %d", text, seedMax)
	}
	if err1 != nil || err2 != nil || to < from {
		return 0, 0, usagef("phalanx sim: --seeds: found %q, expected a first and a last seed, as 0-499, or one", text)
	}
	return from, to + 1, nil
}

// simOne simulates one run of the file.
func (a *app) simOne(ctx context.Context, s scenario, from, until uint64, f simFlags, repeat string) (*simRecord, error) {
	if s.refusedBy != "" {
		return &simRecord{Name: s.Name, Refused: s.refusedBy}, nil
	}
	o := sim.OptionsOf(&s.Scenario)
	var err error
	if o.Planted, o.Shell, err = plantedBug(f.planted); err != nil {
		return nil, err
	}
	job, err := sim.Open(s.Scenario)
	if err != nil {
		return nil, simProblem(s, err)
	}
	o.Stop = func() bool { return ctx.Err() != nil }
	start := a.now()
	total := job.Sweep(from, until, o)
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if total.Failure != nil && f.minimize {
		total.Failure = job.Minimize(total.Failure)
	}
	return recordOf(s.Name, job, total, a.now().Sub(start), repeat), nil
}

// simProblem is a scenario that cannot be simulated, at the key that says so.
func simProblem(s scenario, err error) error {
	var e *sim.ScenarioError
	if errors.As(err, &e) {
		return config.Problems{s.problem(e.Key, e.Why)}
	}
	return err
}

// plantedBug finds a bug by its name.
func plantedBug(name string) (recovery.Bug, sim.Bug, error) {
	var names []string
	for _, b := range recovery.Bugs() {
		if names = append(names, b.String()); b.String() == name {
			return b, sim.None, nil
		}
	}
	for _, b := range sim.Bugs() {
		if names = append(names, b.String()); b.String() == name {
			return recovery.None, b, nil
		}
	}
	if name != "" {
		return 0, 0, usagef("phalanx sim: --planted: found %q, expected one of %s", name, list(names))
	}
	return recovery.None, sim.None, nil
}

func recordOf(name string, job *sim.Job, s sim.Summary, took time.Duration, repeat string) *simRecord {
	r := &simRecord{Name: name, Ranks: job.Ranks(), Steps: job.Steps(), Schedules: s.Schedules, Seconds: took.Seconds(),
		PerMinute: float64(s.Schedules) / took.Minutes(), Restarts: s.Restarts, Jumps: s.Jumps, Messages: s.Messages, Faults: s.Faults}
	if e := s.Failure; e != nil {
		r.Failure = &simFailure{Seed: e.Options.Seed, Promise: string(e.Broken), AtUs: e.At, Cause: e.Cause.Error(), Trace: fmt.Sprintf("%016x", e.Trace), Minimized: e.Minimized,
			Events: []string{}, Repeat: fmt.Sprintf("%s --seeds %d --minimize", repeat, e.Options.Seed)}
		for _, ev := range e.Events {
			r.Failure.Events = append(r.Failure.Events, ev.String())
		}
	}
	return r
}

// text is the result for people.
func (r *simRecord) text() string {
	var b strings.Builder
	if r.Refused != "" {
		fmt.Fprintf(&b, "sim        %s\nrefused    %s\n", r.Name, r.Refused)
		return b.String()
	}
	fmt.Fprintf(&b, "sim        %s: %d ranks, %d steps\n", r.Name, r.Ranks, r.Steps)
	fmt.Fprintf(&b, "schedules  %d in %.1f s, %.0f a minute\n", r.Schedules, r.Seconds, r.PerMinute)
	faults := make([]string, 0, len(r.Faults))
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, r.Faults[kind]))
	}
	if len(faults) == 0 {
		faults = []string{"none"}
	}
	fmt.Fprintf(&b, "faults     %s\n", strings.Join(faults, ", "))
	fmt.Fprintf(&b, "answers    %d restarts, %d jumps, %d messages\n", r.Restarts, r.Jumps, r.Messages)
	if r.Failure == nil {
		fmt.Fprintf(&b, "promises   I1 to I10 hold\n")
		return b.String()
	}
	f := r.Failure
	fmt.Fprintf(&b, "failed     seed %d breaks %s at %d µs: %s\n", f.Seed, f.Promise, f.AtUs, f.Cause)
	if f.Minimized {
		fmt.Fprintf(&b, "needs      %d faults, none of which can be left out\n", len(f.Events))
	} else {
		fmt.Fprintf(&b, "after      %d faults\n", len(f.Events))
	}
	for _, e := range f.Events[:min(len(f.Events), eventsShown)] {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	if more := len(f.Events) - eventsShown; more > 0 {
		fmt.Fprintf(&b, "  … and %d more; --json FILE has all of them, --minimize finds those that matter\n", more)
	}
	fmt.Fprintf(&b, "repeat     %s\n", f.Repeat)
	return b.String()
}

// eventsShown bounds what is printed of a seed that was not minimised.
const eventsShown = 40
