package nn

import (
	"phalanx/mesh"
	"phalanx/tensor"
)

// The ways attention reaches keys and values of other context-parallel ranks. Blocks are added in an order that the
// program fixes, never in that of arrival.

// alone is a group of one rank: keys and values stay where they are.
type alone[T tensor.Float] struct{ heads }

// columns is where keys and values begin in a fused row.
func (h heads) columns() (k, v int) { return h.q * h.d, (h.q + h.kv) * h.d }

// ownPair is the block of this rank's queries on its own keys and values, in place.
func ownPair[T tensor.Float](h heads, c *Ctx[T], f *Frame, qkv tensor.Mat[T]) *pair[T] {
	k, v := h.columns()
	return &pair[T]{heads: h, b: c.B, qf: f, kf: f, q: view[T]{qkv, 0}, k: view[T]{qkv, k}, v: view[T]{qkv, v}, arena: c.Arena}
}

func (w alone[T]) forward(c *Ctx[T], qkv tensor.Mat[T]) (tensor.Mat[T], any) {
	p := ownPair(w.heads, c, c.Frame, qkv)
	out := zeroMat(c, qkv.Rows, w.q*w.d)
	s := newState(c.Arena, c.B*w.q*c.L())
	p.attend(s, view[T]{out, 0})
	return out, p.normalise(s, view[T]{out, 0})
}

func (w alone[T]) backward(c *Ctx[T], saved any, qkv, out, dout tensor.Mat[T]) tensor.Mat[T] {
	p := ownPair(w.heads, c, c.Frame, qkv)
	dqkv := zeroMat(c, qkv.Rows, qkv.Cols)
	k, v := w.columns()
	p.attendGrad(grads[T]{lse: saved.([]T), dot: p.outDots(view[T]{out, 0}, view[T]{dout, 0}), dout: view[T]{dout, 0},
		dq: view[T]{dqkv, 0}, dk: view[T]{dqkv, k}, dv: view[T]{dqkv, v}})
	return dqkv
}

func zeroMat[T tensor.Float](c *Ctx[T], rows, cols int) tensor.Mat[T] {
	m := c.Arena.Mat(rows, cols)
	clear(m.Data)
	return m
}

// packKV copies keys and values out of the fused rows: [N, 2·Hkv·D].
func packKV[T tensor.Float](h heads, c *Ctx[T], qkv tensor.Mat[T]) tensor.Mat[T] {
	kv := c.Arena.Mat(qkv.Rows, 2*h.kv*h.d)
	for r := range qkv.Rows {
		copy(kv.Row(r), qkv.Row(r)[h.q*h.d:])
	}
	return kv
}

// kvPair is the block of this rank's queries on packed keys and values of another.
func kvPair[T tensor.Float](h heads, c *Ctx[T], qkv, kv tensor.Mat[T], source int) *pair[T] {
	return &pair[T]{heads: h, b: c.B, qf: c.Frame, kf: c.Frames[source], q: view[T]{qkv, 0}, k: view[T]{kv, 0},
		v: view[T]{kv, h.kv * h.d}, arena: c.Arena}
}

// ring passes keys and values around: at step j this rank has those of rank r−j, and hands them to rank r+1. In the
// backward pass their gradient travels with them and is home after as many steps as there are ranks.
type ring[T tensor.Float] struct{ heads }

func (w ring[T]) source(c *Ctx[T], j int) int { return (c.Frame.CPRank - j + c.CP()) % c.CP() }

// pass hands a matrix to the next rank and returns that of the rank before.
func (w ring[T]) pass(c *Ctx[T], m tensor.Mat[T], tag Tag) tensor.Mat[T] {
	cp, r := c.CP(), c.Frame.CPRank
	in := c.Arena.Mat(m.Rows, m.Cols)
	size := len(tensor.Bytes(m.Data))
	c.Comm.Do(&Op{Axis: mesh.CP, Kind: Exchange, DType: tensor.DTypeOf[T](), Tag: tag, Site: c.Site,
		In: tensor.Bytes(m.Data), Out: tensor.Bytes(in.Data),
		To: []Part{{(r + 1) % cp, size}}, From: []Part{{(r + cp - 1) % cp, size}}})
	return in
}

func (w ring[T]) forward(c *Ctx[T], qkv tensor.Mat[T]) (tensor.Mat[T], any) {
	kv := packKV(w.heads, c, qkv)
	out := zeroMat(c, qkv.Rows, w.q*w.d)
	s := newState(c.Arena, c.B*w.q*c.L())
	var p *pair[T]
	for j := range c.CP() {
		if j > 0 {
			kv = w.pass(c, kv, TagRingKV)
		}
		p = kvPair(w.heads, c, qkv, kv, w.source(c, j))
		p.attend(s, view[T]{out, 0})
	}
	return out, p.normalise(s, view[T]{out, 0})
}

func (w ring[T]) backward(c *Ctx[T], saved any, qkv, out, dout tensor.Mat[T]) tensor.Mat[T] {
	kv := packKV(w.heads, c, qkv)
	dkv := zeroMat(c, kv.Rows, kv.Cols)
	dqkv := zeroMat(c, qkv.Rows, qkv.Cols)
	g := grads[T]{lse: saved.([]T), dout: view[T]{dout, 0}, dq: view[T]{dqkv, 0}}
	for j := range c.CP() {
		if j > 0 {
			kv = w.pass(c, kv, TagRingKV)
			dkv = w.pass(c, dkv, TagRingKVGrad)
		}
		p := kvPair(w.heads, c, qkv, kv, w.source(c, j))
		if j == 0 {
			g.dot = p.outDots(view[T]{out, 0}, view[T]{dout, 0})
		}
		g.dk, g.dv = view[T]{dkv, 0}, view[T]{dkv, w.kv * w.d}
		p.attendGrad(g)
	}
	unpackKV(w.heads, w.pass(c, dkv, TagRingKVGrad), dqkv)
	return dqkv
}

// unpackKV is the transpose of packKV.
func unpackKV[T tensor.Float](h heads, dkv, dqkv tensor.Mat[T]) {
	for r := range dqkv.Rows {
		copy(dqkv.Row(r)[h.q*h.d:], dkv.Row(r))
	}
}

// gatherAll gathers all keys and values at once; the backward pass adds their gradients in rank order.
type gatherAll[T tensor.Float] struct{ heads }

// gather is every rank's packed keys and values, in rank order.
func (w gatherAll[T]) gather(c *Ctx[T], qkv tensor.Mat[T]) tensor.Mat[T] {
	kv := packKV(w.heads, c, qkv)
	all := c.Arena.Mat(c.CP()*kv.Rows, kv.Cols)
	c.Comm.Do(&Op{Axis: mesh.CP, Kind: AllGather, DType: tensor.DTypeOf[T](), Tag: TagGatherKV, Site: c.Site,
		In: tensor.Bytes(kv.Data), Out: tensor.Bytes(all.Data)})
	return all
}

func (w gatherAll[T]) forward(c *Ctx[T], qkv tensor.Mat[T]) (tensor.Mat[T], any) {
	all := w.gather(c, qkv)
	out := zeroMat(c, qkv.Rows, w.q*w.d)
	s := newState(c.Arena, c.B*w.q*c.L())
	var p *pair[T]
	for src := range c.CP() {
		p = kvPair(w.heads, c, qkv, all.Slice(src*qkv.Rows, (src+1)*qkv.Rows), src)
		p.attend(s, view[T]{out, 0})
	}
	return out, p.normalise(s, view[T]{out, 0})
}

func (w gatherAll[T]) backward(c *Ctx[T], saved any, qkv, out, dout tensor.Mat[T]) tensor.Mat[T] {
	all := w.gather(c, qkv)
	dall := zeroMat(c, all.Rows, all.Cols)
	dqkv := zeroMat(c, qkv.Rows, qkv.Cols)
	g := grads[T]{lse: saved.([]T), dout: view[T]{dout, 0}, dq: view[T]{dqkv, 0}}
	for src := range c.CP() {
		from, to := src*qkv.Rows, (src+1)*qkv.Rows
		p := kvPair(w.heads, c, qkv, all.Slice(from, to), src)
		if src == 0 {
			g.dot = p.outDots(view[T]{out, 0}, view[T]{dout, 0})
		}
		d := dall.Slice(from, to)
		g.dk, g.dv = view[T]{d, 0}, view[T]{d, w.kv * w.d}
		p.attendGrad(g)
	}
	dkv := c.Arena.Mat(qkv.Rows, all.Cols)
	c.Comm.Do(&Op{Axis: mesh.CP, Kind: ReduceScatter, DType: tensor.DTypeOf[T](), Tag: TagGatherKV, Site: c.Site,
		In: tensor.Bytes(dall.Data), Out: tensor.Bytes(dkv.Data)})
	unpackKV(w.heads, dkv, dqkv)
	return dqkv
}
