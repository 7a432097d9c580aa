package convert

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"phalanx/checkpoint"
)

// pieceElements is how much of a tensor is in memory at a time: 8 MiB of fp64.
const pieceElements = 1 << 20

// copier reads, converts and writes tensors piece by piece. Its memory does not depend on the model's size.
type copier struct {
	ctx     context.Context
	in, out []byte
}

func newCopier(ctx context.Context) *copier {
	return &copier{ctx: ctx, in: make([]byte, 8*pieceElements), out: make([]byte, 8*pieceElements)}
}

// tensor writes the elements of a route as another type.
func (c *copier) tensor(w io.Writer, t Tensors, r route, to string) error {
	if r.source == "" {
		return c.zeros(w, r, to)
	}
	return c.pieces(r.count, func(from, n int64) error {
		out, err := c.piece(t, r, from, n, to, c.in, c.out)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	})
}

// piece is elements from to from+n of a route as another type, in the memory of out.
func (c *copier) piece(t Tensors, r route, from, n int64, to string, in, out []byte) ([]byte, error) {
	wide := int64(widths[r.dtype])
	in, out = in[:n*wide], out[:n*int64(widths[to])]
	if err := t.ReadAt(r.source, in, (r.from+from)*wide); err != nil {
		return nil, err
	}
	if err := convert(out, to, in, r.dtype); err != nil {
		return nil, one(r.source, "", "%v; its type is %s: choose a wider --dtype", err, r.dtype)
	}
	return out, nil
}

// pieces calls do for every piece of count elements, and stops when the context does.
func (c *copier) pieces(count int64, do func(from, n int64) error) error {
	for from := int64(0); from < count; from += pieceElements {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := do(from, min(pieceElements, count-from)); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) zeros(w io.Writer, r route, to string) error {
	return c.pieces(r.count, func(_, n int64) error {
		out := c.out[:n*int64(widths[to])]
		clear(out)
		_, err := w.Write(out)
		return err
	})
}

// same compares two tensors value by value, bits of one type; a difference is a problem that names the first tensor.
func (c *copier) same(t Tensors, d duplicate, where string) error {
	a, ok := t.Info(d.name)
	b, there := t.Info(d.of)
	switch {
	case !ok || !there:
		return one(where, d.name, "is a copy of %s, which is not there", d.of)
	case fmt.Sprint(a.Shape) != fmt.Sprint(b.Shape):
		return one(where, d.name, "found shape %v, expected that of %s, %v: it has to be a copy of it", a.Shape, d.of, b.Shape)
	case widths[a.DType] == 0 || widths[b.DType] == 0:
		return one(where, d.name, "found elements of %s and %s in %s: %s", a.DType, b.DType, d.of, quantReason)
	}
	ra, rb, as := whole(a), whole(b), a.DType
	if a.DType != b.DType {
		as = "F64"
	}
	wide, other := int64(widths[as]), make([]byte, 8*pieceElements)
	return c.pieces(ra.count, func(from, n int64) error {
		x, err := c.piece(t, ra, from, n, as, c.in, c.out)
		if err != nil {
			return err
		}
		y, err := c.piece(t, rb, from, n, as, c.in, other)
		if err != nil || bytes.Equal(x, y) {
			return err
		}
		k := int64(0)
		for bytes.Equal(x[k:k+wide], y[k:k+wide]) {
			k += wide
		}
		return one(where, d.name, "differs from %s, of which it has to be a copy: element %d is %v, expected %v; this version keeps one of them only",
			d.of, from+k/wide, load(x[k:], as).value(), load(y[k:], as).value())
	})
}

// whole is the route of a whole tensor.
func whole(i checkpoint.Info) route {
	n := int64(1)
	for _, d := range i.Shape {
		n *= int64(d)
	}
	return route{source: i.Name, dtype: i.DType, count: n}
}
