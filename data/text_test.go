package data_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"phalanx/data"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// numbers is a text of n bytes in which every 4 bytes tell their place.
func numbers(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(string(rune('A'+i/26%26)) + string(rune('a'+i%26)) + ". ")
	}
	return b.String()[:n]
}

func TestTextWindows(t *testing.T) {
	text := numbers(1 + 8*10 + 5) // 10 windows of 8, 5 tokens left over
	s := scenario("text", 2, 5, 8, 256)
	s.Dataset.Paths = []string{write(t, "a.txt", text[:30]), write(t, "b.txt.gz", gzipped(t, text[30:]))}
	d := open(t, s)
	require.Equal(t, "text: 2 files, 86 tokens, 10 rows of 8 for training", d.Summary)
	require.Nil(t, d.Validation)
	require.Equal(t, 256, d.VocabSize)
	var orders [3][]int
	for epoch := range orders { // a step is an epoch here
		for mb := range 5 {
			m := d.Train.Microbatch(epoch, mb)
			require.Nil(t, m.Pad)
			require.EqualValues(t, 16, m.Loss.Count())
			for b := range 2 {
				row := d.Tokenizer.Decode(m.IDs[b*8 : b*8+8])
				w := strings.Index(text, row) / 8
				require.Equal(t, text[w*8:w*8+8], row)
				require.Equal(t, text[w*8+1:w*8+9], d.Tokenizer.Decode(m.Labels[b*8:b*8+8]))
				orders[epoch] = append(orders[epoch], w)
			}
		}
		require.ElementsMatch(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, orders[epoch], "each window once an epoch")
	}
	require.NotEqual(t, orders[0], orders[1])
	require.NotEqual(t, orders[1], orders[2])
	s.Dataset.Shuffle = false
	m := open(t, s).Train.Microbatch(0, 1)
	require.Equal(t, text[16:32], d.Tokenizer.Decode(m.IDs), "without shuffle in order")
}

func TestTextEpochsAreIndependentOfTheBatch(t *testing.T) {
	s := scenario("text", 1, 1, 8, 256)
	s.Dataset.Paths = []string{write(t, "a.txt", numbers(90))}
	one := open(t, s)
	s.Train.MicroBatchSize, s.Train.GlobalBatchSize = 3, 6
	many := open(t, s)
	for i := range 36 { // rows in the same order however they are put into microbatches, over several epochs
		m := many.Train.Microbatch(i/6, i/3%2)
		require.Equal(t, one.Train.Microbatch(i, 0).IDs, m.IDs[i%3*8:i%3*8+8])
	}
}

func TestTextValidation(t *testing.T) {
	text := numbers(400)
	s := scenario("text", 2, 1, 8, 256)
	s.Dataset.Paths, s.Dataset.ValidationShare = []string{write(t, "a.txt", text)}, 0.25
	d := open(t, s)
	require.Equal(t, "text: 1 file, 400 tokens, 37 rows of 8 for training, 12 for validation from token 300 on", d.Summary)
	seen := map[string]bool{}
	for step := range 40 {
		m := d.Train.Microbatch(step, 0)
		for b := range 2 {
			at := strings.Index(text, d.Tokenizer.Decode(m.IDs[b*8:b*8+8]))
			require.LessOrEqual(t, at+9, 300, "training never sees the validation part")
			seen[d.Tokenizer.Decode(m.IDs[b*8:b*8+8])] = true
		}
	}
	require.Len(t, seen, 37)
	require.Equal(t, text[300:316], d.Tokenizer.Decode(d.Validation.Microbatch(0, 0).IDs), "in order, from the cut")
	require.Equal(t, d.Validation.Microbatch(0, 0), d.Validation.Microbatch(6, 0), "12 rows, then again")
}

func TestTextMasksWhenAsked(t *testing.T) {
	s := scenario("text", 1, 1, 8, 256)
	s.Dataset.Paths, s.Dataset.PaddingMask, s.Dataset.LossMask = []string{write(t, "a.txt", numbers(90))}, "present", "present"
	m := open(t, s).Train.Microbatch(0, 0)
	require.Equal(t, make([]bool, 8), m.Pad.Pad)
	require.EqualValues(t, 8, m.Loss.Count())
	require.False(t, m.Loss.AllOnes)
}

func TestTextProblems(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return name
	}
	long := numbers(90)
	for want, names := range map[string][]string{
		"none.txt: no such file; relative paths start in the folder of the scenario file":                                    {"none.txt"},
		"found a folder, expected a file; name its files one by one":                                                         {"."},
		"empty.txt: found an empty file, expected a text":                                                                    {put("empty.txt", "")},
		"dataset.paths: found 8 tokens for training, expected at least 9, which make one row of seq_length 8 and its labels": {put("short.txt", "too shor")},
		"bad.txt: found no UTF-8 at byte 5, expected a text; convert it to UTF-8 first":                                      {put("bad.txt", "héll\xffo and more")},
		"latin.txt: found no UTF-8 at byte 3, expected":                                                                      {put("latin.txt", "caf\xe9")},
		"z.txt: found no UTF-8 at byte 1, expected a text; it starts like a gzip file: give it a name that ends in .gz":      {put("z.txt", gzipped(t, long))},
		"plain.gz: not a whole gzip file: gzip: invalid header":                                                              {put("plain.gz", long)},
		"cut.gz: not a whole gzip file: it ends too early":                                                                   {put("cut.gz", gzipped(t, long)[:40])},
		"stub.gz: not a whole gzip file: it ends too early":                                                                  {put("stub.gz", "\x1f\x8b")},
		"sum.gz: not a whole gzip file: gzip: invalid checksum":                                                              {put("sum.gz", flip(gzipped(t, long), 8))},
		"dataset.paths: found no file, expected at least one":                                                                {},
	} {
		s := scenario("text", 1, 1, 8, 256)
		s.Dir, s.Dataset.Paths = dir, names
		require.Contains(t, refused(t, s), want)
	}
	s := scenario("text", 1, 1, 8, 256)
	s.Dir, s.Dataset.Paths = dir, []string{"none.txt"}
	_, err := data.Open(s)
	require.ErrorIs(t, err, fs.ErrNotExist)
	s.Dataset.Paths, s.Dataset.ValidationShare = []string{put("long.txt", long)}, 0.05
	require.Contains(t, refused(t, s), "found 4 tokens for validation from token 86 on, expected at least 9")
	s.Model.PaddedVocabSize = 128
	require.Contains(t, refused(t, s), "model.padded_vocab_size: found 128, expected at least 256, the ids of the byte tokenizer")
	s.Tokenizer.Kind = "bpe"
	require.Contains(t, refused(t, s), `tokenizer.kind: found "bpe", expected byte, huggingface or tiktoken`)
}

// flip changes the byte that many bytes before the end.
func flip(s string, fromEnd int) string {
	b := []byte(s)
	b[len(b)-fromEnd] ^= 0xff
	return string(b)
}

func TestBytesTokenizer(t *testing.T) {
	var tok data.Bytes
	require.Equal(t, []int32{104, 195, 169}, tok.Encode("hé"))
	require.Equal(t, "hé", tok.Decode([]int32{104, 195, 169}))
	require.Equal(t, "a\uFFFDb\uFFFD", tok.Decode([]int32{97, 256, 98, -1}))
	require.Empty(t, tok.Encode(""))
}

func TestErrorChain(t *testing.T) {
	cause := errors.New("cause")
	e := &data.Error{Problems: []data.Problem{{Where: "f", Line: 3, Reason: "r"}}, More: 2, Err: cause}
	require.EqualError(t, e, "f:3: r\nand 2 more")
	require.ErrorIs(t, e, cause)
}

// TestRealText opens the text that scenarios train on.
func TestRealText(t *testing.T) {
	s := scenario("text", 4, 1, 128, 256)
	s.Dir, s.Dataset.Paths, s.Dataset.ValidationShare = filepath.Join("..", "scenarios", "data"), []string{"moby-dick.txt.gz"}, 0.1
	d := open(t, s)
	m := d.Train.Microbatch(100, 0)
	wellFormed(t, m, 256)
	require.Equal(t, m.IDs[1:128], m.Labels[:127])
	require.Greater(t, strings.Count(d.Tokenizer.Decode(m.IDs), " "), 50)
}
