package checkpoint

import (
	"fmt"

	"phalanx/nn"
	"phalanx/tensor"
)

// Info describes a whole tensor, as if it stood in one file; false when there is none of that name.
func (s *Sharded) Info(name string) (Info, bool) {
	t, err := s.record(name)
	if err != nil {
		return Info{}, false
	}
	i := Info{Name: name, DType: t.DType, Shape: append([]int(nil), t.Shape...)}
	i.To, _ = i.Bytes()
	return i, true
}

// ReadAt fills p with bytes of a whole tensor from its offset off on, both multiples of the element size, so that a tensor
// of any size can be read in pieces. A piece that leaves the tensor is a programmer error.
func (s *Sharded) ReadAt(name string, p []byte, off int64) error {
	t, err := s.record(name)
	if err != nil {
		return err
	}
	i, _ := s.Info(name)
	size := int64(sizes[t.DType])
	if n := int64(len(p)); off < 0 || off+n > i.To || off%size != 0 || n%size != 0 {
		return fmt.Errorf("%s: tensor %q: bytes %d to %d of %d in elements of %d", s.dir, name, off, off+n, i.To, size)
	}
	spec := &nn.Spec{Name: name, Shape: t.Shape, Shard: nn.Unsharded}
	if size == 8 {
		return readBytes[float64](s, name, spec, off/size, p)
	}
	return readBytes[float32](s, name, spec, off/size, p)
}

func readBytes[T tensor.Float](s *Sharded, name string, spec *nn.Spec, from int64, p []byte) error {
	x := make([]T, len(p)/tensor.DTypeOf[T]().Size())
	err := Read(s, name, spec, int(from), x)
	copy(p, tensor.Bytes(x))
	return err
}
