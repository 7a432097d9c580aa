package checkpoint

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// ReadAt fills p with bytes of a tensor from its offset off on, so that a tensor of any size can be read in pieces. A piece
// that leaves the tensor is a programmer error.
func (f *File) ReadAt(name string, p []byte, off int64) error {
	i, err := f.info(name)
	if err != nil {
		return err
	}
	if off < 0 || off+int64(len(p)) > i.To-i.From {
		return fmt.Errorf("%s: tensor %q: bytes %d to %d of %d", f.path, name, off, off+int64(len(p)), i.To-i.From)
	}
	i.From += off
	i.To = i.From + int64(len(p))
	return f.read(i, p)
}

// Bytes is the size of the tensor's elements; false when the element type is unknown.
func (i Info) Bytes() (int64, bool) {
	n := int64(sizes[i.DType])
	for _, d := range i.Shape {
		n *= int64(d)
	}
	return n, sizes[i.DType] > 0
}

// WriteStream is Write for tensors that are not in memory: fill writes the bytes of one tensor, in ascending order of
// names, all of them and no more. From and To of the infos are not read.
func WriteStream(path string, infos []Info, metadata map[string]string, fill func(w io.Writer, name string) error) error {
	order := slices.SortedFunc(slices.Values(infos), func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	for k := range order {
		if err := place(order, k); err != nil {
			return err
		}
	}
	head := header(order, metadata)
	size := int64(len(head))
	if len(order) > 0 {
		size += order[len(order)-1].To
	}
	return replace(path, size, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		for _, i := range order {
			if err := i.filled(w, fill); err != nil {
				return err
			}
		}
		return nil
	})
}

// place checks tensor k of a sorted list and sets where its bytes are in the file.
func place(order []Info, k int) error {
	i, before := &order[k], Info{}
	if k > 0 {
		before = order[k-1]
	}
	if err := checkName(i.Name, before.Name); err != nil {
		return err
	}
	n, known := i.Bytes()
	if !known || n < 0 {
		return fmt.Errorf("checkpoint: tensor %q: cannot write %s %v", i.Name, i.DType, i.Shape)
	}
	i.From, i.To = before.To, before.To+n
	return nil
}

// filled writes one tensor and checks that it has its size.
func (i Info) filled(w io.Writer, fill func(io.Writer, string) error) error {
	c := &counting{w: w}
	if err := fill(c, i.Name); err != nil {
		return err
	}
	if c.n != i.To-i.From {
		return fmt.Errorf("checkpoint: tensor %q: %d bytes written, expected %d for %s %v", i.Name, c.n, i.To-i.From, i.DType, i.Shape)
	}
	return nil
}

type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
