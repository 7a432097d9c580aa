package bpe_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/data/bpe"
)

// characters are those that stand for bytes, as GPT-2's bytes_to_unicode has them: "!" to "~", "¡" to "¬" and "®" to
// "ÿ" for themselves, every other byte for 256 and what follows.
func characters() (out [256]string) {
	n := 0
	for b := range out {
		if b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174 && b <= 255 {
			out[b] = string(rune(b))
			continue
		}
		out[b] = string(rune(256 + n))
		n++
	}
	return out
}

// object is a JSON object.
type object = map[string]any

// hugging is a tokenizer.json: the id of a byte is its value, that of the i-th merge 256 + i. Ġ is the space.
func hugging(merges ...string) object {
	vocab := object{}
	for b, c := range characters() {
		vocab[c] = b
	}
	for i, m := range merges {
		vocab[strings.ReplaceAll(m, " ", "")] = 256 + i
	}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{}, "normalizer": nil,
		"pre_tokenizer":  object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"post_processor": object{"type": "ByteLevel", "trim_offsets": false}, "decoder": object{"type": "ByteLevel"},
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges},
	}
}

func parse(t require.TestingT, file object) *bpe.Tokenizer {
	text, err := json.Marshal(file)
	require.NoError(t, err)
	tok, err := bpe.ParseHuggingFace(text)
	require.NoError(t, err)
	return tok
}

func TestMergesByHand(t *testing.T) {
	tok := parse(t, hugging("l l", "h e", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "b c", "a b", "a a"))
	for text, want := range map[string][]int32{
		"hello":        {259},
		"hello world":  {259, 262, 'l', 'd'}, // Ġw, or, then Ġwor; l d has no merge
		"hell":         {258},
		"hel":          {257, 'l'},
		"abc":          {'a', 263},                // b c has the lower rank
		"aab":          {'a', 264},                // so has a b, against a a
		"aaa":          {265, 'a'},                // the leftmost of equals
		"aaaa":         {265, 265},                //
		"hello  world": {259, ' ', 262, 'l', 'd'}, // \s+(?!\S) takes one space and leaves one to the word
		"héllo":        {'h', 0xc3, 0xa9, 256, 'o'},
		"":             nil,
	} {
		require.Equal(t, want, tok.Encode(text), text)
		require.Equal(t, text, tok.Decode(tok.Encode(text)))
	}
	require.Equal(t, 266, tok.VocabSize())
	require.Equal(t, "a\uFFFD\uFFFD", tok.Decode([]int32{'a', 266, -1}))
	id, ok := tok.ID(" wor")
	require.Equal(t, []any{int32(262), true}, []any{id, ok})
	_, ok = tok.ID("none")
	require.False(t, ok)
}

func TestMergesAsPairsAndIgnoreMerges(t *testing.T) {
	f := hugging("a b", "c d")
	model := f["model"].(object)
	model["merges"] = [][2]string{{"a", "b"}, {"c", "d"}}
	model["vocab"].(object)["xyz"] = 300
	require.Equal(t, []int32{256, 257}, parse(t, f).Encode("abcd"))
	require.Equal(t, []int32{'x', 'y', 'z'}, parse(t, f).Encode("xyz"), "no merge leads there")
	model["ignore_merges"] = true
	require.Equal(t, []int32{300}, parse(t, f).Encode("xyz"), "a piece that is a token")
	require.Equal(t, 301, parse(t, f).VocabSize())
}

// pieces are the texts that no merge reaches over: every byte pair of a tokenizer with all merges of a text would hide
// them, so the vocabulary has the pieces themselves.
func pieces(t *testing.T, pre any, text string, want ...string) {
	t.Helper()
	f := hugging()
	f["pre_tokenizer"] = pre
	model := f["model"].(object)
	model["ignore_merges"] = true
	c := characters()
	for i, p := range want {
		mapped := ""
		for _, b := range []byte(p) {
			mapped += c[b]
		}
		if _, known := model["vocab"].(object)[mapped]; !known {
			model["vocab"].(object)[mapped] = 300 + i
		}
	}
	tok := parse(t, f)
	var got []string
	for _, id := range tok.Encode(text) {
		got = append(got, tok.Decode([]int32{id}))
	}
	require.Equal(t, want, got, text)
}

func TestPatternsByHand(t *testing.T) {
	level := object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}
	plain := object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	split := func(expression string) object {
		return object{"type": "Sequence", "pretokenizers": []any{
			object{"type": "Split", "pattern": object{"Regex": expression}, "behavior": "Isolated", "invert": false}, plain}}
	}
	rest := `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llama := split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + rest)
	qwen := split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + rest)
	const text = "I'm  He'LL, 2026\n \nüber!!\n\n x "
	pieces(t, level, text, "I", "'m", " ", " He", "'", "LL", ",", " 2026", "\n ", "\n", "über", "!!", "\n\n", " x", " ")
	pieces(t, llama, text, "I", "'m", " ", " He", "'LL", ",", " ", "202", "6", "\n \n", "über", "!!\n\n", " x", " ")
	pieces(t, qwen, text, "I", "'m", " ", " He", "'LL", ",", " ", "2", "0", "2", "6", "\n \n", "über", "!!\n\n", " x", " ")
	pieces(t, plain, text, text)
	digits := func(each bool) object {
		return object{"type": "Sequence", "pretokenizers": []any{object{"type": "Digits", "individual_digits": each}, plain}}
	}
	pieces(t, digits(true), "a12 b", "a", "1", "2", " b")
	pieces(t, digits(false), "a12 b", "a", "12", " b")
	pieces(t, object{"type": "ByteLevel"}, "one two", " one", " two")
	pieces(t, object{"type": "ByteLevel"}, " one", " one")
}

func TestAddedTokens(t *testing.T) {
	f := hugging("e nd")
	f["model"].(object)["vocab"] = hugging()["model"].(object)["vocab"]
	f["model"].(object)["merges"] = []string{}
	token := func(id int, content string, normalized bool) object {
		return object{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": normalized, "special": !normalized}
	}
	f["added_tokens"] = []any{token(300, "<|end|>", false), token(301, "<|end|>>", false), token(302, "e\u0301t", true)}
	f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}}}
	tok := parse(t, f)
	require.Equal(t, []int32{'a', 300, ' ', 301, 300, '>', ' '}, append(tok.Encode("a<|end|> <|end|>><|end|>"), '>', ' '))
	require.Equal(t, []int32{301}, tok.Encode("<|end|>>"), "the longest that starts there")
	require.Equal(t, []int32{0xc3, 0xa9}, tok.Encode("e\u0301"), "normalised")
	require.Equal(t, []int32{302, 302}, tok.Encode("e\u0301t\u00e9t"), "matched in normalised text")
	require.Equal(t, "x<|end|>e\u0301t", tok.Decode([]int32{'x', 300, 302}))
	require.Equal(t, 303, tok.VocabSize())
	id, ok := tok.ID("<|end|>")
	require.Equal(t, []any{int32(300), true}, []any{id, ok})
	f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "Replace", "pattern": object{"String": "x"}, "content": "yz"}, object{"type": "Prepend", "prepend": "_"}}}
	require.Equal(t, []int32{'_', 'y', 'z', 'a', 300, '_', 'b'}, parse(t, f).Encode("xa<|end|>b"))
}

// ranks is a file of ranks: the bytes, then these tokens.
func ranks(tokens ...string) string {
	var b strings.Builder
	for i := range 256 {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	for i, token := range tokens {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), 256+i)
	}
	return b.String()
}

func TestTiktokenByHand(t *testing.T) {
	file := ranks("bc", "ab", "abc", "abcd", "xyz", " a")
	tok, err := bpe.ParseTiktoken([]byte(file), "cl100k_base", []string{"<|end|>", "<|far|>=1000", "<|next|>", "a=b"})
	require.NoError(t, err)
	for text, want := range map[string][]int32{
		"abc":             {258},      // as it is
		"abcde":           {259, 'e'}, // bc 256, abc 258, abcd 259
		"abd":             {257, 'd'},
		"xyz":             {260},                // as it is
		"xyzx":            {'x', 'y', 'z', 'x'}, // no pair leads there
		"abc abc":         {258, ' ', 258},      // " abc" is a piece: bc first, then abc, so that " a" is never a pair
		"b a":             {'b', 261},
		"<|end|>a<|far|>": {262, 'a', 1000},
		"<|next|>a=b":     {1001, 1002},
	} {
		require.Equal(t, want, tok.Encode(text), text)
		require.Equal(t, text, tok.Decode(want))
	}
	require.Equal(t, 1003, tok.VocabSize())
	require.Equal(t, "tiktoken, 1003 ids", tok.String())
}

// slow is byte pair encoding as it is defined: over and over, the leftmost of the pairs of lowest rank.
func slow(rank map[string]int, piece string) []string {
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		best := -1
		for i := range len(parts) - 1 {
			r, ok := rank[parts[i]+parts[i+1]]
			if ok && (best < 0 || r < rank[parts[best]+parts[best+1]]) {
				best = i
			}
		}
		if best < 0 {
			return parts
		}
		parts = append(append(parts[:best:best], parts[best]+parts[best+1]), parts[best+2:]...)
	}
}

// TestMergesAreThoseOfTheDefinition compares with the quadratic definition on vocabularies of drawn tokens.
func TestMergesAreThoseOfTheDefinition(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tokens := rapid.SliceOfNDistinct(rapid.StringMatching(`[abc]{2,5}`), 0, 30, func(s string) string { return s }).Draw(r, "tokens")
		text := rapid.StringMatching(`[abc]{6,30}`).Draw(r, "text") // longer than any token: never one as it is
		tok, err := bpe.ParseTiktoken([]byte(ranks(tokens...)), "gpt2", nil)
		require.NoError(r, err)
		rank := map[string]int{}
		for i, token := range tokens {
			rank[token] = i
		}
		var got []string
		for _, id := range tok.Encode(text) {
			got = append(got, tok.Decode([]int32{id}))
		}
		require.Equal(r, slow(rank, text), got)
	})
}

// TestRoundTrip: every text of bytes, UTF-8 or not, comes back, by every pattern.
func TestRoundTrip(t *testing.T) {
	var all []*bpe.Tokenizer
	for _, name := range bpe.PatternNames() {
		tok, err := bpe.ParseTiktoken([]byte(ranks("he", "ll", "hell", "hello", " w", "\n\n", "é", "  ")), name, []string{"<|end|>"})
		require.NoError(t, err)
		all = append(all, tok)
	}
	all = append(all, parse(t, hugging("h e", "l l", "he ll", "Ġ w", "Ċ Ċ")))
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`([hello w\n]|<\|end\|>|é|\d|'|S|!){0,40}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(r, "text")
		for _, tok := range all {
			ids := tok.Encode(text)
			require.Equal(r, text, tok.Decode(ids))
			for _, id := range ids {
				require.True(r, id >= 0 && int(id) < tok.VocabSize())
			}
			require.Equal(r, ids, tok.Encode(text))
		}
	})
}

// TestLongPieces: a piece of a megabyte takes no quadratic time, nor does one of white space.
func TestLongPieces(t *testing.T) {
	tok, err := bpe.ParseTiktoken([]byte(ranks("aa", "aaaa", "  ")), "cl100k_base", nil)
	require.NoError(t, err)
	start := time.Now()
	require.Len(t, tok.Encode(strings.Repeat("a", 1<<20)), 1<<18)
	require.Equal(t, 1<<19+2, len(tok.Encode(strings.Repeat(" ", 1<<20)+" b"))) // n spaces, then " b" as " ", "b"
	require.Less(t, time.Since(start), time.Minute)
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	text, err := json.Marshal(hugging("a b"))
	require.NoError(t, err)
	tok, err := bpe.LoadHuggingFace(put("tokenizer.json", string(text)))
	require.NoError(t, err)
	require.Equal(t, []int32{256}, tok.Encode("ab"))
	require.Contains(t, tok.String(), "tokenizer.json, 257 ids")
	tok, err = bpe.LoadTiktoken(put("a.tiktoken", ranks("ab")+"\n"), "gpt2", nil)
	require.NoError(t, err)
	require.Equal(t, []int32{256}, tok.Encode("ab"))
	for want, load := range map[string]func() error{
		"none: no such file":             func() error { _, err := bpe.LoadHuggingFace(filepath.Join(dir, "none")); return err },
		": found a folder":               func() error { _, err := bpe.LoadTiktoken(dir, "gpt2", nil); return err },
		"bad.tiktoken:257: found \"x\"":  func() error { _, err := bpe.LoadTiktoken(put("bad.tiktoken", ranks()+"x"), "gpt2", nil); return err },
		"bad.json:2: no tokenizer.json:": func() error { _, err := bpe.LoadHuggingFace(put("bad.json", "{\n,}")); return err },
	} {
		var e *bpe.Error
		require.ErrorAs(t, load(), &e, want)
		require.ErrorContains(t, e, want)
	}
}
