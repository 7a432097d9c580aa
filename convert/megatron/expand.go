package megatron

import (
	"errors"
	"io"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

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
