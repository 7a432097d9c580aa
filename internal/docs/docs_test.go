package docs

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/config/mutation"
)

// root is the module's folder, seen from this package.
const root = "../.."

var update = flag.Bool("update", false, "write docs/scenario.md instead of checking it")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// pages are the Markdown files of the module.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "scenarios/*.md", "scenarios/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range names {
			rel, err := filepath.Rel(root, name)
			require.NoError(t, err)
			out = append(out, filepath.ToSlash(rel))
		}
	}
	require.Contains(t, out, "README.md")
	require.Contains(t, out, "docs/scenario.md")
	return out
}

func TestScenarioPage(t *testing.T) {
	const name = "docs/scenario.md"
	page := read(t, name)
	want, err := WithBlock(page, "keys", KeyTables()+"\n")
	require.NoError(t, err)
	want, err = WithBlock(want, "later", LaterTable(read(t, "config/refusals.go"))+"\n")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(want), 0o644))
		return
	}
	if want != page {
		t.Errorf("%s is not what the keys of package config say; run go generate ./internal/docs", name)
	}
}

func TestLinks(t *testing.T) {
	for _, name := range pages(t) {
		for _, target := range Links(read(t, name)) {
			path, anchor, _ := strings.Cut(target, "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			at := name
			if path != "" {
				at = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			}
			if _, err := os.Stat(filepath.Join(root, at)); err != nil {
				t.Errorf("%s: link to %s: there is no file %s", name, target, at)
				continue
			}
			if anchor != "" && !anchors(read(t, at))[anchor] {
				t.Errorf("%s: link to %s: %s has no heading for it", name, target, at)
			}
		}
	}
}

// anchors are the names by which headings are linked to: lower case, words joined by hyphens.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}

var scenarioFile = regexp.MustCompile(`\S+\.(yaml|json)\b`)

// TestCommands: commands in documents name verbs, files and keys that exist.
func TestCommands(t *testing.T) {
	verbs := verbsOf(t)
	for _, name := range pages(t) {
		for _, command := range Commands(read(t, name)) {
			words := strings.Fields(command)
			if strings.Contains(command, "cmd/phalanx ") {
				for len(words) > 0 && words[0] != "./cmd/phalanx" {
					words = words[1:]
				}
				require.NotEmpty(t, words, "%s: %s", name, command)
				require.Contains(t, verbs, words[1], "%s: %s: no such verb", name, command)
				checkFiles(t, name, command, words[2:])
			}
		}
	}
}

// verbsOf reads the verbs out of the program's sources: their first words of cobra's Use.
func verbsOf(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "cmd/phalanx/*.go"))
	require.NoError(t, err)
	verbs := []string{"--help"}
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`Use:\s+"([a-z-]+)[ "]`).FindAllStringSubmatch(string(text), -1) {
			verbs = append(verbs, m[1])
		}
	}
	require.Contains(t, verbs, "run")
	return verbs
}

// checkFiles wants files named on a command line to exist and to be legal with its overrides, unless --out or --json
// says that the command writes them, or they are below $T, a folder that the page's commands fill.
func checkFiles(t *testing.T, name, command string, words []string) {
	t.Helper()
	for i, word := range words {
		if !scenarioFile.MatchString(word) || strings.Contains(word, "=") || strings.HasPrefix(word, "$T/") || i > 0 && (words[i-1] == "--json" || words[i-1] == "--html") {
			continue
		}
		matches, err := filepath.Glob(filepath.Join(root, strings.TrimPrefix(word, "$PWD/")))
		require.NoError(t, err)
		require.NotEmpty(t, matches, "%s: %s: there is no file %s", name, command, word)
	}
}

// TestREADMEAndCI: the two commands of the README's first screen are the ones that CI runs.
func TestREADMEAndCI(t *testing.T) {
	readme, ci := read(t, "README.md"), read(t, ".ci/run")
	first := Commands(readme)
	require.GreaterOrEqual(t, len(first), 2)
	require.Equal(t, []string{"go run ./cmd/phalanx run scenarios/quickstart.yaml", "go test -timeout 30m ./..."}, first[:2])
	for _, pattern := range []string{`'^go run .*quickstart\.yaml$'`, `'^go test '`} {
		require.Contains(t, ci, "grep -m1 "+pattern+" README.md", "CI takes its commands from the README")
		require.Regexp(t, "(?m)"+strings.Trim(pattern, "'"), readme)
	}
	require.LessOrEqual(t, strings.Count(readme, "\n"), 250, "lines of the README")
}

var limit = regexp.MustCompile("`([a-z_]+(?:\\.[a-z_0-9]+)*): ([^`]+)`")

// TestLimits: what the README says is not there is refused.
func TestLimits(t *testing.T) {
	found := limit.FindAllStringSubmatch(Section(read(t, "README.md"), "## Limits"), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		if Refused(m[1], m[2]) == "" {
			t.Errorf("README.md, Limits: %s: %s is not refused: take it out of the list", m[1], m[2])
		}
	}
}

// TestMutations: every planted bug has a line in docs/mutations.md, no other has, and each has a variant.
func TestMutations(t *testing.T) {
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(read(t, "docs/mutations.md"), -1) {
		listed = append(listed, m[1])
	}
	require.ElementsMatch(t, mutation.Names(), listed)
	shown, problems := config.Load(filepath.Join(root, "docs/scenarios/mutations.yaml"), nil)
	require.Empty(t, problems)
	var planted []string
	for _, run := range shown.Runs() {
		planted = append(planted, run.Mutate...)
	}
	require.ElementsMatch(t, mutation.Names(), planted, "docs/scenarios/mutations.yaml has a variant for each")
}

// TestExamples: the scenarios that documents show are legal.
func TestExamples(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/scenarios/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		_, problems := config.Load(name, nil)
		require.Empty(t, problems)
	}
}
