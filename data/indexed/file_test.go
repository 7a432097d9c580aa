package indexed_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/data/indexed"
)

// Three sequences [1 2 3], [], [65535 7] of uint16 in two documents, written out by hand after the format's description.
const (
	handIndex = "4d4d4944494458 0000" + // MMIDIDX, two zeros
		"0100000000000000" + "08" + // version 1, uint16
		"0300000000000000" + "0300000000000000" + // 3 sequences, 3 boundaries
		"03000000" + "00000000" + "02000000" + // lengths
		"0000000000000000" + "0600000000000000" + "0600000000000000" + // pointers
		"0000000000000000" + "0100000000000000" + "0300000000000000" // boundaries
	handTokens = "0100 0200 0300 ffff 0700"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

// files writes both files of a dataset.
func files(t *testing.T, idx, bin []byte) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.WriteFile(prefix+".idx", idx, 0o600))
	require.NoError(t, os.WriteFile(prefix+".bin", bin, 0o600))
	return prefix
}

// all is every sequence of a dataset.
func all(t require.TestingT, f *indexed.File) [][]int32 {
	var out [][]int32
	for i := range f.Sequences() {
		n, err := f.Length(i)
		require.NoError(t, err)
		tokens := make([]int32, n)
		require.NoError(t, f.Read(tokens, i, 0))
		out = append(out, tokens)
	}
	return out
}

func TestReadByHand(t *testing.T) {
	prefix := files(t, unhex(t, handIndex), unhex(t, handTokens))
	for _, name := range []string{prefix, prefix + ".bin", prefix + ".idx"} {
		f, err := indexed.Open(name)
		require.NoError(t, err)
		require.Equal(t, [][]int32{{1, 2, 3}, {}, {65535, 7}}, all(t, f))
		require.Equal(t, []any{3, 2, int64(5), indexed.Uint16}, []any{f.Sequences(), f.Documents(), f.Tokens(), f.Kind()})
		from, to, err := f.Document(1)
		require.NoError(t, err)
		require.Equal(t, []int{1, 3}, []int{from, to})
		part := make([]int32, 1)
		require.NoError(t, f.Read(part, 2, 1))
		require.Equal(t, []int32{7}, part)
		var lengths []int
		require.NoError(t, f.Lengths(1, 3, func(n int) { lengths = append(lengths, n) }))
		require.Equal(t, []int{0, 2}, lengths)
		require.NoError(t, f.Close())
	}
}

func TestWriteByHand(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "d")
	w, err := indexed.Create(prefix, indexed.Uint16)
	require.NoError(t, err)
	require.NoError(t, w.Add([]int32{1, 2, 3}))
	w.EndDocument()
	require.NoError(t, w.Add(nil))
	require.EqualError(t, w.Add([]int32{4, 65536}), "found token 65536 at 1, expected one from 0 to 65535, which uint16 holds")
	require.Error(t, w.Add([]int32{-1}))
	require.NoError(t, w.Add([]int32{65535, 7}))
	require.NoFileExists(t, prefix+".bin", "nothing is in place before it is whole")
	require.NoError(t, w.Close())
	idx, err := os.ReadFile(prefix + ".idx")
	require.NoError(t, err)
	require.Equal(t, unhex(t, handIndex), idx)
	bin, err := os.ReadFile(prefix + ".bin")
	require.NoError(t, err)
	require.Equal(t, unhex(t, handTokens), bin)
	left, err := filepath.Glob(prefix + "*")
	require.NoError(t, err)
	require.Len(t, left, 2)
}

func TestAbort(t *testing.T) {
	dir := t.TempDir()
	w, err := indexed.Create(filepath.Join(dir, "d"), indexed.Int32)
	require.NoError(t, err)
	require.NoError(t, w.Add([]int32{1}))
	require.NoError(t, w.Abort())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = indexed.Create(filepath.Join(dir, "d"), 6)
	require.ErrorContains(t, err, "float64")
	_, err = indexed.Create(filepath.Join(dir, "none", "d"), indexed.Int32)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestKindFor(t *testing.T) {
	require.Equal(t, indexed.Uint16, indexed.KindFor(65499))
	require.Equal(t, indexed.Int32, indexed.KindFor(65500))
	sizes := map[indexed.Kind]int{1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2} // numpy's
	for k, size := range sizes {
		require.Equal(t, size, k.Size(), k)
	}
	require.Equal(t, "code 9", indexed.Kind(9).String())
}

// TestRoundTrip: what is written is read, in every kind.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		kind := rapid.SampledFrom([]indexed.Kind{indexed.Uint8, indexed.Int8, indexed.Int16, indexed.Int32, indexed.Int64, indexed.Uint16}).Draw(r, "kind")
		token := rapid.Map(rapid.Int64Range(0, kind.Max()), func(v int64) int32 { return int32(v) })
		docs := rapid.SliceOfN(rapid.SliceOfN(rapid.SliceOfN(token, 0, 9), 0, 3), 0, 6).Draw(r, "documents")
		prefix := filepath.Join(dir, "d")
		w, err := indexed.Create(prefix, kind)
		require.NoError(r, err)
		var want [][]int32
		var bounds []int
		for _, doc := range docs {
			for _, q := range doc {
				require.NoError(r, w.Add(q))
				want = append(want, q)
			}
			w.EndDocument()
			bounds = append(bounds, len(want))
		}
		require.Equal(r, len(docs), w.Documents())
		require.NoError(r, w.Close())
		f, err := indexed.Open(prefix)
		require.NoError(r, err)
		require.Equal(r, want, all(r, f))
		require.Equal(r, kind, f.Kind())
		require.Equal(r, len(docs), f.Documents())
		for d := range docs {
			_, to, err := f.Document(d)
			require.NoError(r, err)
			require.Equal(r, bounds[d], to)
		}
		require.NoError(r, f.Close())
	})
}

// with is the bytes with those at a place replaced.
func with(b []byte, at int, by ...byte) []byte {
	out := bytes.Clone(b)
	copy(out[at:], by)
	return out
}

func TestBrokenFiles(t *testing.T) {
	idx, bin := unhex(t, handIndex), unhex(t, handTokens)
	for _, c := range []struct {
		want     string
		idx, bin []byte
	}{
		{"d.idx: found 33 bytes, expected at least the 34 of an index's header", idx[:33], bin},
		{`d.idx: found "NMIDIDX\x00\x00" at the start`, with(idx, 0, 'N'), bin},
		{"d.idx: found version 2, expected version 1", with(idx, 9, 2), bin},
		{"d.idx: found token type float32, expected 1 (uint8)", with(idx, 17, 7), bin},
		{"d.idx: found token type code 0", with(idx, 17, 0), bin},
		{"d.idx: found 93 bytes for 3 sequences and 3 document boundaries, expected more", idx[:93], bin},
		{"expected more: the index is cut", with(idx, 18, 255, 255, 255, 255, 255, 255, 255, 255), bin},
		{"expected more: the index is cut", with(idx, 26, 255, 255, 255, 255, 255, 255, 255, 31), bin},
		{"d.idx: found a mode for each sequence, expected none: multimodal", append(bytes.Clone(idx), 0, 0, 0), bin},
		{"d.idx: found 2 bytes behind the end", append(bytes.Clone(idx), 0, 0), bin},
		{"d.idx: found length -2 of sequence 1", with(idx, 38, 0xfe, 255, 255, 255), bin},
		{"d.idx: found pointer 7 of sequence 1, expected 6, the end of the one before", with(idx, 54, 7), bin},
		{"d.idx: found pointer 6 of sequence 1, expected 8", with(idx, 34, 4), bin},
		{"d.bin: found 9 bytes, expected 10, 5 tokens of uint16 in 3 sequences", idx, bin[:9]},
		{"d.bin: found 12 bytes, expected 10", idx, append(bytes.Clone(bin), 0, 0)},
		{"d.bin: found 10 bytes, expected 12", with(idx, 42, 3), bin},
		{"d.idx: found 1 as the first document boundary, expected 0", with(idx, 70, 1), bin},
		{"d.idx: found document boundary 1: sequence 4, expected one from 0 to 3", with(idx, 78, 4), bin},
		{"d.idx: found 2 as the last document boundary, expected 3", with(idx, 86, 2), bin},
		{"d.idx: found no document boundary", with(idx[:70], 26, 0), bin},
	} {
		_, err := indexed.Open(files(t, c.idx, c.bin))
		var fe *indexed.FormatError
		require.ErrorAs(t, err, &fe, c.want)
		require.ErrorContains(t, err, c.want)
	}
	prefix := files(t, idx, bin)
	require.NoError(t, os.Remove(prefix+".bin"))
	_, err := indexed.Open(prefix)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "d.bin: found no such file, expected PREFIX.idx and PREFIX.bin beside each other")
	require.NoError(t, os.Mkdir(prefix+".bin", 0o700))
	_, err = indexed.Open(prefix)
	require.ErrorContains(t, err, "d.bin: found a folder or a special file")
}

// TestNegativeTokens: a signed kind can hold what is no token.
func TestNegativeTokens(t *testing.T) {
	for code, raw := range map[byte]string{2: "05 ff 07 08 09", 3: "0500 ffff 0700 0800 0900", 4: "05000000 ffffffff 07000000 08000000 09000000",
		5: "0500000000000000 0000008000000000 0700000000000000 0800000000000000 0900000000000000"} {
		k := indexed.Kind(code)
		idx := with(unhex(t, handIndex), 17, code)
		idx = with(with(idx, 54, byte(3*k.Size())), 62, byte(3*k.Size()))
		f, err := indexed.Open(files(t, idx, unhex(t, raw)))
		require.NoError(t, err)
		tokens := make([]int32, 3)
		require.ErrorContains(t, f.Read(tokens, 0, 0), "at 1 of sequence 0, expected one from 0 to 2147483647", k)
		require.NoError(t, f.Read(tokens[:2], 2, 0))
		require.Equal(t, []int32{8, 9}, tokens[:2])
		require.NoError(t, f.Close())
	}
}

func FuzzParse(f *testing.F) {
	idx, _ := hex.DecodeString(strings.ReplaceAll(handIndex, " ", ""))
	bin, _ := hex.DecodeString(strings.ReplaceAll(handTokens, " ", ""))
	f.Add(idx, bin)
	f.Add(idx[:50], bin)
	f.Add(with(idx, 17, 4), append(bin, bin...))
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		d, err := indexed.Parse(bytes.NewReader(idx), int64(len(idx)), bytes.NewReader(bin), int64(len(bin)), "d")
		var fe *indexed.FormatError
		if err != nil {
			require.ErrorAs(t, err, &fe)
			return
		}
		tokens, docs := 0, 0
		for i := range d.Sequences() {
			n, err := d.Length(i)
			require.NoError(t, err)
			if err := d.Read(make([]int32, n), i, 0); err != nil && !errors.As(err, &fe) {
				t.Fatal(err)
			}
			tokens += n
		}
		require.EqualValues(t, tokens, d.Tokens())
		require.Equal(t, len(bin), tokens*d.Kind().Size())
		for i := range d.Documents() {
			from, to, err := d.Document(i)
			require.NoError(t, err)
			docs += to - from
		}
		require.Equal(t, d.Sequences(), docs)
	})
}
