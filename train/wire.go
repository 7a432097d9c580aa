package train

import (
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// Gradients on the wire as bfloat16, Megatron's reduction of a bf16 gradient buffer with fp32 accumulation: every
// member's contribution is rounded, its own too, the sum is taken in fp32 in ascending rank order, and the sum is
// rounded. Sums have the same bits however many elements a member adds up.

// pack rounds x into out.
func pack[T tensor.Float](out []tensor.BFloat16, x []T) {
	for i, v := range x {
		out[i] = tensor.RoundBF16(float32(v))
	}
}

// reduceScatterBF16 adds in over an axis and leaves this member's piece in out: in is Size pieces as long as out, the
// last ones shorter if in ends before.
func (g *Grads[T]) reduceScatterBF16(c nn.Comm, axis mesh.Axis, site nn.Site, in, out []T) {
	n, self, each := c.Size(axis), c.Rank(axis), len(out)
	piece := func(j int) []T { return in[min(j*each, len(in)):min((j+1)*each, len(in))] }
	mine := piece(self)
	op := &nn.Op{Axis: axis, Kind: nn.Exchange, DType: tensor.BF16, Tag: nn.TagGradient, Site: site}
	sent, got := g.packed(0, len(in)-len(mine)), g.packed(1, (n-1)*len(mine))
	op.In, op.Out = tensor.Bytes(sent), tensor.Bytes(got)
	for j := range n {
		if j == self {
			continue
		}
		p := piece(j)
		pack(sent[:len(p)], p)
		sent = sent[len(p):]
		op.To, op.From = append(op.To, nn.Part{Member: j, Bytes: 2 * len(p)}), append(op.From, nn.Part{Member: j, Bytes: 2 * len(mine)})
	}
	c.Do(op)
	sums := out[:len(mine)]
	for j := range n {
		at := j
		if j > self {
			at--
		}
		for i := range sums {
			x := tensor.RoundBF16(float32(mine[i])).Float32()
			if j != self {
				x = got[at*len(mine)+i].Float32()
			}
			if j == 0 {
				sums[i] = T(x)
			} else {
				sums[i] = T(float32(sums[i]) + x)
			}
		}
	}
	for i, v := range sums {
		sums[i] = T(tensor.RoundBF16(float32(v)).Float32())
	}
}

// scatterBF16 is scatter. Slices travel as long as the longest, filled up with zeros.
func (g *Grads[T]) scatterBF16(c nn.Comm, site nn.Site, b *bucket[T]) {
	in := g.staged(0, b.slices()*b.length)
	for i := range b.slices() {
		slot := in[i*b.length : (i+1)*b.length]
		clear(slot[copy(slot, b.flat.Grad[b.cuts[i]:b.cuts[i+1]]):])
	}
	to := 1
	for _, axis := range b.axes {
		n := c.Size(axis)
		if n == 1 {
			continue
		}
		out := g.staged(to, len(in)/n)
		to = 1 - to
		g.reduceScatterBF16(c, axis, site, in, out)
		in = out
	}
	low, high := b.own()
	copy(b.flat.Grad[low:high], in)
}

// allReduceBF16 adds x over an axis, on every member.
func (g *Grads[T]) allReduceBF16(c nn.Comm, axis mesh.Axis, site nn.Site, x []T) {
	n, self := c.Size(axis), c.Rank(axis)
	if n == 1 {
		return
	}
	each := (len(x) + n - 1) / n
	sums := g.staged(0, each)
	g.reduceScatterBF16(c, axis, site, x, sums)
	mine := sums[:min((self+1)*each, len(x))-min(self*each, len(x))]
	in, out := g.packed(0, len(mine)), g.packed(1, len(x))
	pack(in, mine)
	c.Do(&nn.Op{Axis: axis, Kind: nn.AllGather, DType: tensor.BF16, Tag: nn.TagGradient, Site: site, In: tensor.Bytes(in), Out: tensor.Bytes(out)})
	for i, v := range out {
		x[i] = T(v.Float32())
	}
}

// packed is one of two buffers for the wire, with n elements.
func (g *Grads[T]) packed(i, n int) []tensor.BFloat16 {
	if cap(g.wire[i]) < n {
		g.wire[i] = make([]tensor.BFloat16, n)
	}
	return g.wire[i][:n]
}
