// Package megatron reads a Megatron-LM command line, or the shell script that holds it, and writes it as a scenario.
// Scripts are parsed and their variables put in; nothing of them is run.
package megatron

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"phalanx/convert"
)

// ScriptBytesMax bounds a script: people write it.
const ScriptBytesMax = 1 << 20

// Word is one argument and where it stands.
type Word struct {
	Text  string
	Where string // FILE:line:column, or "argument N"
}

// Line is what a script runs: the launcher's words, then Megatron's.
type Line struct {
	Launcher []Word
	Args     []Word
}

// Args are the words of a command line.
func Args(args []string) Line {
	var l Line
	for i, a := range args {
		l.Args = append(l.Args, Word{a, fmt.Sprintf("argument %d", i+1)})
	}
	return l.launched()
}

// launched moves the words up to the program, NAME.py, to the launcher.
func (l Line) launched() Line {
	for i, w := range l.Args {
		if strings.HasSuffix(w.Text, ".py") && !strings.HasPrefix(w.Text, "--") {
			return Line{Launcher: l.Args[:i+1], Args: l.Args[i+1:]}
		}
	}
	return l
}

// Script reads the command line out of a shell script: the command that runs a NAME.py with --num-layers, its variables
// and arrays put in. A file that holds arguments alone is taken as they stand. set are variables of the caller,
// which the script does not change.
func Script(name string, src []byte, set map[string]string) (Line, error) {
	if len(src) > ScriptBytesMax {
		return Line{}, problem(name, "", "found more than %d bytes, expected a shell script or arguments", ScriptBytesMax)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(src), name)
	if err != nil {
		var pe syntax.ParseError
		if errors.As(err, &pe) {
			return Line{}, problem(place(name, pe.Pos), "", "the shell cannot read it: %s", pe.Text)
		}
		return Line{}, problem(name, "", "the shell cannot read it: %v", err)
	}
	s := &script{name: name, vars: map[string]variable{}}
	for k, v := range set {
		s.vars[k] = variable{Variable: expand.Variable{Set: true, Kind: expand.String, Str: v}, fixed: true}
	}
	s.list(file.Stmts, false)
	return s.line()
}

func place(name string, p syntax.Pos) string { return fmt.Sprintf("%s:%d:%d", name, p.Line(), p.Col()) }

func problem(where, what, format string, args ...any) error {
	return convert.Problems{{Where: where, Name: what, Text: fmt.Sprintf(format, args...)}}
}

// variable is a shell variable, and what is known about it beside its value.
type variable struct {
	expand.Variable
	fixed bool         // set by the caller
	may   syntax.Pos   // where it may be set, under a condition that is not evaluated
	at    []syntax.Pos // of its words
}

// script collects the commands of a script, with the variables as they are when each is reached.
type script struct {
	name     string
	vars     map[string]variable
	commands []Line
	problems []error // of the command of the same index
}

// list walks statements in order. perhaps: they may not run at all.
func (s *script) list(stmts []*syntax.Stmt, perhaps bool) {
	for _, st := range stmts {
		s.command(st.Cmd, perhaps)
	}
}

func (s *script) command(c syntax.Command, perhaps bool) {
	switch c := c.(type) {
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			s.assign(c.Assigns, perhaps)
			return
		}
		s.call(c)
	case *syntax.DeclClause:
		s.assign(c.Args, perhaps)
	case *syntax.Block:
		s.list(c.Stmts, perhaps)
	case *syntax.Subshell:
		s.list(c.Stmts, true)
	case *syntax.BinaryCmd:
		s.command(c.X.Cmd, perhaps)
		s.command(c.Y.Cmd, perhaps || c.Op != syntax.Pipe && c.Op != syntax.PipeAll)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			s.command(c.Stmt.Cmd, perhaps)
		}
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			s.list(c.Cond, perhaps)
			s.list(c.Then, true)
		}
	case *syntax.WhileClause:
		s.list(c.Do, true)
	case *syntax.ForClause:
		s.list(c.Do, true)
	case *syntax.CaseClause:
		for _, item := range c.Items {
			s.list(item.Stmts, true)
		}
	case *syntax.FuncDecl:
		s.command(c.Body.Cmd, true)
	}
}

// assign sets variables. What a condition decides is noted and refused when it is used.
func (s *script) assign(assigns []*syntax.Assign, perhaps bool) {
	for _, a := range assigns {
		if a.Name == nil || a.Naked || a.Index != nil {
			continue
		}
		old := s.vars[a.Name.Value]
		if old.fixed {
			continue
		}
		v := s.value(a)
		if a.Append {
			v = appended(old, v)
		}
		if v.size() > valueBytesMax {
			v.Kind, v.Str, v.List = expand.String, notEvaluated, nil
		}
		if perhaps && !old.fixed && fmt.Sprint(old.Variable) != fmt.Sprint(v.Variable) {
			old.may = a.Pos()
			s.vars[a.Name.Value] = old
			continue
		}
		s.vars[a.Name.Value] = v
	}
}

// size is the bytes of a value, its words counted by one more each.
func (v variable) size() int {
	n := len(v.Str)
	for _, w := range v.List {
		n += len(w) + 1
	}
	return n
}

func (s *script) value(a *syntax.Assign) variable {
	v := variable{Variable: expand.Variable{Set: true, Kind: expand.String}}
	if a.Array == nil {
		if a.Value != nil {
			words, _, may := s.fields(a.Value, true)
			v.may = may
			v.Str = strings.Join(texts(words), " ")
			v.at = []syntax.Pos{a.Value.Pos()}
		}
		return v
	}
	v.Kind = expand.Indexed
	for _, e := range a.Array.Elems {
		if e.Value == nil {
			continue
		}
		words, at, may := s.fields(e.Value, false)
		v.List, v.at = append(v.List, texts(words)...), append(v.at, at...)
		if may.IsValid() {
			v.may = may
		}
	}
	return v
}

// appended is NAME+=VALUE.
func appended(old, more variable) variable {
	if old.Kind == expand.Indexed {
		list := more.List
		if more.Kind == expand.String {
			list = []string{more.Str}
		}
		more.Kind, more.List, more.at = expand.Indexed, append(old.List[:len(old.List):len(old.List)], list...), append(old.at[:len(old.at):len(old.at)], more.at...)
	} else {
		more.Str = old.Str + more.Str
	}
	if !more.may.IsValid() {
		more.may = old.may
	}
	return more
}

// call keeps a command that may be the one: its words, variables put in.
func (s *script) call(c *syntax.CallExpr) {
	var l Line
	var bad error
	for _, w := range c.Args {
		words, at, may := s.fields(w, false)
		if may.IsValid() && bad == nil {
			bad = problem(place(s.name, w.Pos()), "", "uses a variable that is set under a condition at %s, which is not evaluated; "+
				"set it with NAME=value behind the file, or give the arguments behind --", place(s.name, may))
		}
		for i, t := range words {
			l.Args = append(l.Args, Word{t.Text, place(s.name, at[i])})
		}
	}
	if len(l.Args) > 0 {
		s.commands, s.problems = append(s.commands, l), append(s.problems, bad)
	}
}

// line is the command of the script that is Megatron's.
func (s *script) line() (Line, error) {
	var found []int
	for i, l := range s.commands {
		if l.says("--num-layers") && len(l.launched().Launcher) > 0 {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 1:
		return s.commands[found[0]].launched(), s.problems[found[0]]
	case len(found) > 1:
		return Line{}, problem(s.commands[found[1]].Args[0].Where, "", "is a second command with --num-layers; the first is at %s, expected one: "+
			"give the arguments of one behind --", s.commands[found[0]].Args[0].Where)
	}
	return s.plain()
}

// plain is a file of arguments alone, on any number of lines.
func (s *script) plain() (Line, error) {
	var l Line
	for i, c := range s.commands {
		if len(l.Args) == 0 && !strings.HasPrefix(c.Args[0].Text, "--") {
			continue
		}
		if s.problems[i] != nil {
			return l, s.problems[i]
		}
		l.Args = append(l.Args, c.Args...)
	}
	if len(l.Args) == 0 {
		return l, problem(s.name, "", "found no command that runs a NAME.py with --num-layers, and no line of arguments that begins with --; "+
			"expected a script of Megatron-LM, or arguments")
	}
	return l, nil
}

func (l Line) says(flag string) bool {
	for _, w := range l.Args {
		if w.Text == flag || strings.HasPrefix(w.Text, flag+"=") {
			return true
		}
	}
	return false
}
