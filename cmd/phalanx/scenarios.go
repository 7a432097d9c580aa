package main

import (
	"errors"
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
// out is --out, json is --json.
func inputProblems(all []scenario, out, json string) (problems config.Problems) {
	var before kept
	for i, s := range all {
		if s.refusedBy != "" {
			continue
		}
		bad := run.CheckNames(s.Scenario)
		if e := run.CheckRecording(s.Recovery.Recording, out); e != nil {
			bad = append(bad, e)
		}
		bad = append(bad, run.CheckFiles(s.Scenario, folder(out, s.Name, len(all)), func(file string) bool {
			return i > 0 && file == json || before.has(file, s.Scenario) || besides(out, folder(out, s.Name, len(all)), file)
		})...)
		if _, made := before.find(s.Checkpoint.Load, s.Scenario); !made {
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

// has says whether a run before one has saved what it names.
func (k kept) has(file string, s config.Scenario) bool {
	_, ok := k.find(file, s)
	return ok
}

// besides says whether a file that a run names in its folder, out is --out, is in the folder of another run there.
func besides(out, own, file string) bool {
	if out == own || filepath.IsAbs(file) {
		return false
	}
	path := filepath.Join(own, file)
	return run.Inside(out, path) && !run.Inside(own, path)
}

// find is where what a run names, to load it or to be compared with it, is, if a run before it has saved it: the last that
// names the same folder. A run that saves there itself goes on from what is its own.
func (k kept) find(file string, s config.Scenario) (string, bool) {
	name := filepath.Clean(file)
	for i := len(k) - 1; i >= 0 && file != ""; i-- {
		rest, err := filepath.Rel(k[i].save, name)
		inside := err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
		if inside && k[i].save != filepath.Clean(s.Checkpoint.Save) {
			return filepath.Join(k[i].dir, rest), true
		}
	}
	return "", false
}

// located is a run whose checkpoint.load and same_as are absolute paths where an earlier run has saved them below a folder of
// its own.
func (k kept) located(s scenario) (scenario, error) {
	var err error
	place := func(file string) string {
		if dir, ok := k.find(file, s.Scenario); ok && !filepath.IsAbs(file) {
			abs, bad := filepath.Abs(dir)
			err = errors.Join(err, bad)
			return abs
		}
		return file
	}
	s.Expect = slices.Clone(s.Expect)
	for i := range s.Expect {
		of := &s.Expect[i].SameAs
		if dir, ok := k.find(*of, s.Scenario); ok && dir != filepath.Clean(*of) { // else its name stays as it is written
			*of = place(*of)
		}
	}
	s.Checkpoint.Load = place(s.Checkpoint.Load)
	return s, err
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
