// Package tensor holds element types, matrices over slices, byte views and the arena a step allocates from.
//
// Shape legend used across the project: S sequence, B microbatch rows, H hidden, V vocabulary, E experts,
// K top-k, N = S·B rows in sequence-major order (row = s·B + b). Matrices are row-major.
package tensor

import (
	"fmt"
	"unsafe"
)

// Float is the element type of parameters and activations.
type Float interface{ float32 | float64 }

// Number is every element type that crosses a link.
type Number interface {
	float32 | float64 | int32 | int64 | uint8 | BFloat16
}

// DType names an element type on the wire and in files.
type DType uint8

// The element types of Phalanx. Values are part of the wire header: append only.
const (
	F32  DType = 1
	F64  DType = 2
	I32  DType = 3
	I64  DType = 4
	U8   DType = 5
	Bool DType = 6
	BF16 DType = 7
)

// Size is the number of bytes of one element.
func (d DType) Size() int {
	switch d {
	case F64, I64:
		return 8
	case F32, I32:
		return 4
	case BF16:
		return 2
	case U8, Bool:
		return 1
	}
	return 0
}

// String is the name safetensors gives the type.
func (d DType) String() string {
	switch d {
	case F32:
		return "F32"
	case F64:
		return "F64"
	case I32:
		return "I32"
	case I64:
		return "I64"
	case U8:
		return "U8"
	case Bool:
		return "BOOL"
	case BF16:
		return "BF16"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// DTypeOf is the DType of a Go element type.
func DTypeOf[T Number]() DType {
	var z T
	switch any(z).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int32:
		return I32
	case int64:
		return I64
	case BFloat16:
		return BF16
	}
	return U8
}

// Bytes views a slice as its bytes. Phalanx runs on little-endian machines only, so this is the wire form too.
func Bytes[T Number](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// View sees bytes as elements of T. The bytes must be aligned for T and a whole number of elements.
func View[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var z T
	size := int(unsafe.Sizeof(z))
	if len(b)%size != 0 || uintptr(unsafe.Pointer(&b[0]))%uintptr(size) != 0 {
		panic(fmt.Sprintf("tensor: %d bytes are no aligned %T slice", len(b), z))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/size)
}
