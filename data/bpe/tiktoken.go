package bpe

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

// LoadTiktoken reads a tiktoken vocabulary: a token in base64, a space and its rank a line; the rank is the id. The
// pattern is one of PatternNames. Special tokens are NAME, whose id follows the greatest one so far, or NAME=ID. What
// is wrong is an *Error.
func LoadTiktoken(path, pattern string, special []string) (*Tokenizer, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	t, err := ParseTiktoken(b, pattern, special)
	return withPath(t, path, err)
}

// withPath puts the path into a tokenizer or its error.
func withPath(t *Tokenizer, path string, err error) (*Tokenizer, error) {
	var e *Error
	if errors.As(err, &e) {
		e.Path = path
	}
	if err != nil {
		return nil, err
	}
	t.name = path
	return t, nil
}

// ParseTiktoken is LoadTiktoken of the contents of a file.
func ParseTiktoken(file []byte, pattern string, special []string) (*Tokenizer, error) {
	p := named(pattern)
	if p == nil {
		return nil, wrong("found pattern %q, expected one of %s", pattern, strings.Join(PatternNames(), ", "))
	}
	t := &Tokenizer{name: "tiktoken", whole: true, steps: []step{p.isolated()}, vocab: newVocabulary(), pairs: map[uint64]merge{}}
	for i, line := range bytes.Split(file, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := t.rankLine(line); err != nil {
			err.Line = i + 1
			return nil, err
		}
	}
	for b := range t.bytes {
		id, ok := t.vocab.ids[string([]byte{byte(b)})]
		if !ok {
			return nil, wrong("found no token for the byte %#02x, expected one for each of the 256 bytes", b)
		}
		t.bytes[b] = id
	}
	t.rankPairs()
	for _, s := range special {
		if err := t.specialToken(s); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func newVocabulary() vocabulary {
	return vocabulary{ids: map[string]int32{}, text: map[int32]string{}}
}

// put adds a token of the model.
func (v *vocabulary) put(token string, id int) *Error {
	if id < 0 || id >= idsMax {
		return wrong("found id %d, expected one from 0 to %d", id, idsMax-1)
	}
	if other, ok := v.ids[token]; ok {
		return wrong("found the token %q twice, with ids %d and %d", token, other, id)
	}
	if other, ok := v.text[int32(id)]; ok {
		return wrong("found id %d twice, for %q and %q", id, other, token)
	}
	v.ids[token], v.text[int32(id)] = int32(id), token
	v.size = max(v.size, id+1)
	return nil
}

// rankLine reads one line.
func (t *Tokenizer) rankLine(line []byte) *Error {
	token, rank, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return wrong("found %.40q, expected a token in base64, a space and its rank", line)
	}
	raw, err := base64.StdEncoding.DecodeString(string(token))
	if err != nil || len(raw) == 0 {
		return wrong("found %.40q, expected a token in base64", token)
	}
	id, err := strconv.Atoi(string(bytes.TrimSpace(rank)))
	if err != nil {
		return wrong("found rank %.40q, expected a whole number", rank)
	}
	return t.vocab.put(string(raw), id)
}

// rankPairs makes a pair of every two tokens that together are a token: the bytes of two neighbours are what tiktoken
// looks up, and every part of a piece is a token.
func (t *Tokenizer) rankPairs() {
	for token, id := range t.vocab.ids {
		for i := 1; i < len(token); i++ {
			left, ok := t.vocab.ids[token[:i]]
			right, ok2 := t.vocab.ids[token[i:]]
			if ok && ok2 {
				t.pairs[pair(left, right)] = merge{rank: id, id: id}
			}
		}
	}
}

// specialToken adds NAME or NAME=ID.
func (t *Tokenizer) specialToken(text string) *Error {
	name, id := text, t.vocab.size
	if i := strings.LastIndexByte(text, '='); i > 0 {
		if n, err := strconv.Atoi(text[i+1:]); err == nil {
			name, id = text[:i], n
		}
	}
	return t.addToken(name, id, &t.raw)
}

// addToken adds a token that is matched whole.
func (t *Tokenizer) addToken(name string, id int, to *matcher) *Error {
	if name == "" {
		return wrong("found an empty added token with id %d, expected a text", id)
	}
	if id < 0 || id >= idsMax {
		return wrong("found id %d of the added token %q, expected one from 0 to %d", id, name, idsMax-1)
	}
	if known, ok := t.ID(name); ok && int(known) != id {
		return wrong("found id %d of the added token %q, which has %d already", id, name, known)
	}
	if other, ok := t.vocab.text[int32(id)]; ok && other != name {
		return wrong("found id %d of the added token %q, which is that of %q", id, name, other)
	}
	t.vocab.text[int32(id)] = name
	t.vocab.size = max(t.vocab.size, id+1)
	to.put(name, int32(id))
	return nil
}
