package data_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/data"
	"phalanx/data/indexed"
)

// mobyData is the folder of the files that scenarios train on.
var mobyData = filepath.Join("..", "scenarios", "data")

func mobyTokenizer(t *testing.T) data.Tokenizer {
	t.Helper()
	tok, err := data.NewTokenizer(config.Tokenizer{Kind: "huggingface", Model: "moby-tokenizer.json"}, mobyData)
	require.NoError(t, err)
	return tok
}

// sequences are all sequences of a dataset.
func sequences(t require.TestingT, prefix string) [][]int32 {
	f, err := indexed.Open(prefix)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, f.Sequences(), f.Documents())
	var out [][]int32
	for i := range f.Sequences() {
		n, err := f.Length(i)
		require.NoError(t, err)
		ids := make([]int32, n)
		require.NoError(t, f.Read(ids, i, 0))
		out = append(out, ids)
	}
	return out
}

func TestPreprocess(t *testing.T) {
	dir := t.TempDir()
	lines := put(t, dir, "a.jsonl", "{\"text\":\"ab\",\"id\":7}\n\n  {\"text\":\"\"}\r\n{\"id\":8,\"text\":\"\\u00e9\\n\"}")
	zipped := put(t, dir, "b.jsonl.gz", gzipped(t, `{"text":"z"}`+"\n"))
	whole := put(t, dir, "c.txt", "two\nlines")
	p := data.Preprocessing{Inputs: []string{lines, zipped, whole}, Prefix: filepath.Join(dir, "out"), Key: "text", Tokenizer: data.Bytes{}, EOD: "0"}
	got, err := data.Preprocess(context.Background(), p)
	require.NoError(t, err)
	require.Equal(t, &data.Preprocessed{Prefix: filepath.Join(dir, "out_text_document"), Documents: 4, Tokens: 2 + 3 + 1 + 9 + 4, Kind: "uint16", Skipped: 1}, got)
	require.Equal(t, [][]int32{{'a', 'b', 0}, {0xc3, 0xa9, '\n', 0}, {'z', 0}, {'t', 'w', 'o', '\n', 'l', 'i', 'n', 'e', 's', 0}}, sequences(t, got.Prefix))
	var b bytes.Buffer
	require.NoError(t, data.WriteJSONL(context.Background(), &b, got.Prefix, "text", data.Bytes{}, "0"))
	require.Equal(t, "{\"text\":\"ab\"}\n{\"text\":\"é\\n\"}\n{\"text\":\"z\"}\n{\"text\":\"two\\nlines\"}\n", b.String())
	p.Key, p.Inputs = "id", []string{put(t, dir, "d.jsonl", `{"id":"<x>"}`)}
	got, err = data.Preprocess(context.Background(), p)
	require.NoError(t, err)
	b.Reset()
	require.NoError(t, data.WriteJSONL(context.Background(), &b, got.Prefix, "id", data.Bytes{}, ""))
	require.Equal(t, "{\"id\":\"<x>\\u0000\"}\n", b.String(), "the end stays unless it is named")
}

func TestPreprocessProblems(t *testing.T) {
	dir := t.TempDir()
	try := func(p data.Preprocessing) error {
		p.Prefix, p.Tokenizer = filepath.Join(dir, "out"), data.Bytes{}
		if p.Key == "" {
			p.Key = "text"
		}
		_, err := data.Preprocess(context.Background(), p)
		left, e := filepath.Glob(filepath.Join(dir, "out*"))
		require.NoError(t, e)
		require.Empty(t, left, "nothing is left of what failed")
		return err
	}
	bad := put(t, dir, "bad.jsonl", "{\"text\":\"a\"}\n{\"text\":5}\n{\"x\":\"\"}\n[]\n{\"text\":null}\n{\n\xff\n")
	for want, p := range map[string]data.Preprocessing{
		"bad.jsonl:2: text: found 5, expected a text\n":                                    {Inputs: []string{bad}},
		"bad.jsonl:3: found no key \"text\", expected the text of the document there\n":    {Inputs: []string{bad}},
		"bad.jsonl:4: the line: found a JSON array, expected":                              {Inputs: []string{bad}},
		"bad.jsonl:5: text: found null, expected a text\n":                                 {Inputs: []string{bad}},
		"bad.jsonl:6: no JSON object: ":                                                    {Inputs: []string{bad}},
		"bad.jsonl:7: found no UTF-8 at byte 0":                                            {Inputs: []string{bad}},
		"none.jsonl: no such file":                                                         {Inputs: []string{filepath.Join(dir, "none.jsonl")}},
		"found no document with a token in 1 file, expected at least one":                  {Inputs: []string{put(t, dir, "e.jsonl", "\n")}},
		"a.csv: expected a name that ends in .jsonl or .txt":                               {Inputs: []string{put(t, dir, "a.csv", "")}},
		"l.txt: found no UTF-8 at byte 0":                                                  {Inputs: []string{put(t, dir, "l.txt", "\xff")}},
		"g.jsonl.gz: not a whole gzip file: it ends too early":                             {Inputs: []string{put(t, dir, "g.jsonl.gz", gzipped(t, "{}")[:20])}},
		"h.jsonl.gz: not a whole gzip file: gzip: invalid header":                          {Inputs: []string{put(t, dir, "h.jsonl.gz", strings.Repeat("x", 40))}},
		"expected at least one":                                                            {},
		"append-eod: found \"<e>\", expected a token of the tokenizer, or an id below 256": {Inputs: []string{bad}, EOD: "<e>"},
		"found a line of more than 16777216 bytes, expected at most that":                  {Inputs: []string{put(t, dir, "long.jsonl", strings.Repeat(" ", 17<<20))}},
	} {
		err := try(p)
		var de *data.Error
		require.ErrorAs(t, err, &de, want)
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := data.Preprocess(ctx, data.Preprocessing{Inputs: []string{put(t, dir, "ok.jsonl", `{"text":"a"}`)}, Prefix: filepath.Join(dir, "out"), Key: "text", Tokenizer: data.Bytes{}})
	require.ErrorIs(t, err, context.Canceled)
	_, err = data.Preprocess(context.Background(), data.Preprocessing{Inputs: []string{bad}, Prefix: filepath.Join(dir, "none", "out"), Key: "text", Tokenizer: data.Bytes{}})
	require.ErrorIs(t, err, os.ErrNotExist)
	err = data.WriteJSONL(context.Background(), &bytes.Buffer{}, corpusAt(t, dir, 300), "text", data.Bytes{}, "")
	require.ErrorContains(t, err, "found token 256 at 256 of document 0, expected one below 256, the ids of the tokenizer")
	require.True(t, errors.As(data.WriteJSONL(context.Background(), nil, filepath.Join(dir, "none"), "text", data.Bytes{}, ""), new(*data.Error)))
}

// TestJSONLRoundTrip: texts written as a dataset and back are the same texts, by bytes and by pairs.
func TestJSONLRoundTrip(t *testing.T) {
	dir, moby := t.TempDir(), mobyTokenizer(t)
	rapid.Check(t, func(r *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringN(1, 30, -1), 1, 8).Draw(r, "texts")
		tok := rapid.SampledFrom([]data.Tokenizer{data.Bytes{}, moby}).Draw(r, "tokenizer")
		var want strings.Builder
		for _, text := range texts {
			line, err := os.ReadFile(putLine(t, dir, text))
			require.NoError(r, err)
			want.Write(line)
		}
		p := data.Preprocessing{Inputs: []string{put(t, dir, "in.jsonl", want.String())}, Prefix: filepath.Join(dir, "out"), Key: "text", Tokenizer: tok}
		got, err := data.Preprocess(context.Background(), p)
		require.NoError(r, err)
		var b bytes.Buffer
		require.NoError(r, data.WriteJSONL(context.Background(), &b, got.Prefix, "text", tok, ""))
		require.Equal(r, want.String(), b.String())
	})
}

// TestShownDataset: the dataset of the example is what preprocess makes of the prompts.
func TestShownDataset(t *testing.T) {
	p := data.Preprocessing{Inputs: []string{filepath.Join(mobyData, "moby-sft.jsonl")}, Prefix: filepath.Join(t.TempDir(), "moby"),
		Key: "prompt", Tokenizer: mobyTokenizer(t), EOD: "<|endoftext|>"}
	got, err := data.Preprocess(context.Background(), p)
	require.NoError(t, err)
	want := sequences(t, filepath.Join(mobyData, "moby_prompt_document"))
	require.Equal(t, want, sequences(t, got.Prefix))
	for _, ids := range want {
		require.EqualValues(t, 511, ids[len(ids)-1])
	}
}

// TestMobyTokenizer: the number of tokens is the one that the program which chose the merges counted.
func TestMobyTokenizer(t *testing.T) {
	s := scenario("text", 1, 1, 128, 512)
	s.Dir, s.Dataset.Paths = mobyData, []string{"moby-dick.txt.gz"}
	s.Tokenizer = config.Tokenizer{Kind: "huggingface", Model: "moby-tokenizer.json"}
	d := open(t, s)
	require.Equal(t, 512, d.VocabSize)
	require.Contains(t, d.Summary, "text: 1 file, 558471 tokens, ")
	m := d.Train.Microbatch(5, 0)
	wellFormed(t, m, 512)
	require.Greater(t, len(d.Tokenizer.Decode(m.IDs)), 200, "more than a byte a token")
}

func TestTokenizersOfScenarios(t *testing.T) {
	s := lines(t, 1, 8, `{"text":"the whale"}`)
	s.Tokenizer = config.Tokenizer{Kind: "huggingface", Model: "moby-tokenizer.json"}
	require.Contains(t, refused(t, s), "moby-tokenizer.json: no such file; relative paths start in the folder of the scenario file")
	path, err := filepath.Abs(filepath.Join(mobyData, "moby-tokenizer.json"))
	require.NoError(t, err)
	s.Tokenizer.Model = path
	require.Contains(t, refused(t, s), "model.padded_vocab_size: found 256, expected at least 512, the ids of the huggingface tokenizer")
	s.Model.PaddedVocabSize = 512
	d := open(t, s)
	require.Equal(t, "the", d.Tokenizer.Decode(d.Train.Microbatch(0, 0).IDs[:2]), "t, he: the pair h e came second")
	s.Tokenizer = config.Tokenizer{Kind: "tiktoken", Model: write(t, "a.tiktoken", "YQ== 0\nYg== x\n"), TiktokenPattern: "gpt2"}
	require.Contains(t, refused(t, s), "a.tiktoken:2: found rank \"x\", expected a whole number")
}

// putLine writes a text as a line of JSONL, by the rules of the JSON standard alone.
func putLine(t *testing.T, dir, text string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`{"text":"`)
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
			b.WriteString(map[rune]string{'\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}[r])
		case r < 0x20 || r == 0x2028 || r == 0x2029:
			b.WriteString(fmt.Sprintf(`\u%04x`, r))
		default:
			b.WriteRune(r)
		}
	}
	return put(t, dir, "line", b.String()+"\"}\n")
}
