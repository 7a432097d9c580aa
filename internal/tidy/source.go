package tidy

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"slices"
)

// Hard limits. The usual ones, 300 and 40, are for people to keep.
const (
	FileLinesMax = 600
	FuncLinesMax = 70
)

// vagueNames are package names that say nothing about what is inside.
var vagueNames = []string{"util", "utils", "common", "types", "manager"}

// Naming checks a package's name and that it has a doc comment.
func Naming(p Package) []Problem {
	var out []Problem
	if slices.Contains(vagueNames, p.Name) {
		out = append(out, Problem{p.ImportPath, "found the package name " + p.Name + "; expected one that says what is inside"})
	}
	if p.Doc == "" && len(p.GoFiles)+len(p.CgoFiles) > 0 {
		out = append(out, Problem{p.ImportPath, "has no package comment; expected \"// Package " + p.Name + " …\" above one package clause"})
	}
	return out
}

// Lengths checks the lines of a file and of its functions. Generated files are as long as they are, and so are the
// functions of tests, which are often tables.
func Lengths(f *File) []Problem {
	if f.Generated {
		return nil
	}
	var out []Problem
	if n := bytes.Count(f.Source, []byte("\n")); n > FileLinesMax {
		out = append(out, Problem{f.Path, sizeText("file", n, FileLinesMax)})
	}
	if f.Test {
		return out
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		name := ""
		switch n := n.(type) {
		case *ast.FuncDecl:
			name = "function " + n.Name.Name
		case *ast.FuncLit:
			name = "function literal"
		default:
			return true
		}
		if lines := f.line(n.End()) - f.line(n.Pos()) + 1; lines > FuncLinesMax {
			out = append(out, f.problem(n.Pos(), "%s", sizeText(name, lines, FuncLinesMax)))
		}
		return true
	})
	return out
}

// Format checks that gofmt would change nothing.
func Format(f *File) []Problem {
	want, err := format.Source(f.Source)
	if err == nil && bytes.Equal(want, f.Source) {
		return nil
	}
	return []Problem{{f.Path, "is not as gofmt writes it; run gofmt -w " + f.Path}}
}

// Docs checks that every exported identifier of a package that others can import has a comment.
func Docs(f *File) []Problem {
	if f.Test || f.Generated || f.tree.Name.Name == "main" {
		return nil
	}
	var out []Problem
	for _, d := range f.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && needsDoc(d) {
				out = append(out, f.undocumented(d.Pos(), d.Name.Name))
			}
		case *ast.GenDecl:
			out = append(out, f.declDocs(d)...)
		}
	}
	return out
}

// selfEvident are methods of interfaces that everybody knows.
var selfEvident = []string{"String", "Error", "Unwrap", "Write", "Read", "Close", "Len", "Less", "Swap",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"}

// needsDoc reports whether a function can be called from outside and its name alone does not say what it does.
func needsDoc(d *ast.FuncDecl) bool {
	if !d.Name.IsExported() {
		return false
	}
	return d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type)) && !slices.Contains(selfEvident, d.Name.Name)
}

// receiver is the name of a receiver's type without pointer and type parameters.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// declDocs checks types, constants and variables. The comment of a group counts for constants and variables.
func (f *File) declDocs(d *ast.GenDecl) []Problem {
	var out []Problem
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && (d.Doc == nil || d.Lparen.IsValid()) {
				out = append(out, f.undocumented(s.Pos(), s.Name.Name))
			}
		case *ast.ValueSpec:
			if s.Doc != nil || s.Comment != nil || d.Doc != nil {
				continue
			}
			for _, name := range s.Names {
				if name.IsExported() {
					out = append(out, f.undocumented(name.Pos(), name.Name))
				}
			}
		}
	}
	return out
}

func (f *File) undocumented(at token.Pos, name string) Problem {
	return f.problem(at, "%s is exported and has no comment; expected \"// %s …\"", name, name)
}
