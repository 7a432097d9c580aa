// Package tidy holds the rules of the house as functions: which package may import which, how long files and functions
// may be, what must be documented. Its test runs them over the whole module; a broken rule is a failed test.
package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the module whose packages the rules are about.
const Module = "phalanx"

// Problem is one broken rule.
type Problem struct {
	Where string // file:line, or a package
	Text  string // what was found and what is expected
}

// String is the problem on one line.
func (p Problem) String() string { return p.Where + ": " + p.Text }

// Package is what `go list -json` says about a package, as far as the rules need it.
type Package struct {
	Dir            string
	ImportPath     string
	Name           string
	Doc            string
	GoFiles        []string
	CgoFiles       []string
	IgnoredGoFiles []string // of other platforms and build tags: the rules hold there too
	TestGoFiles    []string
	XTestGoFiles   []string
}

// Folder is the package's place in the module: "transport/natslink".
func (p Package) Folder() string { return folderOf(p.ImportPath) }

func folderOf(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, Module), "/")
}

// List asks the go command for the packages of the module at root.
func List(root string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-e", "-json=Dir,ImportPath,Name,Doc,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	return decodePackages(bytes.NewReader(out))
}

// decodePackages reads the objects that `go list -json` prints one after the other.
func decodePackages(r io.Reader) ([]Package, error) {
	var all []Package
	for d := json.NewDecoder(r); ; {
		var p Package
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list printed something else than packages: %w", err)
		}
		all = append(all, p)
	}
}

// File is one Go file, parsed.
type File struct {
	Path      string // slash-separated, from the root of the module
	Folder    string // of its package
	Test      bool
	Generated bool
	Source    []byte
	fset      *token.FileSet
	tree      *ast.File
}

// Parse reads the source of the file at a path.
func Parse(name string, source []byte) (*File, error) {
	f := &File{Path: name, Folder: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"), Source: source, fset: token.NewFileSet()}
	tree, err := parser.ParseFile(f.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.tree, f.Generated = tree, ast.IsGenerated(tree)
	return f, nil
}

// Files parses every file of a package, those of other platforms too.
func (p Package) Files() ([]*File, error) {
	var out []*File
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := Parse(path.Join(p.Folder(), name), source)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// problem is a problem at a node of f.
func (f *File) problem(at token.Pos, format string, args ...any) Problem {
	return Problem{Where: fmt.Sprintf("%s:%d", f.Path, f.line(at)), Text: fmt.Sprintf(format, args...)}
}

func (f *File) line(at token.Pos) int { return f.fset.Position(at).Line }
