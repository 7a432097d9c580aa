package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"phalanx/tensor"
)

// Raw is the little-endian bytes of a tensor.
func (f *File) Raw(name string) ([]byte, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	b := make([]byte, i.To-i.From)
	return b, f.read(i, b)
}

// Float64s is a tensor of F64, F32, F16 or BF16 as float64, row-major. No value changes.
func (f *File) Float64s(name string) ([]float64, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	if i.DType == "F64" {
		return direct[float64](f, i)
	}
	return converted(f, i, "F64, F32, F16 or BF16", func(b []byte) func(int) float64 {
		at := float32At(i.DType, b)
		if at == nil {
			return nil
		}
		return func(k int) float64 { return float64(at(k)) }
	})
}

// Float32s is a tensor of F32, F16 or BF16 as float32 without change, or one of F64 rounded to nearest.
func (f *File) Float32s(name string) ([]float32, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	if i.DType == "F32" {
		return direct[float32](f, i)
	}
	return converted(f, i, "F64, F32, F16 or BF16", func(b []byte) func(int) float32 {
		if i.DType == "F64" {
			return func(k int) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*k:]))) }
		}
		return float32At(i.DType, b)
	})
}

// Int64s is a tensor of signed or unsigned integers of up to 32 bits, or I64.
func (f *File) Int64s(name string) ([]int64, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	if i.DType == "I64" {
		return direct[int64](f, i)
	}
	return converted(f, i, "I64, I32, I16, I8, U32, U16 or U8", func(b []byte) func(int) int64 { return int64At(i.DType, b) })
}

// Bools is a tensor of BOOL. A byte other than 0 and 1 is refused.
func (f *File) Bools(name string) ([]bool, error) {
	i, err := f.info(name)
	if err != nil {
		return nil, err
	}
	bad := -1
	out, err := converted(f, i, "BOOL", func(b []byte) func(int) bool {
		if i.DType != "BOOL" {
			return nil
		}
		return func(k int) bool {
			if b[k] > 1 && bad < 0 {
				bad = k
			}
			return b[k] == 1
		}
	})
	if err == nil && bad >= 0 {
		return nil, &FormatError{Path: f.path, Tensor: name, Kind: ErrFormat,
			Found: fmt.Sprintf("a byte at element %d that is neither 0 nor 1", bad), Expected: "BOOL elements"}
	}
	return out, err
}

// direct reads a tensor whose elements are T already.
func direct[T tensor.Number](f *File, i Info) ([]T, error) {
	out := make([]T, i.Elements())
	return out, f.read(i, tensor.Bytes(out))
}

// converted reads a tensor through at, which is nil for an element type that cannot be read so.
func converted[T any](f *File, i Info, legal string, reader func(b []byte) func(k int) T) ([]T, error) {
	if reader(nil) == nil {
		return nil, &FormatError{Path: f.path, Tensor: i.Name, Kind: ErrDType, Found: i.DType, Expected: legal}
	}
	b := make([]byte, i.To-i.From)
	if err := f.read(i, b); err != nil {
		return nil, err
	}
	at, out := reader(b), make([]T, i.Elements())
	for k := range out {
		out[k] = at(k)
	}
	return out, nil
}

// read fills b with the bytes of a tensor.
func (f *File) read(i Info, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := f.r.ReadAt(b, f.start+i.From)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) { // the file shrank after it was opened
		return &FormatError{Path: f.path, Tensor: i.Name, Kind: ErrTruncated,
			Found: fmt.Sprintf("%d bytes", n), Expected: fmt.Sprint(len(b))}
	}
	return fmt.Errorf("%s: tensor %q: %w", f.path, i.Name, err)
}

// float32At reads element k of F32, F16 or BF16 bytes; nil for other types.
func float32At(dtype string, b []byte) func(k int) float32 {
	switch dtype {
	case "F32":
		return func(k int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:])) }
	case "F16":
		return func(k int) float32 { return float16(binary.LittleEndian.Uint16(b[2*k:])) }
	case "BF16":
		return func(k int) float32 { return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*k:])) << 16) }
	}
	return nil
}

// int64At reads element k of integers of up to 32 bits; nil for other types.
func int64At(dtype string, b []byte) func(k int) int64 {
	switch dtype {
	case "I32":
		return func(k int) int64 { return int64(int32(binary.LittleEndian.Uint32(b[4*k:]))) }
	case "I16":
		return func(k int) int64 { return int64(int16(binary.LittleEndian.Uint16(b[2*k:]))) }
	case "I8":
		return func(k int) int64 { return int64(int8(b[k])) }
	case "U32":
		return func(k int) int64 { return int64(binary.LittleEndian.Uint32(b[4*k:])) }
	case "U16":
		return func(k int) int64 { return int64(binary.LittleEndian.Uint16(b[2*k:])) }
	case "U8":
		return func(k int) int64 { return int64(b[k]) }
	}
	return nil
}

// float16 is an IEEE binary16 as float32: 1 sign, 5 exponent (bias 15), 10 fraction bits. Exact.
func float16(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // zero and subnormals: frac · 2^-24
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f: // infinities and NaNs
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
