package indexed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// magic starts an index.
const magic = "MMIDIDX\x00\x00"

// headerBytes is what stands before the lengths: magic, version, code, two counts.
const headerBytes = int64(len(magic)) + 8 + 1 + 8 + 8

// entryBytes is a length and a pointer in the index.
const entryBytes = 4 + 8

// File is an open indexed dataset. It may be read from several goroutines at once.
type File struct {
	prefix   string
	kind     Kind
	n, m     int64 // sequences, document boundaries
	tokens   int64
	idx, bin io.ReaderAt
	close    []io.Closer
}

// Prefix is the name of a dataset without the ending of one of its files, should the user have given that.
func Prefix(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, ".bin"), ".idx")
}

// Open maps PREFIX.idx and PREFIX.bin and checks the whole index; no token is read. Close it when done. What is wrong
// with a file is a *FormatError; a file that is not there is an fs.ErrNotExist too.
func Open(prefix string) (*File, error) {
	prefix = Prefix(prefix)
	idx, err := openMapped(prefix + ".idx")
	if err != nil {
		return nil, err
	}
	bin, err := openMapped(prefix + ".bin")
	if err != nil {
		return nil, errors.Join(err, idx.Close())
	}
	f, err := Parse(idx, idx.size, bin, bin.size, prefix)
	if err != nil {
		return nil, errors.Join(err, idx.Close(), bin.Close())
	}
	f.close = []io.Closer{idx, bin}
	return f, nil
}

// openMapped opens one of the two files.
func openMapped(path string) (*mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	defer f.Close() // a mapping outlives it
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		return nil, &FormatError{Path: path, Found: "a folder or a special file", Expected: "a file of an indexed dataset"}
	}
	if err != nil {
		return nil, openError(path, err)
	}
	m, err := newMapping(f, st.Size())
	if err != nil {
		return nil, openError(path, err)
	}
	return m, nil
}

func openError(path string, err error) error {
	found := err.Error()
	var pe *fs.PathError
	if errors.As(err, &pe) {
		found = pe.Err.Error()
	}
	if errors.Is(err, fs.ErrNotExist) {
		found = "no such file"
	}
	return &FormatError{Path: path, Found: found, Expected: "PREFIX.idx and PREFIX.bin beside each other", Err: err}
}

// Parse reads the index of a dataset from idx and keeps both readers. prefix stands for it in errors.
func Parse(idx io.ReaderAt, idxBytes int64, bin io.ReaderAt, binBytes int64, prefix string) (*File, error) {
	f := &File{prefix: prefix, idx: idx, bin: bin}
	if err := f.readHeader(idxBytes); err != nil {
		return nil, err
	}
	if err := f.checkSequences(binBytes); err != nil {
		return nil, err
	}
	return f, f.checkDocuments()
}

// readHeader reads everything before the lengths and compares the counts with the size of the index.
func (f *File) readHeader(size int64) error {
	head := make([]byte, headerBytes)
	if size < headerBytes {
		return f.badIndex(fmt.Sprintf("%d bytes", size), fmt.Sprintf("at least the %d of an index's header", headerBytes))
	}
	if err := f.at(f.idx, head, 0, ".idx"); err != nil {
		return err
	}
	if found := string(head[:len(magic)]); found != magic {
		return f.badIndex(fmt.Sprintf("%q at the start", found), fmt.Sprintf("%q of an indexed dataset", magic))
	}
	head = head[len(magic):]
	if v := u64(head); v != 1 {
		return f.badIndex(fmt.Sprintf("version %d", v), "version 1")
	}
	if f.kind = Kind(head[8]); f.kind.Max() <= 0 {
		return f.badIndex("token type "+f.kind.String(), knownKinds)
	}
	n, m := u64(head[9:]), u64(head[17:])
	rest := uint64(size - headerBytes)
	if n > rest/entryBytes || m > rest/8 || n*entryBytes+m*8 > rest {
		return f.badIndex(fmt.Sprintf("%d bytes for %d sequences and %d document boundaries", size, n, m),
			"more: the index is cut, or its counts are wrong")
	}
	f.n, f.m = int64(n), int64(m)
	switch more := rest - n*entryBytes - m*8; {
	case more == n && n > 0:
		return f.badIndex("a mode for each sequence", "none: multimodal datasets are not supported")
	case more > 0:
		return f.badIndex(fmt.Sprintf("%d bytes behind the end", more), "none: the index is broken, or its counts are wrong")
	}
	return nil
}

// chunkEntries is how many entries of the index are read at a time.
const chunkEntries = 4096

// checkSequences wants every sequence to start where the last one ends, as Megatron writes them, and the last one to
// end where PREFIX.bin does: so no flipped bit of a length or a pointer, and no cut file, is read as other tokens.
func (f *File) checkSequences(binBytes int64) error {
	lengths, pointers := make([]byte, 4*chunkEntries), make([]byte, 8*chunkEntries)
	next := int64(0) // bytes so far
	for first := int64(0); first < f.n; first += chunkEntries {
		k := min(chunkEntries, f.n-first)
		if err := f.at(f.idx, lengths[:4*k], headerBytes+4*first, ".idx"); err != nil {
			return err
		}
		if err := f.at(f.idx, pointers[:8*k], headerBytes+4*f.n+8*first, ".idx"); err != nil {
			return err
		}
		for i := range k {
			length, pointer := i32(lengths[4*i:]), i64(pointers[8*i:])
			if length < 0 {
				return f.badIndex(fmt.Sprintf("length %d of sequence %d", length, first+i), "0 or more")
			}
			if pointer != next {
				return f.badIndex(fmt.Sprintf("pointer %d of sequence %d", pointer, first+i), fmt.Sprintf("%d, the end of the one before", next))
			}
			next += length * int64(f.kind.Size())
			f.tokens += length
		}
	}
	if next != binBytes {
		return &FormatError{Path: f.prefix + ".bin", Found: fmt.Sprintf("%d bytes", binBytes), Expected: fmt.Sprintf(
			"%d, %d tokens of %s in %d sequences as %s.idx says: one of the two is cut, or of another dataset", next, f.tokens, f.kind, f.n, f.prefix)}
	}
	return nil
}

// checkDocuments wants boundaries from 0 to n that never fall.
func (f *File) checkDocuments() error {
	if f.m == 0 {
		return f.badIndex("no document boundary", "0 at least")
	}
	before := int64(0)
	for d := range f.m {
		at, err := f.boundary(d)
		switch {
		case err != nil:
			return err
		case d == 0 && at != 0:
			return f.badIndex(fmt.Sprintf("%d as the first document boundary", at), "0")
		case at < before || at > f.n:
			return f.badIndex(fmt.Sprintf("document boundary %d: sequence %d", d, at), fmt.Sprintf("one from %d to %d", before, f.n))
		case d == f.m-1 && at != f.n:
			return f.badIndex(fmt.Sprintf("%d as the last document boundary", at), fmt.Sprintf("%d, the number of sequences", f.n))
		}
		before = at
	}
	return nil
}

func (f *File) boundary(d int64) (int64, error) {
	var b [8]byte
	err := f.at(f.idx, b[:], headerBytes+entryBytes*f.n+8*d, ".idx")
	return i64(b[:]), err
}

// at reads all of b.
func (f *File) at(r io.ReaderAt, b []byte, offset int64, ending string) error {
	if _, err := r.ReadAt(b, offset); err != nil {
		return &FormatError{Path: f.prefix + ending, Found: fmt.Sprintf("%v at byte %d", err, offset),
			Expected: "a file that does not change while it is open", Err: err}
	}
	return nil
}

func (f *File) badIndex(found, expected string) error {
	return &FormatError{Path: f.prefix + ".idx", Found: found, Expected: expected}
}

// Close unmaps the files. Nothing may be read afterwards.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.close {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
