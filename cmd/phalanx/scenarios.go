package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/config"
	"phalanx/run"
)

// scenario is one run of a file. With refusedBy it was refused while loading, as it expects.
type scenario struct {
	config.Scenario
	file      string
	refusedBy string
	problem   func(key, message string) config.Problem // where the key is set
}

// fileAndVariant splits FILE#VARIANT, unless a file has that name.
func fileAndVariant(path string) (file, variant string) {
	at := strings.LastIndexByte(path, '#')
	if at < 0 {
		return path, ""
	}
	if _, err := os.Stat(path); err == nil {
		return path, ""
	}
	return path[:at], path[at+1:]
}

// load reads scenario files. The problems are those that nobody expects.
func load(files, overrides []string) (all []scenario, problems config.Problems) {
	for _, f := range files {
		runs, bad := loadFile(f, overrides)
		all, problems = append(all, runs...), append(problems, bad...)
	}
	return all, problems
}

// loadFile reads one file, or FILE#VARIANT: one run of it, whatever the others are. A run that expects a refusal has what it wants when one of its problems contains the text;
// its problems are then no problems of the file, unless another run has them too.
func loadFile(path string, overrides []string) ([]scenario, config.Problems) {
	path, variant := fileAndVariant(path)
	file, problems := config.Load(path, overrides)
	if variant != "" && len(file.Runs()) > 0 {
		return loadVariant(file, variant)
	}
	runs := make([]scenario, 0, len(file.Runs()))
	var expected, open config.Problems
	for i := range file.Runs() {
		mine := file.RunProblems(i)
		r := runOf(file, i)
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

// runOf is run i of a file.
func runOf(file *config.File, i int) scenario {
	s := file.Runs()[i]
	return scenario{Scenario: s, file: file.Name, refusedBy: refusedBy(s, file.RunProblems(i)),
		problem: func(key, message string) config.Problem { return file.RunProblem(i, key, message) }}
}

// loadVariant is one run of a file, by the name of its variant.
func loadVariant(file *config.File, variant string) ([]scenario, config.Problems) {
	var names []string
	for i, v := range file.Base.Variants {
		if v.Name != variant {
			names = append(names, v.Name)
			continue
		}
		r := runOf(file, i)
		if r.refusedBy != "" {
			return []scenario{r}, nil
		}
		return []scenario{r}, file.RunProblems(i)
	}
	message := "has no variants; name the file alone"
	if len(names) > 0 {
		message = "expected one of its variants after #: " + list(names)
		if best := config.Nearest(variant, names); best != "" {
			message = "did you mean " + file.Name + "#" + best + "?"
		}
	}
	return nil, config.Problems{{File: file.Name, Message: fmt.Sprintf("found no variant %q; ", variant) + message}}
}

// inputProblems are those of names in expectations, and of checkpoints that runs begin with and no run before them leaves;
// out is --out.
func inputProblems(all []scenario, out string) (problems config.Problems) {
	var before kept
	for _, s := range all {
		if s.refusedBy != "" {
			continue
		}
		bad := run.CheckNames(s.Scenario)
		if e := run.CheckRecording(s.Recovery.Recording, out); e != nil {
			bad = append(bad, e)
		}
		if _, made := before.find(s.Scenario); !made {
			if e := run.CheckLoad(s.Scenario, out); e != nil {
				bad = append(bad, e)
			}
		}
		for _, e := range bad {
			if p := s.problem(e.Key, e.Err.Error()); !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
		}
		before.add(s.Scenario, "")
	}
	return problems
}

// kept are the folders that runs of this command save to: as they name them, and where they are.
type kept []struct{ save, dir string }

// add notes where a run saves; out is its folder.
func (k *kept) add(s config.Scenario, out string) {
	if s.Checkpoint.Save == "" {
		return
	}
	dir := s.Checkpoint.Save
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(out, dir)
	}
	*k = append(*k, struct{ save, dir string }{filepath.Clean(s.Checkpoint.Save), dir})
}

// find is where what a run loads is, if a run before it has saved it: the last that names the same folder. A run that saves
// there itself goes on from what is its own.
func (k kept) find(s config.Scenario) (string, bool) {
	load := filepath.Clean(s.Checkpoint.Load)
	for i := len(k) - 1; i >= 0 && s.Checkpoint.Load != ""; i-- {
		rest, err := filepath.Rel(k[i].save, load)
		inside := err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
		if inside && k[i].save != filepath.Clean(s.Checkpoint.Save) {
			return filepath.Join(k[i].dir, rest), true
		}
	}
	return "", false
}

// located is checkpoint.load of a run, as an absolute path where an earlier run has saved it below a folder of its own.
func (k kept) located(s scenario) (string, error) {
	if dir, ok := k.find(s.Scenario); ok {
		return filepath.Abs(dir)
	}
	return s.Checkpoint.Load, nil
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
