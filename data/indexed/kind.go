// Package indexed reads and writes Megatron's indexed datasets: token sequences in PREFIX.bin, and where each one lies
// in PREFIX.idx (version 1).
//
// PREFIX.idx is, little-endian: the 9 bytes "MMIDIDX\0\0"; u64 version 1; u8 code of the token type; u64 n, the number
// of sequences; u64 m, the number of document boundaries; i32[n] lengths in tokens; i64[n] pointers, the byte offset of
// each sequence in PREFIX.bin; i64[m] boundaries, 0 first and n last: document d is the sequences
// [boundary d, boundary d+1). PREFIX.bin is the tokens of all sequences behind each other, nothing else.
//
// Files are mapped, not read: an open dataset costs address space, and memory only for the pages that are used.
package indexed

import (
	"fmt"
	"math"
)

// Kind is the type of a token in a file; its value is the code in the index.
type Kind uint8

// The codes of token types. Float types have codes too and hold no tokens.
const (
	Uint8       Kind = 1
	Int8        Kind = 2
	Int16       Kind = 3
	Int32       Kind = 4
	Int64       Kind = 5
	float64Code Kind = 6
	float32Code Kind = 7
	Uint16      Kind = 8
)

// kinds is name, size in bytes and range of each code.
var kinds = map[Kind]struct {
	name      string
	size      int
	low, high int64
}{
	Uint8: {"uint8", 1, 0, math.MaxUint8}, Int8: {"int8", 1, 0, math.MaxInt8}, Int16: {"int16", 2, 0, math.MaxInt16},
	Int32: {"int32", 4, 0, math.MaxInt32}, Int64: {"int64", 8, 0, math.MaxInt32}, Uint16: {"uint16", 2, 0, math.MaxUint16},
	float64Code: {"float64", 8, 0, -1}, float32Code: {"float32", 4, 0, -1},
}

// uint16VocabMax is the vocabulary below which Megatron writes uint16.
const uint16VocabMax = 65500

// KindFor is the type that Megatron writes for a vocabulary: uint16 below 65500 tokens, else int32.
func KindFor(vocab int) Kind {
	if vocab < uint16VocabMax {
		return Uint16
	}
	return Int32
}

// Size is the bytes of a token.
func (k Kind) Size() int { return kinds[k].size }

// Max is the greatest token a file of this kind can hold, −1 for a type that holds none. No token is negative or above
// 2³¹−1.
func (k Kind) Max() int64 { return kinds[k].high }

// String is numpy's name of the type.
func (k Kind) String() string {
	if known, ok := kinds[k]; ok {
		return known.name
	}
	return fmt.Sprintf("code %d", uint8(k))
}

// knownKinds are the codes of types that hold tokens, for messages.
const knownKinds = "1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64) or 8 (uint16)"

// FormatError is a file that is no indexed dataset, or a broken one: the user has to write it again or name another.
type FormatError struct {
	Path     string
	Found    string
	Expected string
	Err      error // nil, or the cause
}

// Error is one sentence.
func (e *FormatError) Error() string { return e.Path + ": " + e.Reason() }

// Reason is the sentence without the path.
func (e *FormatError) Reason() string { return "found " + e.Found + ", expected " + e.Expected }

// Unwrap is the cause.
func (e *FormatError) Unwrap() error { return e.Err }
