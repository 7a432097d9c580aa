// Package bpe is byte-level byte pair encoding: tokenizers that are read from Hugging Face's tokenizer.json and from
// tiktoken's files of ranks. What a file asks for and this package does not do is refused by name, never left out.
//
// A text goes through these steps. Added tokens are taken out of it, the leftmost first and the longest of those that
// start there. What is between them is normalised, and searched once more for the added tokens that are matched in
// normalised text. The rest is split into pieces by patterns. A piece starts as its bytes; the two neighbours whose pair
// has the lowest rank are merged, the leftmost first, until no pair has a rank.
package bpe

import (
	"fmt"
	"strings"
)

// Tokenizer turns texts into ids and back. It may be used from several goroutines at once.
type Tokenizer struct {
	name      string // of its file
	vocab     vocabulary
	pairs     map[uint64]merge
	bytes     [256]int32 // the token of each byte
	whole     bool       // a piece that is a token is not merged from its bytes
	steps     []step     // pre-tokenizer
	normalise func(string) string
	raw       matcher // added tokens that are matched in the text as it is
	normal    matcher // and in normalised text
}

// vocabulary is tokens by id and ids by token, as bytes.
type vocabulary struct {
	ids  map[string]int32 // of the model
	text map[int32]string // of the model and added ones
	size int              // one more than the greatest id
}

// merge is what a pair of tokens becomes.
type merge struct{ rank, id int32 }

// pair is the key of two neighbours.
func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// VocabSize is one more than the greatest id.
func (t *Tokenizer) VocabSize() int { return t.vocab.size }

// ID is the id of an added token or of a token of the model, given as text; ok is false if there is none.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	for _, m := range []matcher{t.raw, t.normal} {
		if id, ok := m.ids[token]; ok {
			return id, true
		}
	}
	id, ok = t.vocab.ids[token]
	return id, ok
}

// String names the tokenizer: its file and its number of ids.
func (t *Tokenizer) String() string { return fmt.Sprintf("%s, %d ids", t.name, t.vocab.size) }

// Encode is the ids of a text. No token is put before or behind it, whatever the post-processor of the file says: a
// document is made of several texts.
func (t *Tokenizer) Encode(text string) []int32 {
	e := encoder{t: t}
	t.raw.cut(text, e.add, func(between string) {
		if t.normalise != nil {
			between = t.normalise(between)
		}
		t.normal.cut(between, e.add, func(rest string) { e.steps(rest, t.steps) })
	})
	return e.ids
}

// Decode is the bytes of the ids; an id that is no token becomes U+FFFD. A cut character gives a cut character.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		text, ok := t.vocab.text[id]
		if !ok {
			text = "\uFFFD"
		}
		b.WriteString(text)
	}
	return b.String()
}

// encoder collects the ids of one text.
type encoder struct {
	t   *Tokenizer
	ids []int32
	m   merger
}

func (e *encoder) add(id int32) { e.ids = append(e.ids, id) }

// steps splits a text by the first step, its pieces by the next one and so on, and encodes what comes out.
func (e *encoder) steps(text string, left []step) {
	if text == "" {
		return
	}
	if len(left) == 0 {
		e.piece(text)
		return
	}
	left[0](text, func(piece string) { e.steps(piece, left[1:]) })
}

// piece encodes one piece.
func (e *encoder) piece(piece string) {
	if e.t.whole {
		if id, ok := e.t.vocab.ids[piece]; ok {
			e.add(id)
			return
		}
	}
	e.ids = e.m.merge(e.ids, e.t, piece)
}
