package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutputs runs the examples of every page and wants the lines that the page shows.
func TestOutputs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the program")
	}
	program := built(t)
	ran := 0
	for _, name := range pages(t) {
		for _, e := range Examples(read(t, name)) {
			if !strings.Contains(e.Command, "go run ./cmd/phalanx") {
				continue
			}
			ran++
			output := shell(e.Command, program)
			if line := Missing(e.Lines, output); line != "" {
				t.Errorf("%s: `%s` does not print the line\n%s\nIt prints\n%s", name, e.Command, line, output)
			}
		}
	}
	require.Greater(t, ran, 5)
}

// built is the program.
func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "phalanx")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/phalanx")
	build.Dir = root
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	return program
}

// shell is what a command of a page prints, whether it fails or not: an example may show a failure.
func shell(command, program string) string {
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(command, "go run ./cmd/phalanx", program))
	cmd.Dir = root
	output, _ := cmd.CombinedOutput()
	return string(output)
}

// TestSameBits runs the commands of docs/determinism.md that give one hash.
func TestSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the program")
	}
	program, hash := built(t), regexp.MustCompile(`weights ([0-9a-f]{64})\n`)
	var hashes []string
	for _, command := range Commands(read(t, "docs/determinism.md")) {
		if !strings.Contains(command, " run scenarios/") {
			continue
		}
		output := shell(command, program)
		m := hash.FindStringSubmatch(output)
		require.NotNil(t, m, "%s prints\n%s", command, output)
		hashes = append(hashes, m[1])
	}
	require.Len(t, hashes, 3)
	require.Equal(t, []string{hashes[0], hashes[0], hashes[0]}, hashes)
}

func TestExamplesOfAPage(t *testing.T) {
	page := "```sh\ngo run ./cmd/phalanx x\n```\n\n```text\na  \n…\nb … c\n```\n\n```sh\none\ntwo\n```\n\n```text\nno\n```\n"
	got := Examples(page)
	require.Equal(t, []Example{{Command: "go run ./cmd/phalanx x", Lines: []string{"a", "b … c"}}}, got)
	require.Empty(t, Missing(got[0].Lines, "x\na\ny\nb 1 c  \n"))
	require.Equal(t, "b … c", Missing(got[0].Lines, "a\nb 1 d\n"))
	require.Equal(t, "a", Missing(got[0].Lines, "b 1 c\na b\n"))
	require.True(t, fits("a…b…c", "a1b2c"))
	require.False(t, fits("a…b…c", "a12c"))
}
