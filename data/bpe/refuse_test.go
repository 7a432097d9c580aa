package bpe_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/data/bpe"
)

// set is a file with the value at a path of keys replaced.
func set(value any, keys ...string) object {
	f := hugging("a b")
	at := f
	for _, key := range keys[:len(keys)-1] {
		at = at[key].(object)
	}
	at[keys[len(keys)-1]] = value
	return f
}

func TestRefusedByName(t *testing.T) {
	added := func(key string) []any {
		return []any{object{"id": 300, "content": "<x>", key: true}}
	}
	split := func(pattern object, behavior string, invert bool) object {
		return object{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
	}
	sequence := func(parts ...any) object { return object{"type": "Sequence", "pretokenizers": parts} }
	level := object{"type": "ByteLevel"}
	gpt2 := object{"Regex": `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`}
	for _, c := range []struct {
		want string
		file object
	}{
		{`model: type "Unigram" is not supported; legal: BPE`, set("Unigram", "model", "type")},
		{`model: type "WordPiece"`, set("WordPiece", "model", "type")},
		{"model: dropout 0.1 is not supported", set(0.1, "model", "dropout")},
		{`model: continuing_subword_prefix "##" is not supported`, set("##", "model", "continuing_subword_prefix")},
		{`model: end_of_word_suffix "</w>" is not supported`, set("</w>", "model", "end_of_word_suffix")},
		{"model: byte_fallback: true is not supported", set(true, "model", "byte_fallback")},
		{`model: not supported: json: unknown field "cache"`, set(1, "model", "cache")},
		{`model: merge 0: found "ab", expected two tokens with a space between`, set([]string{"ab"}, "model", "merges")},
		{`model: merge 1: found "b" and "c", expected that they and both together are tokens`, set([]string{"a b", "b c"}, "model", "merges")},
		{"model: merges: found neither texts nor pairs of texts", set(3, "model", "merges")},
		{"found id -1, expected one from 0", set(-1, "model", "vocab", "zz")},
		{"found id 97 twice", set(97, "model", "vocab", "zz")},
		{"model: expected an object with a type", set(7, "model")},
		{"model: found none, expected one of type BPE", set(nil, "model")},
		{`normalizer: type "Lowercase" is not supported; legal: NFC, NFD`, set(object{"type": "Lowercase"}, "normalizer")},
		{`normalizer: type "Precompiled"`, set(object{"type": "Sequence", "normalizers": []any{object{"type": "Precompiled"}}}, "normalizer")},
		{"normalizer: Replace: expected a pattern of type String", set(object{"type": "Replace", "pattern": object{"Regex": "a"}, "content": ""}, "normalizer")},
		{"pre_tokenizer: found none, expected one that ends in ByteLevel", set(nil, "pre_tokenizer")},
		{`pre_tokenizer: type "Metaspace" is not supported`, set(object{"type": "Metaspace"}, "pre_tokenizer")},
		{`pre_tokenizer: found Split at its end, expected ByteLevel`, set(split(gpt2, "Isolated", false), "pre_tokenizer")},
		{`pre_tokenizer: Split: the pattern "a+" is not supported; legal: those of gpt2, cl100k_base, qwen2, o200k_base`, set(split(object{"Regex": "a+"}, "Isolated", false), "pre_tokenizer")},
		{"pre_tokenizer: Split: a pattern of type String is not supported", set(split(object{"String": " "}, "Isolated", false), "pre_tokenizer")},
		{`behavior "MergedWithNext" with invert false is not supported`, set(split(gpt2, "MergedWithNext", false), "pre_tokenizer")},
		{`behavior "Removed" with invert true is not supported`, set(split(object{"Regex": `\p{N}`}, "Removed", true), "pre_tokenizer")},
		{"found step 1 behind ByteLevel", set(sequence(level, level), "pre_tokenizer")},
		{`pre_tokenizer: ByteLevel: not supported: json: unknown field "x"`, set(object{"type": "ByteLevel", "x": 1}, "pre_tokenizer")},
		{`decoder: type "WordPiece" is not supported`, set(object{"type": "WordPiece"}, "decoder")},
		{`post_processor: type "Odd" is not supported`, set(object{"type": "Sequence", "processors": []any{object{"type": "Odd"}}}, "post_processor")},
		{`added_tokens: "<x>" with single_word: true is not supported`, set(added("single_word"), "added_tokens")},
		{`added_tokens: "<x>" with lstrip: true is not supported`, set(added("lstrip"), "added_tokens")},
		{`added_tokens: "<x>" with rstrip: true is not supported`, set(added("rstrip"), "added_tokens")},
		{`found id 97 of the added token "<x>", which is that of "a"`, set([]any{object{"id": 97, "content": "<x>"}}, "added_tokens")},
		{`found id 300 of the added token "ab", which has 256 already`, set([]any{object{"id": 300, "content": "ab"}}, "added_tokens")},
		{"found an empty added token with id 300", set([]any{object{"id": 300}}, "added_tokens")},
		{"found id 9999999 of the added token", set([]any{object{"id": 9999999, "content": "x!"}}, "added_tokens")},
	} {
		text, err := json.Marshal(c.file)
		require.NoError(t, err)
		_, err = bpe.ParseHuggingFace(text)
		var e *bpe.Error
		require.ErrorAs(t, err, &e, c.want)
		require.ErrorContains(t, err, c.want)
	}
	short := hugging()
	delete(short["model"].(object)["vocab"].(object), "Ġ")
	text, err := json.Marshal(short)
	require.NoError(t, err)
	_, err = bpe.ParseHuggingFace(text)
	require.ErrorContains(t, err, `model: found no token "Ġ" for the byte 0x20, expected a byte-level vocabulary with all 256`)
}

func TestTiktokenRefusals(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct {
		want, file, pattern string
		special             []string
	}{
		{`found pattern "x", expected one of gpt2, cl100k_base, qwen2, o200k_base`, ranks(), "x", nil},
		{"257: found \"YWI=\", expected a token in base64, a space and its rank", ranks() + b64("ab"), "gpt2", nil},
		{"257: found \"?!\", expected a token in base64", ranks() + "?! 256", "gpt2", nil},
		{"257: found \"\", expected a token in base64", ranks() + "= x", "gpt2", nil},
		{"257: found rank \"x\", expected a whole number", ranks() + b64("ab") + " x", "gpt2", nil},
		{"257: found id 255 twice, for \"\\xff\" and \"ab\"", ranks() + b64("ab") + " 255", "gpt2", nil},
		{"257: found the token \"a\" twice, with ids 97 and 256", ranks() + b64("a") + " 256", "gpt2", nil},
		{"found no token for the byte 0x00, expected one for each of the 256 bytes", strings.TrimPrefix(ranks(), "AA== 0\n"), "gpt2", nil},
		{`found id 97 of the added token "<e>", which is that of "a"`, ranks(), "gpt2", []string{"<e>=97"}},
		{"found id -1 of the added token", ranks(), "gpt2", []string{"<e>=-1"}},
		{"found an empty added token with id 256", ranks(), "gpt2", []string{""}},
	} {
		_, err := bpe.ParseTiktoken([]byte(c.file), c.pattern, c.special)
		var e *bpe.Error
		require.ErrorAs(t, err, &e, c.want)
		if strings.HasPrefix(c.want, "257: found \"\"") {
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}

func FuzzHuggingFace(f *testing.F) {
	for _, file := range []object{hugging("a b"), set("Unigram", "model", "type"), set(object{"type": "NFC"}, "normalizer"),
		set([]any{object{"id": 300, "content": "<x>"}}, "added_tokens")} {
		text, err := json.Marshal(file)
		require.NoError(f, err)
		f.Add(text, "a<x>b é")
	}
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := bpe.ParseHuggingFace(file)
		var e *bpe.Error
		if err != nil {
			require.ErrorAs(t, err, &e)
			return
		}
		for _, id := range tok.Encode(text) {
			require.True(t, id >= 0 && int(id) < tok.VocabSize())
		}
	})
}

func FuzzTiktoken(f *testing.F) {
	f.Add(ranks("ab", "abc"), "abc <e>", "<e>=300")
	f.Add("YQ== 1", "a", "=")
	f.Fuzz(func(t *testing.T, file, text, special string) {
		tok, err := bpe.ParseTiktoken([]byte(file), "cl100k_base", []string{special})
		var e *bpe.Error
		if err != nil {
			require.ErrorAs(t, err, &e)
			return
		}
		require.Equal(t, text, tok.Decode(tok.Encode(text)))
	})
}
