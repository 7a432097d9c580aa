package data

import (
	"fmt"
	"strings"
)

// problemsMax bounds a report: nobody reads more, and one wrong field repeats on every line of a file.
const problemsMax = 20

// Problem is one thing that is wrong with the data of a scenario.
type Problem struct {
	Where  string // a file, or a key of the scenario
	Line   int    // 1-based; 0: no line
	Reason string // what was found, what was expected
}

// String reads `FILE:LINE: reason`.
func (p Problem) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", p.Where, p.Line, p.Reason)
	}
	return p.Where + ": " + p.Reason
}

// Error is data that cannot be used: the user has to change a file or a key (exit 2).
type Error struct {
	Problems []Problem
	More     int   // problems beyond those kept
	Err      error // nil, or the cause
}

// Error is one problem a line.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// add keeps a problem, or counts it.
func (e *Error) add(where string, line int, format string, args ...any) {
	if len(e.Problems) == problemsMax {
		e.More++
		return
	}
	e.Problems = append(e.Problems, Problem{Where: where, Line: line, Reason: fmt.Sprintf(format, args...)})
}

// orNil is the error, or nil when there is no problem.
func (e *Error) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// problem is an error of one problem.
func problem(where string, line int, format string, args ...any) error {
	e := &Error{}
	e.add(where, line, format, args...)
	return e
}
