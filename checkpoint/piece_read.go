package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"

	"phalanx/nn"
)

// pieceReader reads one piece of a tensor in checked blocks. It keeps the last block, so that runs of neighbours read
// each block once.
type pieceReader struct {
	s     *Sharded
	file  *File
	name  string
	piece *Piece
	size  int // bytes of an element
	bytes int // of the piece
	block int // number of the block that is kept; −1: none
	kept  []byte
}

// reader opens the file of a piece and checks that it holds the tensor.
func (s *Sharded) reader(t *Record, p *Piece) (*pieceReader, error) {
	file, err := s.file(p.File, t.Name)
	if err != nil {
		return nil, err
	}
	info, err := file.info(p.Key)
	if err != nil {
		return nil, err
	}
	r := &pieceReader{s: s, file: file, name: t.Name, piece: p, size: sizes[t.DType], block: -1}
	r.bytes = (p.To - p.From) * r.size
	if want := pieceShape(t.Shape, nn.Shard{Dim: t.Dim, Parts: t.Parts, Index: p.Index}, p.To-p.From); info.DType != t.DType || !slices.Equal(info.Shape, want) {
		return nil, &FormatError{Path: file.path, Tensor: t.Name, Kind: ErrMismatch, Found: fmt.Sprintf("%s %v", info.DType, info.Shape),
			Expected: fmt.Sprintf("%s %v as the manifest has it", t.DType, want)}
	}
	return r, nil
}

// file opens a file once. tensor is what is wanted of it.
func (s *Sharded) file(name, tensor string) (*File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[name]; f != nil {
		return f, nil
	}
	path := filepath.Join(s.dir, name)
	f, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = &FormatError{Path: path, Tensor: tensor, Kind: ErrTruncated, Found: "no file", Expected: "the file that the manifest names"}
	}
	if err != nil {
		return nil, err
	}
	s.files[name] = f
	return f, nil
}

// copy fills dst with bytes of the piece from off on.
func (r *pieceReader) copy(dst []byte, off int) error {
	block := r.s.Manifest.BlockBytes
	for len(dst) > 0 {
		if err := r.load(off / block); err != nil {
			return err
		}
		n := copy(dst, r.kept[off%block:])
		dst, off = dst[n:], off+n
	}
	return nil
}

// load reads a block and compares its checksum.
func (r *pieceReader) load(block int) error {
	if block == r.block {
		return nil
	}
	size := r.s.Manifest.BlockBytes
	from := block * size
	r.kept = slices.Grow(r.kept[:0], min(size, r.bytes))[:min(size, r.bytes-from)]
	r.block = -1
	if err := r.file.ReadAt(r.piece.Key, r.kept, int64(from)); err != nil {
		return err
	}
	r.s.mu.Lock()
	r.s.bytes += int64(len(r.kept))
	r.s.mu.Unlock()
	want := r.piece.CRC32C[crcDigits*block : crcDigits*(block+1)]
	if got := fmt.Sprintf("%08x", crc32.Checksum(r.kept, castagnoli)); got != want {
		return &FormatError{Path: r.file.path, Tensor: r.name, Kind: ErrCorrupt,
			Found:    fmt.Sprintf("checksum %s of bytes %d to %d of the tensor", got, from, from+len(r.kept)),
			Expected: want + "; the disk has changed it, load an older checkpoint"}
	}
	r.block = block
	return nil
}
