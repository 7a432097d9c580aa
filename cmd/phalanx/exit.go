package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"phalanx/convert"
	"phalanx/run"
)

// codeError ends the program with a code of the verb's own choice. Without a text everything has been said.
type codeError struct {
	code int
	text string
}

func (e *codeError) Error() string { return e.text }

// usagef is a mistake on the command line: exit 2 with one sentence.
func usagef(format string, args ...any) error {
	return &codeError{code: run.ExitBadInput, text: fmt.Sprintf(format, args...)}
}

// ended is an end of which everything has been said; nil when it is a good one.
func ended(code int) error {
	if code == run.ExitHeld {
		return nil
	}
	return &codeError{code: code}
}

// exitCode is the program's exit code for an error of a verb.
func exitCode(err error) int {
	var coded *codeError
	var unconvertible convert.Problems
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &unconvertible):
		return run.ExitBadInput
	}
	return run.ExitCode(err)
}

const interruptedText = "phalanx: interrupted"

// errorText is what is left to say about an error.
func errorText(err error) string {
	var coded *codeError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &coded):
		return coded.text
	case exitCode(err) == run.ExitInterrupted:
		return interruptedText
	}
	return err.Error()
}

// severity orders exit codes when there are several: an interrupt ends everything, a bad file outweighs a number that
// does not hold, which outweighs a run that failed. Every code of package run is here.
var severity = []int{run.ExitHeld, run.ExitFailed, run.ExitRestarts, run.ExitPoison, run.ExitNotHeld, run.ExitBadInput, run.ExitInterrupted}

// worse is the code that outweighs the other.
func worse(a, b int) int {
	if slices.Index(severity, a) > slices.Index(severity, b) {
		return a
	}
	return b
}

// unknownVerb is what the root command does with whatever is no verb.
func unknownVerb(c *cobra.Command, args []string) error {
	var verbs []string
	for _, v := range c.Commands() {
		if v.Name() != "help" && !v.Hidden {
			verbs = append(verbs, v.Name())
		}
	}
	slices.Sort(verbs)
	if len(args) == 0 {
		return usagef("phalanx: expected a verb, one of %s; `phalanx --help` says what each does", list(verbs))
	}
	return usagef("phalanx: there is no verb %q; the nearest is %q, `phalanx --help` lists all", args[0], nearest(args[0], verbs))
}
