package convert

import (
	"fmt"
	"strings"
)

// Problem is one thing of the input that cannot be taken: where it stands, what it is called, what was found and what
// was expected.
type Problem struct {
	Where string // file, with :line:column when there is a place
	Name  string // field, tensor or key
	Text  string
}

// String is the problem on one line.
func (p Problem) String() string {
	parts := []string{p.Where, p.Name, p.Text}
	if p.Name == "" {
		parts = []string{p.Where, p.Text}
	}
	return strings.Join(parts, ": ")
}

// problemsMax bounds a report: a file of the wrong model repeats itself for every expert of every layer.
const problemsMax = 40

// Problems is an input that cannot be taken (exit 2), with everything that is wrong with it.
type Problems []Problem

// Error is a problem a line.
func (ps Problems) Error() string {
	lines := make([]string, 0, min(len(ps), problemsMax+1))
	for i, p := range ps {
		if i == problemsMax {
			lines = append(lines, fmt.Sprintf("… and %d more problems", len(ps)-i))
			break
		}
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// err is ps as an error; nil when there is none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// one is a single problem as an error.
func one(where, name, format string, args ...any) error {
	return Problems{{Where: where, Name: name, Text: fmt.Sprintf(format, args...)}}
}
