package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"phalanx/run"
	"phalanx/telemetry"
)

// stopGrace is how long an interrupted verb may take to put things away: an interrupt ends the program within a second.
const stopGrace = 950 * time.Millisecond

// app is what every verb needs of the world.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	progress       *telemetry.Progress // nil off a terminal
	verbose        bool
}

// Main runs the program with its arguments and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now}
	if isTerminal(stderr) {
		a.progress = telemetry.NewProgress(stderr, a.now)
	}
	err := a.execute(ctx, stop, args)
	if text := errorText(err); text != "" {
		fmt.Fprintln(a.logs(), text)
	}
	return exitCode(err)
}

// execute runs a verb to its end, or for a moment longer than an interrupt. A second interrupt ends the process at once.
func (a *app) execute(ctx context.Context, stop func(), args []string) error {
	root := a.root()
	root.SetArgs(args)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		stop()
	}
	select {
	case err := <-done:
		return err
	case <-time.After(stopGrace):
		return errInterrupted
	}
}

// root is the command with all verbs.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "phalanx VERB [FILE…] [section.key=value …] [flags]",
		Short:         "phalanx trains language models on CPUs; its ranks close up when one falls",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          unknownVerb,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%s: %v; `%s --help` lists the flags", c.CommandPath(), err, c.CommandPath())
	})
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log what happens inside, on stderr")
	root.AddCommand(a.runVerb(), a.validateVerb(), a.planVerb(), a.verifyVerb(), a.benchVerb(), a.versionVerb(), a.explainVerb(),
		a.convertVerb(), a.megatronArgsVerb(), a.preprocessVerb())
	return root
}

// logs is where logs and errors go: stderr, around the progress line if there is one.
func (a *app) logs() io.Writer {
	if a.progress != nil {
		return a.progress
	}
	return a.stderr
}

// printf writes a result.
func (a *app) printf(format string, args ...any) {
	fmt.Fprintf(a.stdout, format, args...)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// errInterrupted is an interrupt that the verb did not answer in time.
var errInterrupted = &codeError{code: run.ExitInterrupted, text: interruptedText}
