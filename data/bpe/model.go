package bpe

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpeModel is the model part of a tokenizer.json.
type bpeModel struct {
	Type         string          `json:"type"`
	Dropout      *float64        `json:"dropout"`
	UnkToken     *string         `json:"unk_token"` // of no use: every byte has a token
	WordPrefix   *string         `json:"continuing_subword_prefix"`
	WordSuffix   *string         `json:"end_of_word_suffix"`
	FuseUnk      bool            `json:"fuse_unk"` // of no use either
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        map[string]int  `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
}

// model reads vocabulary and merges.
func (t *Tokenizer) model(part json.RawMessage) *Error {
	if absent(part) {
		return wrong("model: found none, expected one of type BPE")
	}
	kind, err := typeOf("model", part)
	if err != nil {
		return err
	}
	if kind != "BPE" && kind != "" {
		return wrong("model: type %q is not supported; legal: BPE", kind)
	}
	var m bpeModel
	if err := strict("model", part, &m); err != nil {
		return err
	}
	if err := m.unsupported(); err != nil {
		return err
	}
	t.whole = m.IgnoreMerges
	for _, token := range slices.Sorted(maps.Keys(m.Vocab)) {
		if err := t.vocab.put(unmapped(token), m.Vocab[token]); err != nil {
			return err
		}
	}
	for b := range t.bytes {
		id, ok := t.vocab.ids[string([]byte{byte(b)})]
		if !ok {
			return wrong("model: found no token %q for the byte %#02x, expected a byte-level vocabulary with all 256", string(byteRunes[b]), b)
		}
		t.bytes[b] = id
	}
	return t.merges(m.Merges)
}

// unsupported is what of the model this package does not do.
func (m *bpeModel) unsupported() *Error {
	set := func(text *string) bool { return text != nil && *text != "" }
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return wrong("model: dropout %g is not supported; legal: null", *m.Dropout)
	case set(m.WordPrefix):
		return wrong("model: continuing_subword_prefix %q is not supported; legal: null", *m.WordPrefix)
	case set(m.WordSuffix):
		return wrong("model: end_of_word_suffix %q is not supported; legal: null", *m.WordSuffix)
	case m.ByteFallback:
		return wrong("model: byte_fallback: true is not supported; legal: false, with a byte-level vocabulary")
	}
	return nil
}

// merges reads the list of merges, in the order of their ranks: each is "LEFT RIGHT" or ["LEFT", "RIGHT"].
func (t *Tokenizer) merges(part json.RawMessage) *Error {
	var pairs [][2]string
	var lines []string
	switch {
	case absent(part):
	case json.Unmarshal(part, &lines) == nil:
		for i, line := range lines {
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return wrong("model: merge %d: found %q, expected two tokens with a space between", i, line)
			}
			pairs = append(pairs, [2]string{left, right})
		}
	default:
		if err := json.Unmarshal(part, &pairs); err != nil {
			return wrong("model: merges: found neither texts nor pairs of texts")
		}
	}
	for rank, p := range pairs {
		left, right := unmapped(p[0]), unmapped(p[1])
		l, ok := t.vocab.ids[left]
		r, ok2 := t.vocab.ids[right]
		both, ok3 := t.vocab.ids[left+right]
		if !ok || !ok2 || !ok3 {
			return wrong("model: merge %d: found %q and %q, expected that they and both together are tokens", rank, p[0], p[1])
		}
		t.pairs[pair(l, r)] = merge{rank: int32(rank), id: both}
	}
	return nil
}

// byteRunes are the characters that stand for bytes in a byte-level vocabulary: printable ones for themselves, the
// others, in ascending order, by U+0100 and what follows.
var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			runes[b] = rune(b)
			continue
		}
		runes[b] = next
		next++
	}
	return runes
}()

var runeBytes = func() map[rune]byte {
	out := map[rune]byte{}
	for b, r := range byteRunes {
		out[r] = byte(b)
	}
	return out
}()

// unmapped is the bytes of a token of a byte-level vocabulary. One with other characters, an added one, stands for itself.
func unmapped(token string) string {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := runeBytes[r]
		if !ok || r == utf8.RuneError {
			return token
		}
		out = append(out, b)
	}
	return string(out)
}
