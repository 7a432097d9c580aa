package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is a scenario file after overrides: what it says, and the runs it describes.
type File struct {
	Name string   // as it was named
	Base Scenario // the file itself, with defaults; what runs when there are no variants

	runs     []Scenario
	problems []Problems // of each run
	checks   []*checker // of each run
}

// Runs are the scenarios to run: one per variant, named name/variant, or the file itself when it has none.
// They are complete (defaults filled in) and have no variants of their own.
func (f *File) Runs() []Scenario { return slices.Clone(f.runs) }

// RunProblems are the problems of run i: those of its values, wherever they are set. A run that expects to be refused
// (Scenario.ExpectsRefusal) has what it wants when one of them contains the text.
func (f *File) RunProblems(i int) Problems { return slices.Clone(f.problems[i]) }

// RunProblem is a problem of run i that somebody else has found with a key: it stands where the key is set.
func (f *File) RunProblem(i int, key, message string) Problem {
	return f.checks[i].at(key).problem(key, message)
}

// Load reads a scenario file and applies overrides (section.key=value). It returns every problem; the File is never nil
// and holds what could be read.
func Load(path string, overrides []string) (*File, Problems) {
	src, err := readFile(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return &File{Name: path}, Problems{{File: path, Message: fmt.Sprintf("cannot read the file: %v", err)}}
	}
	return Parse(path, src, overrides)
}

// readFile reads at most one byte more than a scenario may have, so that a wrong path costs no memory.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// Parse is Load for text that is already in memory; name stands for the file in problems, and its folder is where
// relative paths of the scenario start.
func Parse(name string, src []byte, overrides []string) (*File, Problems) {
	f := &File{Name: name}
	root, problems := readTree(src, nil, func(line, column int) place { return place{name, line, column} })
	settings, more := parseOverrides(overrides)
	problems = append(problems, more...)
	if root == nil || root.broken {
		return f, problems.tidy()
	}
	if root.kind != mapping {
		text := fmt.Sprintf("found %s, expected sections (%s)", describe(root), strings.Join(sectionNames(), ", "))
		return f, append(problems, root.at.problem("", text)).tidy()
	}
	base, more := applyAll(root, settings)
	problems = append(problems, more...)

	c := f.build(base)
	f.Base = *c.s
	if len(f.Base.Variants) == 0 {
		f.runs, f.problems, f.checks = []Scenario{f.Base}, []Problems{append(c.problems, problems...).tidy()}, []*checker{c}
		return f, f.problems[0]
	}
	f.buildVariants(c, root, settings, problems)
	problems = append(problems, c.problems...)
	return f, append(problems, f.merged(problems)...).tidy()
}

func parseOverrides(texts []string) ([]override, Problems) {
	var settings []override
	var problems Problems
	for _, text := range texts {
		o, more := parseOverride(text)
		problems = append(problems, more...)
		if len(more) == 0 {
			settings = append(settings, o)
		}
	}
	return settings, problems
}

func applyAll(root *node, settings []override) (*node, Problems) {
	var problems Problems
	for _, o := range settings {
		next, problem := o.apply(root)
		if problem != nil {
			problems = append(problems, *problem)
			continue
		}
		root = next
	}
	return root, problems
}

// build decodes a tree into a scenario with defaults and checks it. Of a file with variants only the variants are
// checked: the rest need not be complete, since it does not run.
func (f *File) build(root *node) *checker {
	d := newDecoder()
	s := Defaults()
	d.structureOf(root, &s)
	if s.Name == "" {
		s.Name = nameOf(f.Name)
	}
	s.Dir = filepath.Dir(f.Name)
	c := &checker{s: &s, marks: d.marks, bad: d.bad, root: root.at, problems: d.problems}
	s.derive(func(key string) bool { return c.given(key) })
	if len(s.Variants) > 0 {
		c.values("variants")
		c.variants()
		return c
	}
	c.run()
	return c
}

// nameOf is the name of a scenario that does not say one: its file's, without folder and ending.
func nameOf(file string) string {
	name := filepath.Base(file)
	if ext := filepath.Ext(name); ext != "" && ext != name {
		name = strings.TrimSuffix(name, ext)
	}
	if strings.Trim(name, "./ ") == "" {
		return "scenario"
	}
	return name
}

// buildVariants makes one run of each variant: the file, the variant's settings, and the overrides again, since what
// the user types wins over what the file says.
func (f *File) buildVariants(c *checker, root *node, settings []override, unread Problems) {
	for i, v := range f.Base.Variants {
		mine, problems := c.variantSettings(i)
		tree, more := applyAll(root, append(append(slices.Clone(settings), mine...), settings...))
		problems = append(problems, more...)
		run := f.build(without(tree, "variants"))
		run.s.Name = f.Base.Name + "/" + v.Name
		problems = append(problems, run.problems...)
		f.runs, f.checks = append(f.runs, *run.s), append(f.checks, run)
		f.problems = append(f.problems, append(problems, unread...).tidy())
	}
}

// variantSettings are the settings of variant i as overrides placed in the file.
func (c *checker) variantSettings(i int) ([]override, Problems) {
	m, ok := c.marks[fmt.Sprintf("variants.%d.set", i)]
	if !ok || m.value.kind != mapping {
		return nil, nil
	}
	var settings []override
	var problems Problems
	for _, p := range m.value.pairs {
		o, problem := newOverride(p.key, p.at)
		if problem == nil && (o.path[0] == "name" || o.path[0] == "variants") {
			bad := p.at.problem(o.key, "is not for a variant to set; a run is named file/variant, and variants do not nest")
			problem = &bad
		}
		if problem != nil {
			problems = append(problems, *problem)
			continue
		}
		o.value = p.value
		settings = append(settings, o)
	}
	return settings, problems
}

// without is a mapping without one of its keys.
func without(n *node, key string) *node {
	if n.kind != mapping {
		return n
	}
	out := *n
	out.pairs = slices.DeleteFunc(slices.Clone(n.pairs), func(p pair) bool { return p.key == key })
	return &out
}

// merged are the problems of the runs that the file itself does not have, each once. Those that only some variants have
// say which.
func (f *File) merged(shared Problems) Problems {
	var order Problems
	names := map[Problem][]string{}
	for i, problems := range f.problems {
		for _, p := range problems {
			if slices.Contains(shared, p) {
				continue
			}
			if names[p] == nil {
				order = append(order, p)
			}
			names[p] = append(names[p], f.Base.Variants[i].Name)
		}
	}
	for i, p := range order {
		if in := names[p]; len(in) < len(f.runs) {
			order[i].Message += fmt.Sprintf(" (in variant %s)", cut(strings.Join(in, ", "), 2*maxShown))
		}
	}
	return order
}
