package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const sections = "sections (model, train, optimizer, scheduler, ddp, dataset, tokenizer, rng, dist, transport, recovery, logger, checkpoint)"

// TestUnreadable: texts that are not a scenario at all, one clear sentence each.
func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"f.yaml:1:1: the file is empty; expected " + sections}},
		{"comment only", "# nothing yet\n", []string{"f.yaml:1:1: the file is empty; expected " + sections}},
		{"empty document", "---\n", []string{"f.yaml:1:1: the file is empty; expected " + sections}},
		{"null", "~\n", []string{"f.yaml:1:1: found nothing, expected " + sections}},
		{"list", "- 1\n", []string{"f.yaml:1:1: found a list, expected " + sections}},
		{"number", "\n 7\n", []string{"f.yaml:2:2: found 7, expected " + sections}},
		{"tagged root", "!foo {a: 1}\n", []string{"f.yaml:1:1: found the tag !foo; a scenario has no tags, write the plain value"}},
		{"tab", "model:\n  num_layers: 1\n\thidden_size: 2\n", []string{"f.yaml:3:1: found a tab in the indentation; YAML indents with spaces only"}},
		{"tab one line up", "model: [1,\n\t2\n", []string{"f.yaml:2:1: found a tab in the indentation; YAML indents with spaces only"}},
		{"open list", "a: [1\nb: 2", []string{"f.yaml:2:2: not YAML: did not find expected ',' or ']' while parsing a flow sequence that starts at line 1"}},
		{"open quote", "a: \"x\n", []string{"f.yaml:2:1: not YAML: found unexpected end of stream while scanning a quoted scalar that starts at line 1"}},
		{"two colons", "é: b: c\n", []string{"f.yaml:1:5: not YAML: mapping values are not allowed in this context"}},
		{"unknown anchor", "a: *nope\n", []string{"f.yaml:1:4: not YAML: unknown anchor 'nope' referenced"}},
		{"NUL and control", "a: \x00b\nc: \x01", []string{
			"f.yaml:1:4: found a NUL byte; a scenario is plain UTF-8 text, remove it",
			"f.yaml:2:4: found the control character U+0001; remove it"}},
		{"DEL", "a: \x7f", []string{"f.yaml:1:4: found the control character U+007F; remove it"}},
		{"not UTF-8", "é: \xc3\n", []string{"f.yaml:1:4: byte 0xC3 is not UTF-8; save the file as UTF-8"}},
		{"UTF-16", "\xff\xfea", []string{"f.yaml:1:1: byte 0xFF is not UTF-8; save the file as UTF-8", "f.yaml:1:2: byte 0xFE is not UTF-8; save the file as UTF-8"}},
		{"huge", strings.Repeat(" ", MaxFileBytes+1), []string{
			"f.yaml:1:1: found more than 1048576 bytes; a scenario is at most that, move data to a jsonl file (dataset.kind: jsonl)"}},
		{"nested beyond the parser", strings.Repeat("[", 20000), []string{"f.yaml:1:10001: not YAML: exceeded max depth of 10000 while increasing flow level"}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, problemsOf(c.text)) })
	}
}

// TestLegalForms: ways of writing a scenario that change nothing.
func TestLegalForms(t *testing.T) {
	want, _ := Parse("f.yaml", []byte(goodFile), nil)
	for name, text := range map[string]string{
		"byte order mark": "\xef\xbb\xbf" + goodFile,
		"CRLF":            strings.ReplaceAll(goodFile, "\n", "\r\n"),
		"end marker":      goodFile + "...\n",
		"start marker":    "---\n" + goodFile,
		"alias":           edited(t, "seq_length: 16", "seq_length: &n 16", "{valid: 16}", "{valid: *n}"),
		"alias of a row":  edited(t, "    - {valid: 16}\n    - {valid: 11}\n", "    - &r {valid: 16}\n    - {valid: 11}\n"),
		"block list":      edited(t, "{valid: 16}", "\n        valid: 16"),
		"plus sign":       edited(t, "num_layers: 2\n", "num_layers: +2\n"),
		"null":            edited(t, "num_query_groups: 2", "num_query_groups: 2\n  moe_z_loss_coeff: null\n  kv_channels: ~"),
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := Parse("f.yaml", []byte(text), nil)
			require.Empty(t, problems)
			require.Equal(t, string(want.Base.Normalised()), string(got.Base.Normalised()))
		})
	}
}

func TestSecondDocument(t *testing.T) {
	const want = "a second document starts here, expected one; split the file or use variants"
	require.Equal(t, []string{"f.yaml:24:1: " + want}, problemsOf(goodFile+"---\n"))
	require.Equal(t, []string{"f.yaml:24:1: " + want}, problemsOf(goodFile+"---\nmodel: {}\n"))
	require.Equal(t, []string{"f.yaml:25:1: not YAML: did not find expected node content while parsing a flow node"}, problemsOf(goodFile+"--- [\n"))
}

func TestAliases(t *testing.T) {
	text := edited(t, "    - {valid: 16}\n    - {valid: 11}\n", "    - &r {valid: 17}\n    - *r\n")
	require.Equal(t, []string{"f.yaml:20:11: dataset.rows.0.valid: the row has 17 tokens, expected at most seq_length 16",
		"f.yaml:20:11: dataset.rows.1.valid: the row has 17 tokens, expected at most seq_length 16"}, problemsOf(text))
	text = edited(t, "{valid: 16}", "&r {valid: 16, tokens: *r}")
	require.Equal(t, []string{"f.yaml:20:30: dataset.rows.0.tokens: the alias *r points into itself; write the value out"}, problemsOf(text))
	text = edited(t, "{valid: 16}", "{valid: 16, labels: &l [*l]}")
	require.Equal(t, []string{"f.yaml:20:31: dataset.rows.0.labels.0: the alias *l points into itself; write the value out"}, problemsOf(text))
}

// TestAliasBomb: aliases of aliases stop at MaxNodes instead of being written out.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("about: x\na0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n")
	for _, level := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		below := "*a" + string(level[0]-1)
		b.WriteString("a" + level + ": &a" + level + " [" + strings.Repeat(below+", ", 9) + below + "]\n")
	}
	got := strings.Join(problemsOf(b.String()), "\n")
	require.Equal(t, 1, strings.Count(got, "found more than 524288 values after aliases are written out; write less, or move data to a jsonl file"))
}

func TestNestedTooDeep(t *testing.T) {
	text := edited(t, "finite: true", "equals: "+strings.Repeat("[", 70)+strings.Repeat("]", 70))
	require.Equal(t, []string{"f.yaml:23:95: nested deeper than 64 levels; no key of a scenario needs that"}, problemsOf(text))
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tiny.run.yaml")
	require.NoError(t, os.WriteFile(path, []byte(goodFile), 0o600))
	f, problems := Load(path, []string{"train.train_iters=7"})
	require.Empty(t, problems)
	require.Equal(t, "tiny.run", f.Base.Name)
	require.Equal(t, dir, f.Base.Dir)
	require.Equal(t, 7, f.Base.Train.TrainIters)
	require.Len(t, f.Runs(), 1)

	missing := filepath.Join(dir, "missing.yaml")
	f, problems = Load(missing, nil)
	require.NotNil(t, f)
	require.Equal(t, missing+": cannot read the file: no such file or directory", problems.Error())
	_, problems = Load(dir, nil)
	require.Equal(t, dir+": cannot read the file: is a directory", problems.Error())

	require.NoError(t, os.WriteFile(path, make([]byte, 4*MaxFileBytes), 0o600))
	_, problems = Load(path, nil)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Message, "found more than 1048576 bytes")
}
