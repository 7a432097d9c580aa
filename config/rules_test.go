package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config/mutation"
)

// goodFile is a small legal scenario. Tests change single lines of it and compare every problem, place included.
const goodFile = `model:
  num_layers: 2
  hidden_size: 16
  num_attention_heads: 4
  num_query_groups: 2
  ffn_hidden_size: 24
  padded_vocab_size: 32
  num_moe_experts: 4
  moe_ffn_hidden_size: 12
  mtp_num_layers: 2
train:
  train_iters: 3
  micro_batch_size: 2
optimizer:
  lr: 0.01
dataset:
  kind: rows
  seq_length: 16
  rows:
    - {valid: 16}
    - {valid: 11}
expect:
  - {quantity: lm loss, finite: true}
`

// replaced is a text with its first occurrence of old replaced; an old that is not there fails the test.
func replaced(t *testing.T, text, old, by string) string {
	t.Helper()
	require.Contains(t, text, old)
	return strings.Replace(text, old, by, 1)
}

// edited is goodFile with texts replaced; pairs are old, new.
func edited(t *testing.T, pairs ...string) string {
	t.Helper()
	text := goodFile
	for i := 0; i+1 < len(pairs); i += 2 {
		text = replaced(t, text, pairs[i], pairs[i+1])
	}
	return text
}

// problemsOf prints every problem of a text.
func problemsOf(text string, overrides ...string) []string {
	_, problems := Parse("f.yaml", []byte(text), overrides)
	return printed(problems)
}

func printed(problems Problems) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}

// ruleCase is goodFile with some lines replaced, and every problem that then is.
type ruleCase struct {
	name, text string
	want       []string
}

// readRules reads the cases of a file: "== name", lines of goodFile to take out (-) and to put in their place (+), with ...
// between places, and the problems as they are printed, or "no problem". MUTATIONS stands for the names of all planted bugs.
func readRules(t *testing.T, path string) []ruleCase {
	t.Helper()
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	var cases []ruleCase
	for _, block := range strings.Split("\n"+string(src), "\n== ")[1:] {
		name, body, _ := strings.Cut(block, "\n")
		c := ruleCase{name: name, text: goodFile}
		var out, in string
		flush := func() {
			if out != "" {
				c.text = replaced(t, c.text, out, in)
			}
			out, in = "", ""
		}
		for _, line := range strings.Split(strings.TrimRight(body, "\n"), "\n") {
			switch {
			case line == "...":
				flush()
			case strings.HasPrefix(line, "-"):
				out += line[1:] + "\n"
			case strings.HasPrefix(line, "+"):
				in += line[1:] + "\n"
			default:
				flush()
				c.want = append(c.want, strings.ReplaceAll(line, "MUTATIONS", strings.Join(mutation.Names(), ", ")))
			}
		}
		flush()
		cases = append(cases, c)
	}
	return cases
}

// TestRules checks every rule: its place and the whole message, and that nothing else is reported.
func TestRules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "rules", "*.txt"))
	require.NoError(t, err)
	require.Len(t, files, 14)
	for _, file := range files {
		cases := readRules(t, file)
		require.Greater(t, len(cases), 5, file)
		for _, c := range cases {
			t.Run(filepath.Base(file)+"/"+c.name, func(t *testing.T) {
				require.NotEqual(t, goodFile, c.text)
				got := problemsOf(c.text)
				if got == nil {
					got = []string{"no problem"}
				}
				require.Equal(t, c.want, got)
			})
		}
	}
}

func TestGoodFileHasNoProblem(t *testing.T) {
	require.Nil(t, problemsOf(goodFile))
}
