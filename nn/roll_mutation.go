package nn

import (
	"phalanx/mesh"
	"phalanx/tensor"
)

// rollContiguous is the planted bug of a roll that takes zigzag slots for a contiguous shard: everything moves up by
// one, and the first element of the next rank comes last.
func rollContiguous[T tensor.Float, V tensor.Number](c *Ctx[T], x []V, n int, tag Tag) []V {
	f := c.Frame
	edge := make([]V, 0, f.B*n)
	for b := range f.B {
		edge = append(edge, x[b*f.L*n:b*f.L*n+n]...)
	}
	next := make([]V, len(edge))
	op := &Op{Axis: mesh.CP, Kind: Exchange, DType: tensor.DTypeOf[V](), Tag: tag, Site: c.Site}
	size := len(tensor.Bytes(edge))
	if f.CPRank > 0 {
		op.To, op.In = []Part{{f.CPRank - 1, size}}, tensor.Bytes(edge)
	}
	if f.CPRank < f.CP-1 {
		op.From, op.Out = []Part{{f.CPRank + 1, size}}, tensor.Bytes(next)
	}
	c.Comm.Do(op)
	out := make([]V, len(x))
	for b := range f.B {
		row := out[b*f.L*n : (b+1)*f.L*n]
		copy(row, x[b*f.L*n+n:(b+1)*f.L*n])
		copy(row[len(row)-n:], next[b*n:(b+1)*n])
	}
	return out
}
