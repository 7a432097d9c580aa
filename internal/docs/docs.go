// Package docs keeps the documents true: it writes the tables of docs/scenario.md from the keys of package config, and its
// tests check links, commands and lists in every Markdown file of the module.
package docs

import (
	"fmt"
	"regexp"
	"strings"
)

//go:generate go test . -run TestScenarioPage -update

// Block is the text between <!-- name --> and <!-- end name --> of a page, without the marks' own lines.
func Block(page, name string) (string, error) {
	from, to, err := marks(page, name)
	if err != nil {
		return "", err
	}
	return page[from:to], nil
}

// WithBlock is the page with another text between the marks.
func WithBlock(page, name, text string) (string, error) {
	from, to, err := marks(page, name)
	if err != nil {
		return "", err
	}
	return page[:from] + text + page[to:], nil
}

func marks(page, name string) (from, to int, err error) {
	begin, end := "<!-- "+name+" -->\n", "<!-- end "+name+" -->"
	from, to = strings.Index(page, begin), strings.Index(page, end)
	if from < 0 || to < from {
		return 0, 0, fmt.Errorf("found no lines %q and %q in this order", strings.TrimSpace(begin), end)
	}
	return from + len(begin), to, nil
}

// Section is the text below a heading, up to the next heading of the same or a higher level; "" if there is none.
func Section(page, heading string) string {
	level := strings.IndexByte(heading, ' ')
	var out strings.Builder
	found, inside := false, false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		}
		hashes := len(line) - len(strings.TrimLeft(line, "#"))
		switch {
		case inside || hashes == 0 || hashes > level:
			if found {
				out.WriteString(line)
			}
		case found:
			return out.String()
		default:
			found = strings.TrimSpace(line) == heading
		}
	}
	return out.String()
}

// Commands are the lines of a page's shell blocks that are commands: everything there but comments and output, which
// other blocks hold. A line that ends in a backslash goes on.
func Commands(page string) []string {
	var out []string
	inside, open := false, ""
	for line := range strings.SplitSeq(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside && strings.TrimSpace(line) == "```sh"
		case !inside || strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case strings.HasSuffix(line, `\`):
			open += strings.TrimSuffix(line, `\`)
		default:
			out, open = append(out, open+line), ""
		}
	}
	return out
}

// Links are the targets of a page's links, without those inside code.
func Links(page string) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(page, ""), -1) {
		out = append(out, m[1])
	}
	return out
}

var (
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	code = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
)

// Example is a command of a page and the text block right behind it: lines that it prints, in this order, with others
// between them. A line that is … alone stands for others; … within a line stands for any text.
type Example struct {
	Command string
	Lines   []string
}

// Examples are the examples of a page: shell blocks of one command that a text block follows at once. Blocks of other
// kinds (console, yaml) are for readers only.
func Examples(page string) []Example {
	var out []Example
	for _, m := range example.FindAllStringSubmatch(page, -1) {
		e := Example{Command: m[1]}
		for line := range strings.SplitSeq(strings.TrimRight(m[2], "\n"), "\n") {
			if text := strings.TrimSpace(line); text != "" && text != "…" {
				e.Lines = append(e.Lines, strings.TrimRight(line, " "))
			}
		}
		out = append(out, e)
	}
	return out
}

var example = regexp.MustCompile("(?ms)^```sh\n([^\n]+)\n```\n\n?```text\n(.*?)^```$")

// Missing is the first line of an example that an output does not have behind the lines before it; "" if it has all.
func Missing(lines []string, output string) string {
	have := strings.Split(output, "\n")
	for _, want := range lines {
		for {
			if len(have) == 0 {
				return want
			}
			line := strings.TrimRight(have[0], " ")
			have = have[1:]
			if fits(want, line) {
				break
			}
		}
	}
	return ""
}

// fits reports whether a line is another, in which … stands for any text.
func fits(want, line string) bool {
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return want == line
	}
	if !strings.HasPrefix(line, parts[0]) {
		return false
	}
	line = line[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		at := strings.Index(line, p)
		if at < 0 {
			return false
		}
		line = line[at+len(p):]
	}
	return strings.HasSuffix(line, parts[len(parts)-1])
}
