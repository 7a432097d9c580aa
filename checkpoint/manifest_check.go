package checkpoint

import (
	"fmt"
	"math/bits"
	"regexp"
	"strings"
)

// Limits of a manifest. They bound what a damaged or hostile one makes a reader do.
const (
	// ManifestBytesMax is far above the manifest of a trillion parameters, a million checksums.
	ManifestBytesMax = 1 << 30
	// blockBytesMax bounds the buffer of a reader.
	blockBytesMax = 1 << 26
	// layoutMax is more ranks than a run can have on one axis.
	layoutMax = 1 << 16
)

var rankFile = regexp.MustCompile(`^rank_[0-9]{5,}\.safetensors$`)

// check refuses a manifest whose tensors are not whole: a piece that is missing, twice, or of a file that is not listed.
func (m *Manifest) check(path string) error {
	bad := func(found, expected string) error {
		return &FormatError{Path: path, Kind: ErrManifest, Found: found, Expected: expected}
	}
	switch {
	case m.Version != ManifestVersion:
		return bad(fmt.Sprintf("version %d", m.Version), fmt.Sprintf("version %d; use the program that wrote it", ManifestVersion))
	case m.Iteration < 0 || m.Samples < 0 || m.Updates < 0:
		return bad(fmt.Sprintf("position %+v", m.Position), "numbers of at least 0")
	case m.BlockBytes < 8 || m.BlockBytes > blockBytesMax || m.BlockBytes%8 != 0:
		return bad(fmt.Sprintf("block_bytes %d", m.BlockBytes), fmt.Sprintf("a multiple of 8 up to %d", blockBytesMax))
	}
	for _, n := range [...]int{m.Layout.TP, m.Layout.CP, m.Layout.DP, m.Layout.PP, m.Layout.EP, m.Layout.ETP} {
		if n < 1 || n > layoutMax {
			return bad(fmt.Sprintf("layout %+v", m.Layout), fmt.Sprintf("sizes from 1 to %d", layoutMax))
		}
	}
	files := map[string]bool{}
	for i, f := range m.Files {
		switch {
		case !rankFile.MatchString(f.Name) || f.Bytes < 0:
			return bad(fmt.Sprintf("file %q of %d bytes", f.Name, f.Bytes), "rank_NNNNN.safetensors")
		case i > 0 && f.Name <= m.Files[i-1].Name:
			return bad(fmt.Sprintf("file %q behind %q", f.Name, m.Files[i-1].Name), "files in ascending order")
		}
		files[f.Name] = true
	}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if i > 0 && t.Name <= m.Tensors[i-1].Name {
			return bad(fmt.Sprintf("tensor %q behind %q", t.Name, m.Tensors[i-1].Name), "tensors in ascending order")
		}
		if found, expected := t.fault(files, m.BlockBytes); found != "" {
			return &FormatError{Path: path, Tensor: t.Name, Kind: ErrManifest, Found: found, Expected: expected}
		}
	}
	return nil
}

// fault says what is wrong with a tensor; "" is nothing.
func (t *Record) fault(files map[string]bool, block int) (found, expected string) {
	size := sizes[t.DType]
	elements := uint64(1)
	for _, d := range t.Shape {
		hi, lo := bits.Mul64(elements, uint64(d))
		if d < 1 || hi != 0 || lo > 1<<48 {
			return fmt.Sprintf("shape %v", t.Shape), "dimensions of at least 1 and at most 2^48 elements"
		}
		elements = lo
	}
	switch {
	case checkName(t.Name, "") != nil:
		return "this name", "a name of a parameter"
	case t.DType != "F32" && t.DType != "F64":
		return "dtype " + t.DType, "F32 or F64"
	case len(t.Shape) < 1 || len(t.Shape) > rankMax:
		return fmt.Sprintf("%d dimensions", len(t.Shape)), fmt.Sprintf("1 to %d", rankMax)
	case t.Dim < 0 || t.Dim >= len(t.Shape) || t.Parts < 1 || t.Shape[t.Dim]%t.Parts != 0:
		return fmt.Sprintf("%d parts along dimension %d of %v", t.Parts, t.Dim, t.Shape), "equal parts along one of its dimensions"
	}
	return t.pieceFault(files, int(elements)/t.Parts, size, block)
}

// pieceFault says whether the pieces are, one after the other, all shards of local elements.
func (t *Record) pieceFault(files map[string]bool, local, size, block int) (found, expected string) {
	index, at := 0, 0
	for _, p := range t.Pieces {
		if at == local {
			index, at = index+1, 0
		}
		want := fmt.Sprintf("elements from %d of shard %d of %d, which has %d", at, index, t.Parts, local)
		switch {
		case p.Index != index || p.From != at || p.To <= p.From || p.To > local || index >= t.Parts:
			return fmt.Sprintf("elements %d to %d of shard %d in %s", p.From, p.To, p.Index, p.File), want
		case !files[p.File]:
			return fmt.Sprintf("a piece in %q", p.File), "one of the files listed"
		case checkName(p.Key, "") != nil:
			return fmt.Sprintf("the key %q in %s", p.Key, p.File), "a name"
		}
		if n := blocks((p.To-p.From)*size, block); len(p.CRC32C) != crcDigits*n || strings.Trim(p.CRC32C, "0123456789abcdef") != "" {
			return fmt.Sprintf("checksums %.20q of %d bytes in %s", p.CRC32C, (p.To-p.From)*size, p.File), fmt.Sprintf("%d hexadecimal digits", crcDigits*n)
		}
		at = p.To
	}
	if index != t.Parts-1 || at != local {
		return fmt.Sprintf("pieces up to element %d of shard %d", at, index), fmt.Sprintf("all %d elements of shards 0 to %d", local, t.Parts-1)
	}
	return "", ""
}

// crcDigits is the hexadecimal digits of one checksum.
const crcDigits = 8

// blocks is the number of blocks of n bytes.
func blocks(n, block int) int { return (n + block - 1) / block }
