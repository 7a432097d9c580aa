package nn

import (
	"phalanx/mesh"
	"phalanx/tensor"
)

// allToAll exchanges positions for heads: every rank gets the slots of all ranks for 1/CP of the heads, attends, and
// the outputs go back. Heads and key heads of a tensor-parallel rank must divide by CP.
type allToAll[T tensor.Float] struct{ heads }

type a2aSaved[T tensor.Float] struct {
	qkv, out tensor.Mat[T] // [CP·N, heads of this rank]: rank-ordered blocks of slots
	lse      [][]T         // by source of the queries
}

// part is this rank's share of the heads.
func (w allToAll[T]) part(c *Ctx[T]) heads {
	q := w.q / c.CP()
	return heads{q, w.kv / c.CP(), w.d, w.drop.shifted(c.Frame.CPRank * q)}
}

// toHeads sends share j of every group of columns (queries, keys, values) to rank j and returns what came, [CP·N, cols]
// in rank order.
func (w allToAll[T]) toHeads(c *Ctx[T], x tensor.Mat[T], groups []int) tensor.Mat[T] {
	cp := c.CP()
	cols := x.Cols / cp
	packed := c.Arena.Mat(cp*x.Rows, cols)
	for j := range cp {
		for r := range x.Rows {
			dst, from := packed.Row(j*x.Rows+r), 0
			for _, g := range groups {
				dst = dst[copy(dst, x.Row(r)[from+j*g/cp:from+(j+1)*g/cp]):]
				from += g
			}
		}
	}
	return w.exchange(c, packed)
}

// fromHeads is the inverse of toHeads.
func (w allToAll[T]) fromHeads(c *Ctx[T], y tensor.Mat[T], groups []int) tensor.Mat[T] {
	cp := c.CP()
	back := w.exchange(c, y)
	n := y.Rows / cp
	out := c.Arena.Mat(n, cp*y.Cols)
	for j := range cp {
		for r := range n {
			src, from := back.Row(j*n+r), 0
			for _, g := range groups {
				src = src[copy(out.Row(r)[from+j*g/cp:from+(j+1)*g/cp], src):]
				from += g
			}
		}
	}
	return out
}

// exchange sends block j of rows to rank j; its own block stays.
func (w allToAll[T]) exchange(c *Ctx[T], x tensor.Mat[T]) tensor.Mat[T] {
	cp, self := c.CP(), c.Frame.CPRank
	out := c.Arena.Mat(x.Rows, x.Cols)
	size := x.Rows / cp * x.Cols
	copy(out.Data[self*size:(self+1)*size], x.Data[self*size:])
	op := &Op{Axis: mesh.CP, Kind: Exchange, DType: tensor.DTypeOf[T](), Tag: TagHeads, Site: c.Site}
	in, others := c.Arena.Alloc((cp-1)*size), c.Arena.Alloc((cp-1)*size)
	n := 0
	for j := range cp {
		if j == self {
			continue
		}
		n += copy(others[n:], x.Data[j*size:(j+1)*size])
		part := Part{j, len(tensor.Bytes(x.Data[:size]))}
		op.To, op.From = append(op.To, part), append(op.From, part)
	}
	op.In, op.Out = tensor.Bytes(others), tensor.Bytes(in)
	c.Comm.Do(op)
	for j := range cp {
		if j != self {
			in = in[copy(out.Data[j*size:(j+1)*size], in):]
		}
	}
	return out
}

func (w allToAll[T]) groups() []int { return []int{w.q * w.d, w.kv * w.d, w.kv * w.d} }

// pairOf is the block of one rank's queries on another's keys, both in the exchanged rows.
func (w allToAll[T]) pairOf(c *Ctx[T], qkv tensor.Mat[T], qSrc, kSrc int) *pair[T] {
	h, n := w.part(c), qkv.Rows/c.CP()
	q, kv := qkv.Slice(qSrc*n, (qSrc+1)*n), qkv.Slice(kSrc*n, (kSrc+1)*n)
	k, v := h.columns()
	return &pair[T]{heads: h, b: c.B, qf: c.Frames[qSrc], kf: c.Frames[kSrc], q: view[T]{q, 0}, k: view[T]{kv, k}, v: view[T]{kv, v}, arena: c.Arena}
}

func (w allToAll[T]) forward(c *Ctx[T], qkv tensor.Mat[T]) (tensor.Mat[T], any) {
	h, n := w.part(c), qkv.Rows
	s := &a2aSaved[T]{qkv: w.toHeads(c, qkv, w.groups())}
	s.out = zeroMat(c, s.qkv.Rows, h.q*h.d)
	for qSrc := range c.CP() {
		out := view[T]{s.out.Slice(qSrc*n, (qSrc+1)*n), 0}
		state := newState(c.Arena, c.B*h.q*c.L())
		var p *pair[T]
		for kSrc := range c.CP() {
			p = w.pairOf(c, s.qkv, qSrc, kSrc)
			p.attend(state, out)
		}
		s.lse = append(s.lse, p.normalise(state, out))
	}
	return w.fromHeads(c, s.out, []int{w.q * w.d}), s
}

func (w allToAll[T]) backward(c *Ctx[T], saved any, _, _, dout tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*a2aSaved[T])
	h, n := w.part(c), dout.Rows
	do := w.toHeads(c, dout, []int{w.q * w.d})
	d := zeroMat(c, s.qkv.Rows, s.qkv.Cols)
	k, v := h.columns()
	for qSrc := range c.CP() {
		out, dOut := view[T]{s.out.Slice(qSrc*n, (qSrc+1)*n), 0}, view[T]{do.Slice(qSrc*n, (qSrc+1)*n), 0}
		g := grads[T]{lse: s.lse[qSrc], dout: dOut, dq: view[T]{d.Slice(qSrc*n, (qSrc+1)*n), 0}}
		for kSrc := range c.CP() {
			p := w.pairOf(c, s.qkv, qSrc, kSrc)
			if kSrc == 0 {
				g.dot = p.outDots(out, dOut)
			}
			dk := d.Slice(kSrc*n, (kSrc+1)*n)
			g.dk, g.dv = view[T]{dk, k}, view[T]{dk, v}
			p.attendGrad(g)
		}
	}
	return w.fromHeads(c, d, w.groups())
}
