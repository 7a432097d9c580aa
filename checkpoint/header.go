package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A safetensors file is an 8-byte little-endian length n, n bytes of JSON
// {"__metadata__": {…}, NAME: {"dtype": …, "shape": […], "data_offsets": [from, to]}, …} and the data,
// which the tensors cover without gap and overlap. Offsets count from the first byte of data.

const (
	// HeaderBytesMax bounds the JSON header; it is the limit of the format's own library.
	HeaderBytesMax = 100_000_000
	// rankMax bounds the dimensions of one tensor; weights have at most 4.
	rankMax = 32

	prefixBytes = 8
	metadataKey = "__metadata__"
)

// sizes is the bytes of one element per dtype name. All of these can be listed and hashed; which can be read as what
// is said at the readers.
var sizes = map[string]int{
	"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
	"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}

// Info describes one tensor of a file.
type Info struct {
	Name     string
	DType    string // as in the file: F32, BF16, BOOL, …
	Shape    []int
	From, To int64 // bytes, from the first byte of data
}

// Elements is the product of the shape.
func (i Info) Elements() int {
	n := 1
	for _, d := range i.Shape {
		n *= d
	}
	return n
}

// parser reads one header. what names the file in errors.
type parser struct {
	path  string
	dec   *json.Decoder
	infos map[string]Info
	meta  map[string]string
}

// readHeader reads and checks the header of a file of size bytes. start is the offset of the data.
func readHeader(r io.ReaderAt, size int64, path string) (p *parser, start int64, err error) {
	p = &parser{path: path, infos: map[string]Info{}, meta: map[string]string{}}
	raw, err := p.rawHeader(r, size)
	if err != nil {
		return nil, 0, err
	}
	if err := p.parse(raw); err != nil {
		return nil, 0, err
	}
	start = prefixBytes + int64(len(raw))
	return p, start, p.checkCover(size - start)
}

// rawHeader is the bytes of the JSON. It allocates no more than the file holds.
func (p *parser) rawHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < prefixBytes {
		return nil, p.fail(ErrTruncated, "", fmt.Sprintf("%d bytes", size), "an 8-byte header length at the start")
	}
	var prefix [prefixBytes]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case n == 0:
		return nil, p.fail(ErrFormat, "", "a header of 0 bytes", "a JSON object")
	case n > HeaderBytesMax:
		return nil, p.fail(ErrFormat, "", fmt.Sprintf("a header of %d bytes", n),
			fmt.Sprintf("at most %d; this may be no safetensors file", HeaderBytesMax))
	case n > uint64(size-prefixBytes):
		return nil, p.fail(ErrTruncated, "", fmt.Sprintf("%d bytes after the header length", size-prefixBytes),
			fmt.Sprintf("a header of %d", n))
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, prefixBytes); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	switch {
	case raw[0] != '{':
		return nil, p.fail(ErrFormat, "", "a header that does not start with {", "a JSON object")
	case !utf8.Valid(raw):
		return nil, p.fail(ErrFormat, "", "a header that is not UTF-8", "a JSON object in UTF-8")
	}
	return raw, nil
}

// parse fills infos and meta. Duplicate names, unknown keys and anything after the object but spaces are refused.
func (p *parser) parse(raw []byte) error {
	p.dec = json.NewDecoder(bytes.NewReader(raw))
	p.dec.UseNumber()
	seenMeta := false
	err := p.object("", "the header", func(name string) error {
		if name == metadataKey {
			if seenMeta {
				return p.fail(ErrFormat, name, "the name twice", "each name once")
			}
			seenMeta = true
			return p.metadata()
		}
		if _, twice := p.infos[name]; twice {
			return p.fail(ErrFormat, name, "the name twice", "each name once")
		}
		info, err := p.tensor(name)
		p.infos[name] = info
		return err
	})
	if err != nil {
		return err
	}
	if rest := bytes.TrimRight(raw[p.dec.InputOffset():], " "); len(rest) > 0 {
		return p.fail(ErrFormat, "", fmt.Sprintf("%d bytes after the header's closing }", len(rest)), "only spaces")
	}
	return nil
}

// metadata reads {"key": "string", …}.
func (p *parser) metadata() error {
	return p.object(metadataKey, "the metadata", func(key string) error {
		if _, twice := p.meta[key]; twice {
			return p.fail(ErrFormat, metadataKey, fmt.Sprintf("the key %q twice", key), "each key once")
		}
		v, err := p.str(metadataKey, fmt.Sprintf("metadata key %q", key))
		p.meta[key] = v
		return err
	})
}

// tensor reads {"dtype", "shape", "data_offsets"} and checks that they agree.
func (p *parser) tensor(name string) (Info, error) {
	info := Info{Name: name}
	var offsets []int64
	seen := map[string]bool{}
	err := p.object(name, "the entry", func(key string) (err error) {
		if seen[key] {
			return p.fail(ErrFormat, name, fmt.Sprintf("the key %q twice", key), "each key once")
		}
		seen[key] = true
		switch key {
		case "dtype":
			info.DType, err = p.str(name, "dtype")
		case "shape":
			var shape []int64
			shape, err = p.ints(name, "shape", rankMax)
			for _, d := range shape {
				info.Shape = append(info.Shape, int(d))
			}
		case "data_offsets":
			offsets, err = p.ints(name, "data_offsets", 2)
		default:
			return p.fail(ErrFormat, name, fmt.Sprintf("the key %q", key), "dtype, shape and data_offsets")
		}
		return err
	})
	if err != nil {
		return info, err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[key] {
			return info, p.fail(ErrFormat, name, "no "+key, "dtype, shape and data_offsets")
		}
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return info, p.fail(ErrFormat, name, fmt.Sprintf("data_offsets %v", offsets), "[from, to] with from ≤ to")
	}
	info.From, info.To = offsets[0], offsets[1]
	return info, p.checkBytes(info)
}

// checkBytes is shape · element size = bytes.
func (p *parser) checkBytes(info Info) error {
	size, known := sizes[info.DType]
	if !known {
		legal := slices.Sorted(maps.Keys(sizes))
		return p.fail(ErrFormat, info.Name, fmt.Sprintf("dtype %q", info.DType), fmt.Sprintf("one of %v", legal))
	}
	n := uint64(size)
	for _, d := range info.Shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if n = lo; hi != 0 || lo > 1<<62 {
			return p.fail(ErrFormat, info.Name, fmt.Sprintf("shape %v", info.Shape), "less than 2^62 bytes")
		}
	}
	if got := info.To - info.From; uint64(got) != n {
		return p.fail(ErrFormat, info.Name, fmt.Sprintf("%d bytes", got), fmt.Sprintf("%d for %s %v", n, info.DType, info.Shape))
	}
	return nil
}

// checkCover says whether the tensors cover data bytes without gap, overlap, missing and trailing bytes.
func (p *parser) checkCover(data int64) error {
	order := slices.SortedFunc(maps.Values(p.infos), func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), strings.Compare(a.Name, b.Name))
	})
	at, prev := int64(0), "the start of the data"
	for _, i := range order {
		switch {
		case i.From < at:
			return p.fail(ErrFormat, i.Name, fmt.Sprintf("bytes from %d, which overlap %s", i.From, prev),
				fmt.Sprintf("bytes from %d", at))
		case i.From > at && at < data:
			return p.fail(ErrFormat, i.Name, fmt.Sprintf("bytes from %d, a gap after %s", i.From, prev),
				fmt.Sprintf("bytes from %d", at))
		case i.To > data:
			return p.fail(ErrTruncated, i.Name, fmt.Sprintf("%d bytes of data", data),
				fmt.Sprintf("at least %d, where the tensor ends", i.To))
		}
		at, prev = i.To, strconv.Quote(i.Name)
	}
	if at < data {
		return p.fail(ErrFormat, "", fmt.Sprintf("%d trailing bytes after %s", data-at, prev), "the tensors to cover the data")
	}
	return nil
}
