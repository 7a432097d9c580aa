package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with a scenario: where, which key, what was found and what was expected.
type Problem struct {
	File         string // the file as it was named, or `override "…"`
	Line, Column int    // from 1; 0 when the problem has no place in a file
	Key          string // dotted, as an override writes it; list entries by index
	Message      string
}

// String is the problem on one line: place, key, message.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	return b.String() + p.Message
}

// Problems are the problems of one file, in the order of their places.
type Problems []Problem

// Error prints one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err is ps as an error, nil when there is none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// tidy sorts by place, drops repetitions and cuts a report that nobody would read to its end.
func (ps Problems) tidy() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Message, b.Message))
	})
	ps = slices.Compact(ps)
	if len(ps) <= MaxProblems {
		return ps
	}
	more := Problem{File: ps[0].File, Message: fmt.Sprintf("… and %d more problems", len(ps)-MaxProblems)}
	return append(ps[:MaxProblems:MaxProblems], more)
}

// place is where something stands: in a file, or in an override (line 0).
type place struct {
	file         string
	line, column int
}

// problem is a problem at a place.
func (at place) problem(key, message string) Problem {
	return Problem{File: at.file, Line: at.line, Column: at.column, Key: key, Message: message}
}
