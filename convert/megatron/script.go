// Package megatron reads a Megatron-LM command line, or the shell script that holds it, and writes it as a scenario.
// Scripts are parsed and their variables put in; nothing of them is run.
package megatron

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

func texts(words []Word) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w.Text
	}
	return out
}

// Get implements expand.Environ.
func (s *script) Get(name string) expand.Variable { return s.vars[name].Variable }

// Each implements expand.Environ.
func (s *script) Each(do func(string, expand.Variable) bool) {
	for name, v := range s.vars {
		if !do(name, v.Variable) {
			return
		}
	}
}

// fields expands a word. Variables that nobody sets, and commands in $(…), stand as they are written. may is where a
// variable in it may have been set. quoted: one field, as in an assignment.
func (s *script) fields(w *syntax.Word, quoted bool) (words []Word, at []syntax.Pos, may syntax.Pos) {
	unset := map[string]bool{}
	may, bounded := s.look(w)
	if !bounded {
		return []Word{{Text: notEvaluated}}, []syntax.Pos{w.Pos()}, may
	}
	cfg := &expand.Config{Env: &open{s, unset}, NoUnset: true, CmdSubst: func(out io.Writer, c *syntax.CmdSubst) error {
		_, err := io.WriteString(out, notEvaluated)
		return err
	}}
	var list []string
	for {
		var err error
		if quoted {
			var one string
			one, err = expand.Literal(cfg, w)
			list = []string{one}
		} else {
			list, err = expand.Fields(cfg, w)
		}
		var missing expand.UnsetParameterError
		if errors.As(err, &missing) && missing.Node != nil && missing.Node.Param != nil && !unset[missing.Node.Param.Value] {
			unset[missing.Node.Param.Value] = true
			continue
		}
		if err != nil {
			list = []string{notEvaluated}
		}
		break
	}
	at = s.positions(w, len(list))
	for _, t := range list {
		words = append(words, Word{Text: t})
	}
	return words, at, may
}

// notEvaluated stands for what is left as it is: commands, and words whose length no small bound holds.
const notEvaluated = "$(…)"

const (
	// valueBytesMax bounds a variable: a whole command line has a few thousand bytes, and doubling a variable in every
	// line would fill any memory.
	valueBytesMax = 1 << 16
	// partsMax bounds the variables and the braces of a word, for the same reason.
	partsMax = 64
)

// look reads a word before it is expanded: where a variable of it may have been set, and whether its length is bounded.
func (s *script) look(w *syntax.Word) (may syntax.Pos, bounded bool) {
	parts, braces := 0, 0
	bounded = true
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Lit:
			braces += strings.Count(n.Value, "{")
			bounded = bounded && !strings.Contains(n.Value, "..")
		case *syntax.ParamExp:
			parts++
			if n.Repl != nil {
				parts = partsMax + 1
			}
			if n.Param != nil && s.vars[n.Param.Value].may.IsValid() {
				may = s.vars[n.Param.Value].may
			}
		case *syntax.CmdSubst:
			return false
		}
		return true
	})
	return may, (bounded || braces == 0) && parts <= partsMax && braces <= 4
}

// positions are the places of the fields of a word: of the array's own words when the word is that array, else the word's.
func (s *script) positions(w *syntax.Word, n int) []syntax.Pos {
	parts := w.Parts
	if len(parts) == 1 {
		if q, ok := parts[0].(*syntax.DblQuoted); ok {
			parts = q.Parts
		}
	}
	if len(parts) == 1 {
		if p, ok := parts[0].(*syntax.ParamExp); ok && p.Param != nil {
			if at := s.vars[p.Param.Value].at; len(at) == n {
				return at
			}
		}
	}
	out := make([]syntax.Pos, n)
	for i := range out {
		out[i] = w.Pos()
	}
	return out
}

// open is the script's variables, in which those that nobody sets have their own name as value.
type open struct {
	*script
	unset map[string]bool
}

// Get implements expand.Environ.
func (o *open) Get(name string) expand.Variable {
	if o.unset[name] {
		return expand.Variable{Set: true, Kind: expand.String, Str: "$" + name}
	}
	return o.script.Get(name)
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
