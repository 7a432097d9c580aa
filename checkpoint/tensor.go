package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"phalanx/tensor"
)

// Tensor is one tensor to write or to hash: a name, a type, a shape and its elements, row-major and little-endian.
type Tensor struct {
	Name  string
	DType tensor.DType
	Shape []int
	Data  []byte // a view of the caller's memory; not changed
}

// Of makes a Tensor of a slice, without copying it.
func Of[T tensor.Number](name string, data []T, shape ...int) Tensor {
	return Tensor{Name: name, DType: tensor.DTypeOf[T](), Shape: shape, Data: tensor.Bytes(data)}
}

// OfBools makes a BOOL Tensor; it copies.
func OfBools(name string, data []bool, shape ...int) Tensor {
	b := make([]byte, len(data))
	for i, v := range data {
		if v {
			b[i] = 1
		}
	}
	return Tensor{Name: name, DType: tensor.Bool, Shape: shape, Data: b}
}

// sorted is the tensors in ascending name order, which is byte order. A name twice, a reserved or empty name and a
// shape that does not fit the bytes are refused: files like that could not be read again.
func sorted(tensors []Tensor) ([]Tensor, error) {
	out := slices.SortedFunc(slices.Values(tensors), func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	for i, t := range out {
		before := ""
		if i > 0 {
			before = out[i-1].Name
		}
		if err := checkName(t.Name, before); err != nil {
			return nil, err
		}
		n := t.DType.Size()
		for _, d := range t.Shape {
			n *= d
		}
		if sizes[t.DType.String()] == 0 || n != len(t.Data) {
			return nil, fmt.Errorf("checkpoint: tensor %q: found %d bytes, expected %d for %s %v",
				t.Name, len(t.Data), n, t.DType, t.Shape)
		}
	}
	return out, nil
}

// checkName refuses a name that could not be read again, and one that is the name before it in the order, "" if none.
func checkName(name, before string) error {
	switch {
	case name == "" || name == metadataKey || !utf8.ValidString(name):
		return fmt.Errorf("checkpoint: a tensor named %q: found an empty, reserved or non-UTF-8 name, expected a parameter's", name)
	case name == before:
		return fmt.Errorf("checkpoint: two tensors named %q: each name once", name)
	}
	return nil
}
