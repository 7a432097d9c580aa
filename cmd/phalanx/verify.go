package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"phalanx/mesh"
	"phalanx/run"
	"phalanx/telemetry"
)

// verifyFlags are the layout and how to launch.
type verifyFlags struct {
	tp, cp, ep, etp, pp, vpp, dp int
	sp                           bool
	dtype, nats, json            string
	procs                        int
}

func (a *app) verifyVerb() *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify CASE.json… [section.key=value …]",
		Short: "compares reference cases with what this program computes, at any layout",
		Long: "Runs reference cases and prints the worst relative error of every quantity. Exit 0: all hold; 3: a number does not; " +
			"2: a file or a layout that the case cannot take.",
		RunE: func(c *cobra.Command, args []string) error { return a.verify(c, args, f) },
	}
	for _, s := range f.sizes() {
		c.Flags().IntVar(s.value, s.name, 0, s.about+" (default: the case's own)")
	}
	c.Flags().BoolVar(&f.sp, "sp", false, "sequence parallel")
	c.Flags().StringVar(&f.dtype, "dtype", "fp64", "fp64 or fp32")
	c.Flags().StringVar(&f.nats, "nats", "", "URL of a running NATS server; without it one runs inside this process")
	c.Flags().IntVar(&f.procs, "procs", 0, "processes to spread the ranks over")
	c.Flags().StringVar(&f.json, "json", "", "file for the results, one object a line; - is standard output")
	return c
}

// sizeFlag is one size of the layout.
type sizeFlag struct {
	value       *int
	name, about string
}

func (f *verifyFlags) sizes() []sizeFlag {
	return []sizeFlag{
		{&f.tp, "tp", "tensor parallel size"}, {&f.cp, "cp", "context parallel size"}, {&f.ep, "ep", "expert parallel size"},
		{&f.etp, "etp", "expert tensor parallel size"}, {&f.pp, "pp", "pipeline parallel size"},
		{&f.vpp, "vpp", "virtual pipeline size"}, {&f.dp, "dp", "data parallel size"},
	}
}

// check refuses what no case can take.
func (f *verifyFlags) check(c *cobra.Command) error {
	for _, s := range f.sizes() {
		if c.Flags().Changed(s.name) && *s.value < 1 {
			return usagef("phalanx verify: found --%s %d, expected 1 or more", s.name, *s.value)
		}
	}
	if err := checkNATS(c); err != nil {
		return err
	}
	if f.dtype != "fp64" && f.dtype != "fp32" {
		return usagef("phalanx verify: found --dtype %s, expected fp64 or fp32", f.dtype)
	}
	return nil
}

func (a *app) verify(c *cobra.Command, args []string, f verifyFlags) error {
	cases, overrides, err := filesAndOverrides("verify", "reference CASE.json", args, false)
	if err != nil {
		return err
	}
	if err := f.check(c); err != nil {
		return err
	}
	if err := checkProcs(c, f.procs); err != nil {
		return err
	}
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	options := run.VerifyOptions{Sizes: mesh.Sizes{TP: f.tp, CP: f.cp, DP: f.dp, PP: f.pp}, EP: f.ep, ETP: f.etp, VPP: f.vpp,
		SP: f.sp, DType: f.dtype, Overrides: overrides, NATS: f.nats, Procs: f.procs, Self: a.self, OnAbandon: a.leaving.add, Logger: a.logger(nil)}
	code := run.ExitHeld
	for i, path := range cases {
		one, err := a.verifyCase(c.Context(), path, options, i > 0 && f.json != "-", f.json == "-", j)
		if code = worse(code, one); err != nil || one == run.ExitInterrupted {
			return errors.Join(err, ended(code), j.Close())
		}
	}
	return errors.Join(j.Close(), ended(code))
}

// failedCase is the JSON line of a case that could not be compared.
type failedCase struct {
	Case  string `json:"case"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
}

// verifyCase verifies one case and prints it. The error is one of writing.
func (a *app) verifyCase(ctx context.Context, path string, o run.VerifyOptions, gap, quiet bool, j *telemetry.JSON) (int, error) {
	r, err := run.Verify(ctx, path, o)
	if err != nil {
		fmt.Fprintln(a.logs(), errorText(err))
		return run.ExitCode(err), j.Write(failedCase{Case: path, Error: err.Error()})
	}
	if !quiet {
		if gap {
			a.printf("\n")
		}
		printCase(a.stdout, r)
	}
	code := run.ExitHeld
	if !r.OK {
		code = run.ExitNotHeld
	}
	return code, j.Write(r)
}

// printCase prints the table of a case: quantity, worst error, tolerance, place.
func printCase(w io.Writer, r *run.VerifyResult) {
	fmt.Fprintf(w, "%s | %s | %s\n", r.Case, layoutText(r.Layout), r.DType)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  quantity\tworst error\ttolerance\t\tat\n")
	failed := 0
	for _, q := range r.Quantities {
		verdict := "ok"
		if !q.OK() {
			verdict = "FAILS"
			failed++
		}
		tolerance := fmt.Sprintf("%.0e", q.Tolerance)
		if q.Tolerance == 0 {
			tolerance = "exact"
		}
		fmt.Fprintf(t, "  %s\t%.3e\t%s\t%s\t%s\n", q.Name, q.Error, tolerance, verdict, q.Where)
	}
	t.Flush()
	if failed > 0 {
		fmt.Fprintf(w, "  %d of %d quantities DO NOT HOLD\n", failed, len(r.Quantities))
		return
	}
	fmt.Fprintf(w, "  all %d quantities hold\n", len(r.Quantities))
}

// layoutOrder is the order in which sizes are printed.
var layoutOrder = []string{"tp", "cp", "ep", "etp", "pp", "vpp", "dp", "sp"}

// layoutText is "tp 2 cp 1 … sp 0".
func layoutText(layout map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(layout), func(a, b string) int {
		return slices.Index(layoutOrder, a) - slices.Index(layoutOrder, b)
	})
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = fmt.Sprintf("%s %d", k, layout[k])
	}
	return strings.Join(parts, " ")
}
