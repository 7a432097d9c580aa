package indexed

import (
	"encoding/binary"
	"fmt"
)

func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
func i64(b []byte) int64  { return int64(u64(b)) }
func i32(b []byte) int64  { return int64(int32(binary.LittleEndian.Uint32(b))) }

// Sequences is the number of sequences.
func (f *File) Sequences() int { return int(f.n) }

// Documents is the number of documents.
func (f *File) Documents() int { return int(f.m - 1) }

// Tokens is the number of tokens of all sequences.
func (f *File) Tokens() int64 { return f.tokens }

// Kind is the type of the tokens in the file.
func (f *File) Kind() Kind { return f.kind }

// Document is the sequences [from, to) of document d.
func (f *File) Document(d int) (from, to int, err error) {
	a, err := f.boundary(int64(d))
	if err != nil {
		return 0, 0, err
	}
	b, err := f.boundary(int64(d) + 1)
	return int(a), int(b), err
}

// Length is the number of tokens of sequence i.
func (f *File) Length(i int) (int, error) {
	var b [4]byte
	err := f.at(f.idx, b[:], headerBytes+4*int64(i), ".idx")
	return int(i32(b[:])), err
}

// Lengths calls yield with the length of each sequence of [from, to), in order.
func (f *File) Lengths(from, to int, yield func(length int)) error {
	b := make([]byte, 4*chunkEntries)
	for ; from < to; from += chunkEntries {
		k := min(chunkEntries, to-from)
		if err := f.at(f.idx, b[:4*k], headerBytes+4*int64(from), ".idx"); err != nil {
			return err
		}
		for i := range k {
			yield(int(i32(b[4*i:])))
		}
	}
	return nil
}

// Read fills tokens with those of sequence i from its token first on. A token below 0 or above 2³¹−1 is an error, as
// is a file that shrank after it was opened.
func (f *File) Read(tokens []int32, i, first int) error {
	var p [8]byte
	if err := f.at(f.idx, p[:], headerBytes+4*f.n+8*int64(i), ".idx"); err != nil {
		return err
	}
	size := f.kind.Size()
	raw := make([]byte, size*len(tokens))
	if err := f.at(f.bin, raw, i64(p[:])+int64(size*first), ".bin"); err != nil {
		return err
	}
	for j := range tokens {
		v := f.kind.token(raw[j*size:])
		if v < 0 || v > Int32.Max() {
			return &FormatError{Path: f.prefix + ".bin", Found: fmt.Sprintf("token %d at %d of sequence %d", v, first+j, i),
				Expected: fmt.Sprintf("one from 0 to %d", Int32.Max())}
		}
		tokens[j] = int32(v)
	}
	return nil
}

// token is the first token of raw.
func (k Kind) token(raw []byte) int64 {
	switch k {
	case Uint8:
		return int64(raw[0])
	case Int8:
		return int64(int8(raw[0]))
	case Int16:
		return int64(int16(binary.LittleEndian.Uint16(raw)))
	case Uint16:
		return int64(binary.LittleEndian.Uint16(raw))
	case Int32:
		return i32(raw)
	}
	return i64(raw)
}

// put writes a token to the front of raw.
func (k Kind) put(raw []byte, token int32) {
	switch k {
	case Uint8, Int8:
		raw[0] = byte(token)
	case Int16, Uint16:
		binary.LittleEndian.PutUint16(raw, uint16(token))
	case Int32:
		binary.LittleEndian.PutUint32(raw, uint32(token))
	default:
		binary.LittleEndian.PutUint64(raw, uint64(token))
	}
}
