package megatron

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"phalanx/config"
	"phalanx/convert"
)

// yamlOf is a value of the command line as YAML: numbers as they are, also where they are wrong, so that the reader says
// so; Python's words for true, false and nothing as YAML's; anything else in quotes.
func yamlOf(v, typ string) string {
	if _, err := strconv.ParseFloat(v, 64); err == nil && typ != "text" {
		return v
	}
	switch v {
	case "True", "true", "False", "false":
		return strings.ToLower(v)
	case "None":
		return "null"
	}
	if strings.HasPrefix(v, "[") && !strings.Contains(v, "*") {
		return compactList(v)
	}
	b, _ := json.Marshal(v) // text can be marshalled
	return string(b)
}

// compactList keeps a list of numbers a list, and quotes anything else.
func compactList(v string) string {
	var list []float64
	if json.Unmarshal([]byte(v), &list) == nil {
		return v
	}
	b, _ := json.Marshal(v) // text can be marshalled
	return string(b)
}

// text is the scenario: entries in the order of the keys, a section each, and remarks at the end.
func (m *maker) text() []byte {
	rank := map[string]int{}
	for i, k := range config.Keys() {
		rank[k.Name] = i + 1
	}
	entries := slices.Clone(m.entries)
	slices.SortStableFunc(entries, func(a, b entry) int { return rank[a.key] - rank[b.key] })
	m.entries = entries
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by `phalanx megatron-args` of a command line of Megatron-LM.\nname: %s\n", nameOf(m.source))
	section := ""
	for _, e := range entries {
		s, leaf, _ := strings.Cut(e.key, ".")
		if s != section {
			section = s
			fmt.Fprintf(&b, "%s:\n", s)
		}
		line := fmt.Sprintf("  %s: %s", leaf, e.value)
		if e.why != "--"+strings.ReplaceAll(leaf, "_", "-") {
			line = fmt.Sprintf("%-52s # %s", line, e.why)
		}
		b.WriteString(line + "\n")
	}
	b.WriteString("transport: {kind: nats}\n")
	if len(m.remarks) > 0 {
		b.WriteString("# Flags that change nothing here:\n")
		for _, r := range m.remarks {
			fmt.Fprintf(&b, "#   %s\n", oneLine(r))
		}
	}
	return []byte(b.String())
}

// oneLine keeps a remark inside its comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd {
			return ' '
		}
		return r
	}, s)
}

// check reads the scenario back. Problems are told at the flag of their key.
func (m *maker) check(text []byte) {
	_, problems := config.Parse(m.source, text, nil)
	for _, p := range problems {
		at := slices.IndexFunc(m.entries, func(e entry) bool {
			return e.key == p.Key || strings.HasPrefix(p.Key, e.key+".")
		})
		out := convert.Problem{Where: m.source, Name: p.Key, Text: p.Message}
		if at >= 0 {
			e := m.entries[at]
			out.Text = fmt.Sprintf("%s (from %s)", p.Message, e.why)
			if e.flag.where != "" {
				out = convert.Problem{Where: e.flag.where, Name: "--" + e.flag.name, Text: p.Key + ": " + p.Message}
			}
		}
		m.problems = append(m.problems, out)
	}
}

// nameOf is the name of a file without folder and ending, in letters that a scenario's name may have.
func nameOf(file string) string {
	name := filepath.Base(file)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, name)
	if name = strings.Trim(name, "-"); name == "" || len(name) > 60 {
		return "megatron"
	}
	return strconv.Quote(name)
}
