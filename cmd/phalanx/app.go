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
	patience       patience
	leaving        leaving
	self           []string // how processes of a run start this program
}

// Main runs the program with its arguments and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now, self: self()}
	if isTerminal(stderr) {
		a.progress = telemetry.NewProgress(stderr, a.now)
	}
	err := a.execute(signals, args)
	if text := errorText(err); text != "" {
		fmt.Fprintln(a.logs(), text)
	}
	return exitCode(err)
}

// execute runs a verb to its end. An interrupt ends it in a moment, or, if it saves, after the step in progress and a
// checkpoint; a second interrupt ends the process at once.
func (a *app) execute(signals <-chan os.Signal, args []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	root := a.root()
	root.SetArgs(args)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		return err
	case <-signals:
	}
	var moment <-chan time.Time
	if a.patience.ask() {
		fmt.Fprintln(a.logs(), "phalanx: interrupted; the step in progress ends with a checkpoint, a second interrupt ends at once")
	} else {
		cancel()
		moment = time.After(stopGrace)
	}
	select {
	case err := <-done:
		return err
	case <-signals:
	case <-moment:
	}
	a.leaving.leave()
	return errInterrupted
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
		a.convertVerb(), a.megatronArgsVerb(), a.preprocessVerb(), a.replayVerb(), a.simVerb(), a.workerVerb(), a.supervisorVerb(), a.natsServerVerb())
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
