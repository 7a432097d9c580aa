package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// readTree parses src, one YAML document, into a node tree. The tree is nil when there is nothing to decode.
// at is where the tree stands in a scenario, nil at its top; where moves a line and column of src to the place to report.
func readTree(src []byte, at *loc, where func(line, column int) place) (root *node, problems Problems) {
	defer func() {
		// The YAML library reports bad input by errors; a panic is a defect of its own and must not take us along.
		if r := recover(); r != nil {
			root, problems = nil, Problems{where(1, 1).problem("", fmt.Sprintf("the YAML reader failed on this text (%v); simplify it", r))}
		}
	}()
	if problems := unreadable(src, where); problems != nil {
		return nil, problems
	}
	doc, problems := document(src, where)
	if doc == nil {
		return nil, problems
	}
	g := grower{place: func(y *yaml.Node) place { return where(y.Line, y.Column) }, open: map[*yaml.Node]bool{}}
	root = g.grow(doc, at, 0)
	return root, append(problems, g.problems...)
}

// unreadable reports text that is not YAML before its grammar is looked at: too long, not UTF-8, control characters.
func unreadable(src []byte, where func(line, column int) place) Problems {
	if len(src) > MaxFileBytes {
		text := fmt.Sprintf("found more than %d bytes; a scenario is at most that, move data to a jsonl file (dataset.kind: jsonl)", MaxFileBytes)
		return Problems{where(1, 1).problem("", text)}
	}
	var problems Problems
	line, column := 1, 1
	for i := 0; i < len(src) && len(problems) < MaxProblems; {
		r, width := utf8.DecodeRune(src[i:])
		if text := badRune(r, width, src[i]); text != "" {
			problems = append(problems, where(line, column).problem("", text))
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		i += width
	}
	return problems
}

// badRune says what is wrong with a character of a YAML text; empty if nothing.
func badRune(r rune, width int, first byte) string {
	switch {
	case r == utf8.RuneError && width == 1:
		return fmt.Sprintf("byte 0x%02X is not UTF-8; save the file as UTF-8", first)
	case r == 0:
		return "found a NUL byte; a scenario is plain UTF-8 text, remove it"
	case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7F && r < 0xA0 && r != 0x85, r == 0xFFFE, r == 0xFFFF:
		return fmt.Sprintf("found the control character U+%04X; remove it", r)
	}
	return ""
}

// document reads the one document of src; a second is a problem.
func document(src []byte, where func(line, column int) place) (*yaml.Node, Problems) {
	l, err := yaml.NewLoader(bytes.NewReader(src))
	if err != nil {
		return nil, Problems{syntaxProblem(err, src, where)}
	}
	var doc, second yaml.Node
	err = l.Load(&doc)
	if errors.Is(err, io.EOF) || err == nil && emptyDocument(&doc) {
		return nil, Problems{where(1, 1).problem("", "the file is empty; expected sections ("+strings.Join(sectionNames(), ", ")+")")}
	}
	if err != nil {
		return nil, Problems{syntaxProblem(err, src, where)}
	}
	switch err = l.Load(&second); {
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return doc.Content[0], Problems{syntaxProblem(err, src, where)}
	}
	text := "a second document starts here, expected one; split the file or use variants"
	return doc.Content[0], Problems{where(second.Line, second.Column).problem("", text)}
}

func emptyDocument(doc *yaml.Node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].ShortTag() == "!!null" && doc.Content[0].Value == ""
}

// syntaxProblem is the YAML library's error in one sentence at its place; a tab used as indentation is named as such.
func syntaxProblem(err error, src []byte, where func(line, column int) place) Problem {
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		return where(1, 1).problem("", fmt.Sprintf("not YAML: %v", err))
	}
	line, column := max(le.Mark.Line, 1), max(le.Mark.Column, 1)
	if tab := tabLine(src, line); tab > 0 {
		return where(tab, 1).problem("", "found a tab in the indentation; YAML indents with spaces only")
	}
	text := "not YAML: " + le.Message
	if le.ContextMsg != "" {
		text += " " + le.ContextMsg
	}
	if le.ContextMark.Line > 0 && le.ContextMark.Line != line {
		text += fmt.Sprintf(" that starts at line %d", le.ContextMark.Line)
	}
	return where(line, column).problem("", text)
}

// tabLine is the line nearest to the error, itself or the one before, whose indentation has a tab; 0 if neither has.
func tabLine(src []byte, line int) int {
	lines := bytes.Split(src, []byte("\n"))
	for _, i := range []int{line, line - 1} {
		if i < 1 || i > len(lines) {
			continue
		}
		text := lines[i-1]
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if slices.Contains(indent, '\t') {
			return i
		}
	}
	return 0
}
