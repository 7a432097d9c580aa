package tidy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's folder, seen from this package.
const root = "../.."

// report fails the test once per broken rule.
func report(t *testing.T, problems []Problem) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

func TestPackages(t *testing.T) {
	packages, err := List(root)
	require.NoError(t, err)
	require.NotEmpty(t, packages, "the rules held for nothing")
	for _, p := range packages {
		report(t, Naming(p))
		files, err := p.Files()
		require.NoError(t, err, p.ImportPath)
		for _, f := range files {
			for _, rule := range []func(*File) []Problem{Imports, Stillness, Lengths, Format, Docs} {
				report(t, rule(f))
			}
		}
	}
}

func TestTrackedTextNamesNoMachine(t *testing.T) {
	names := tracked(t)
	require.NotEmpty(t, names)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		require.NoError(t, err)
		report(t, Paths(name, text))
	}
}

// tracked are the files that git knows, or without git all files.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil && len(out) > 0 {
		return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	}
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		names = append(names, rel)
		return err
	})
	require.NoError(t, err)
	return names
}
