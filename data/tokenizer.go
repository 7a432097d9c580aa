package data

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"phalanx/config"
	"phalanx/data/bpe"
)

// Tokenizer turns text into ids and back.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32) string
	VocabSize() int
}

// NewTokenizer makes the tokenizer of a scenario's section; a relative path starts in dir. What is wrong with its file,
// or not supported, is an *Error.
func NewTokenizer(t config.Tokenizer, dir string) (Tokenizer, error) {
	path := t.Model
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	var tok *bpe.Tokenizer
	var err error
	switch t.Kind {
	case "", "byte":
		return Bytes{}, nil
	case "huggingface":
		tok, err = bpe.LoadHuggingFace(path)
	case "tiktoken":
		tok, err = bpe.LoadTiktoken(path, t.TiktokenPattern, t.TiktokenSpecialTokens)
	default:
		return nil, problem("tokenizer.kind", 0, "found %q, expected byte, huggingface or tiktoken", t.Kind)
	}
	var wrong *bpe.Error
	if errors.As(err, &wrong) {
		out := &Error{Err: err}
		out.add(wrong.Path, wrong.Line, "%s", wrong.Reason)
		return nil, out
	}
	if err != nil {
		return nil, err
	}
	return tok, nil
}

// TokenID is the id of a token that is given as its text, or as an id; ok is false if the tokenizer has none such.
func TokenID(tok Tokenizer, name string) (id int32, ok bool) {
	if named, can := tok.(interface{ ID(string) (int32, bool) }); can {
		if id, ok := named.ID(name); ok {
			return id, true
		}
	}
	n, err := strconv.Atoi(name)
	return int32(n), err == nil && n >= 0 && n < tok.VocabSize()
}

// byteVocab is the vocabulary of the byte-level tokenizer: one id per byte, no special ids.
const byteVocab = 256

// Bytes is the byte-level tokenizer: the id of a token is the byte's value.
type Bytes struct{}

// Encode is the bytes of the text.
func (Bytes) Encode(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range ids {
		ids[i] = int32(text[i])
	}
	return ids
}

// Decode is the text of the bytes; an id that is no byte becomes U+FFFD. A cut character gives a cut character.
func (Bytes) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 0 || id >= byteVocab {
			b.WriteString("\uFFFD")
			continue
		}
		b.WriteByte(byte(id))
	}
	return b.String()
}

// VocabSize is 256.
func (Bytes) VocabSize() int { return byteVocab }
