package data

import "strings"

// Tokenizer turns text into ids and back.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32) string
	VocabSize() int
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
