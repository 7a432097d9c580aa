package main

import (
	"strings"

	"phalanx/config"
)

// scenario is one run of a file. With refusedBy it was refused while loading, as it expects.
type scenario struct {
	config.Scenario
	file      string
	refusedBy string
}

// load reads scenario files. The problems are those that nobody expects.
func load(files, overrides []string) (all []scenario, problems config.Problems) {
	for _, f := range files {
		runs, bad := loadFile(f, overrides)
		all, problems = append(all, runs...), append(problems, bad...)
	}
	return all, problems
}

// loadFile reads one file. A run that expects a refusal has what it wants when one of its problems contains the text;
// its problems are then no problems of the file, unless another run has them too.
func loadFile(path string, overrides []string) ([]scenario, config.Problems) {
	file, problems := config.Load(path, overrides)
	runs := make([]scenario, 0, len(file.Runs()))
	var expected, open config.Problems
	for i, s := range file.Runs() {
		mine := file.RunProblems(i)
		r := scenario{Scenario: s, file: path, refusedBy: refusedBy(s, mine)}
		if r.refusedBy != "" {
			expected = append(expected, mine...)
		} else {
			open = append(open, mine...)
		}
		runs = append(runs, r)
	}
	var left config.Problems
	for _, p := range problems {
		if !among(expected, p) || among(open, p) {
			left = append(left, p)
		}
	}
	return runs, left
}

// refusedBy is the problem that a scenario expects to be refused with; "" if there is none.
func refusedBy(s config.Scenario, problems config.Problems) string {
	text, ok := s.ExpectsRefusal()
	if !ok {
		return ""
	}
	for _, p := range problems {
		if strings.Contains(p.String(), text) {
			return p.String()
		}
	}
	return ""
}

// among reports whether a file's problem is one of a run's: the file adds which variants have it.
func among(of config.Problems, p config.Problem) bool {
	for _, o := range of {
		if o.File == p.File && o.Line == p.Line && o.Column == p.Column && o.Key == p.Key && strings.HasPrefix(p.Message, o.Message) {
			return true
		}
	}
	return false
}
