package indexed

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Writer writes an indexed dataset. Both files are written aside and renamed by Close, the index last: a dataset that
// has an index is whole. In memory are 4 bytes for each sequence.
type Writer struct {
	prefix string
	kind   Kind
	f      *os.File
	w      *bufio.Writer
	raw    []byte

	lengths    []int32
	boundaries []int64 // where documents end
	tokens     int64
}

// aside is the ending of a file that is being written.
const aside = ".part"

// Create starts a dataset of tokens of a kind. Files of the same names are replaced when Close succeeds.
func Create(prefix string, kind Kind) (*Writer, error) {
	if kind.Max() <= 0 {
		return nil, fmt.Errorf("indexed: found token type %s, expected %s", kind, knownKinds)
	}
	f, err := os.Create(prefix + ".bin" + aside)
	if err != nil {
		return nil, err
	}
	return &Writer{prefix: prefix, kind: kind, f: f, w: bufio.NewWriterSize(f, 1<<16)}, nil
}

// Add writes a sequence. A token that the kind cannot hold is an error, and then nothing of it is written.
func (w *Writer) Add(tokens []int32) error {
	size := w.kind.Size()
	w.raw = w.raw[:0]
	for i, token := range tokens {
		if token < 0 || int64(token) > w.kind.Max() {
			return fmt.Errorf("found token %d at %d, expected one from 0 to %d, which %s holds", token, i, w.kind.Max(), w.kind)
		}
		w.raw = append(w.raw, make([]byte, size)...)
		w.kind.put(w.raw[i*size:], token)
	}
	if _, err := w.w.Write(w.raw); err != nil {
		return err
	}
	w.lengths = append(w.lengths, int32(len(tokens)))
	w.tokens += int64(len(tokens))
	return nil
}

// EndDocument ends a document after the sequences so far.
func (w *Writer) EndDocument() { w.boundaries = append(w.boundaries, int64(len(w.lengths))) }

// Documents is the number of documents so far.
func (w *Writer) Documents() int { return len(w.boundaries) }

// Tokens is the number of tokens so far.
func (w *Writer) Tokens() int64 { return w.tokens }

// Close ends the last document if it has not been, writes the index and puts both files in place.
func (w *Writer) Close() error {
	if n := len(w.boundaries); n == 0 || w.boundaries[n-1] != int64(len(w.lengths)) {
		if len(w.lengths) > 0 {
			w.EndDocument()
		}
	}
	if err := errors.Join(w.w.Flush(), w.f.Sync(), w.f.Close()); err != nil {
		return errors.Join(err, os.Remove(w.f.Name()))
	}
	index := w.prefix + ".idx" + aside
	if err := w.writeIndex(index); err != nil {
		return errors.Join(err, os.Remove(w.f.Name()))
	}
	if err := os.Remove(w.prefix + ".idx"); err != nil && !errors.Is(err, os.ErrNotExist) { // never an old index beside new tokens
		return err
	}
	return errors.Join(os.Rename(w.f.Name(), w.prefix+".bin"), os.Rename(index, w.prefix+".idx"))
}

// Abort gives up and removes what has been written.
func (w *Writer) Abort() error { return errors.Join(w.f.Close(), os.Remove(w.f.Name())) }

func (w *Writer) writeIndex(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(f)
	err = errors.Join(w.encodeIndex(b), b.Flush(), f.Sync(), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// encodeIndex writes the index, as the package's comment says.
func (w *Writer) encodeIndex(b io.Writer) error {
	le := binary.LittleEndian
	out := append([]byte(magic), 1, 0, 0, 0, 0, 0, 0, 0, byte(w.kind))
	out = le.AppendUint64(out, uint64(len(w.lengths)))
	out = le.AppendUint64(out, uint64(len(w.boundaries)+1))
	for _, n := range w.lengths {
		out = le.AppendUint32(out, uint32(n))
	}
	next := uint64(0)
	for _, n := range w.lengths {
		out = le.AppendUint64(out, next)
		next += uint64(n) * uint64(w.kind.Size())
	}
	out = le.AppendUint64(out, 0)
	for _, at := range w.boundaries {
		out = le.AppendUint64(out, uint64(at))
	}
	_, err := b.Write(out)
	return err
}
