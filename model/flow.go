package model

import (
	"phalanx/mesh"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
)

// Shapes of this file: an activation is [local rows, H]; ids, positions, labels and loss mask are [B, L].

// flow is what goes from one chunk to the next: the activation, and behind the final norm h_0 and every h_k so far,
// each with what its loss needs. What depth k has rolled goes on to depth k+1 on the next chunk.
type flow[T tensor.Float] struct {
	x     tensor.Mat[T]   // before the final norm
	heads []mtp.ToHead[T] // behind it, by depth; labels and mask of h_0 are the microbatch's and are not sent
	set   mtp.Inputs[T]   // of the last depth so far; its labels and mask are those of its head
}

// hop is one message between chunks.
func (p *pass[T]) hop(kind nn.OpKind, tag nn.Tag, depth, to int) *nn.Op {
	site := p.c.Site
	site.Depth, site.Layer = depth, to
	return &nn.Op{Axis: mesh.PP, Kind: kind, DType: tensor.DTypeOf[T](), Tag: tag, Site: site}
}

func (p *pass[T]) put(op *nn.Op, stage int, b []byte) {
	op.In, op.To = b, []nn.Part{{Member: stage, Bytes: len(b)}}
	p.c.Comm.Do(op)
}

func (p *pass[T]) get(op *nn.Op, stage int, b []byte) {
	op.Out, op.From = b, []nn.Part{{Member: stage, Bytes: len(b)}}
	p.c.Comm.Do(op)
}

// activation is memory for one activation of h features.
func (p *pass[T]) activation(h int) tensor.Mat[T] { return p.c.Arena.Mat(p.c.LocalRows(), h) }

// putRows sends an activation, or its gradient, to the chunk `to` on a stage.
func (p *pass[T]) putRows(tag nn.Tag, depth, to, stage int, x tensor.Mat[T]) {
	p.put(p.hop(nn.Put, tag, depth, to), stage, tensor.Bytes(x.Data))
}

// getRows takes an activation, or its gradient, that was sent to chunk `to`, this one.
func (p *pass[T]) getRows(tag nn.Tag, depth, to, stage, h int) tensor.Mat[T] {
	x := p.activation(h)
	p.get(p.hop(nn.Get, tag, depth, to), stage, tensor.Bytes(x.Data))
	return x
}

// putFlow sends what the next chunk needs. more says that depths follow there.
func (r *Rank[T]) putFlow(p *pass[T], ch *chunk[T], f flow[T], more bool) {
	to := ch.index + 1
	if f.heads == nil {
		p.putRows(nn.TagActivation, 0, to, ch.next, f.x)
		return
	}
	for k, h := range f.heads {
		p.putRows(nn.TagActivation, k, to, ch.next, h.Hidden)
		if k > 0 {
			op := p.hop(nn.Put, nn.TagDepthLabels, k, to)
			op.DType = tensor.U8
			p.put(op, ch.next, labelsOf(h))
		}
	}
	if k := len(f.heads) - 1; more && k > 0 {
		op := p.hop(nn.Put, nn.TagDepthSet, k, to)
		op.DType = tensor.U8
		p.put(op, ch.next, rolledOf(f.set))
	}
}

// getFlow takes what the chunk before this one has sent.
func (r *Rank[T]) getFlow(p *pass[T], ch *chunk[T], depths bool) flow[T] {
	h := r.cfg.HiddenSize
	if !ch.normed {
		return flow[T]{x: p.getRows(nn.TagActivation, 0, ch.index, ch.prev, h)}
	}
	var f flow[T]
	for k := range ch.before + 1 {
		if k > 0 && !depths {
			break
		}
		head := mtp.ToHead[T]{Hidden: p.getRows(nn.TagActivation, k, ch.index, ch.prev, h)}
		if k > 0 {
			op := p.hop(nn.Get, nn.TagDepthLabels, k, ch.index)
			op.DType = tensor.U8
			b := make([]byte, labelBytes*len(p.labels))
			p.get(op, ch.prev, b)
			head.Labels, head.Loss = labelsIn(b, p.loss)
		}
		f.heads = append(f.heads, head)
	}
	if depths && len(ch.Depths) > 0 {
		f.set = r.depthInputs(p, ch, f)
	}
	return f
}

// depthInputs is what the first depth of a chunk gets: the microbatch's own, or what the depth before it has rolled.
func (r *Rank[T]) depthInputs(p *pass[T], ch *chunk[T], f flow[T]) mtp.Inputs[T] {
	k := len(f.heads) - 1
	if k == 0 {
		return mtp.Inputs[T]{Hidden: f.heads[0].Hidden, IDs: p.ids, Positions: p.positions, Labels: p.labels,
			Loss: r.depthMask(p.mb).Local(p.c.Frame), Pad: p.c.Pad, Embeddings: p.embeddings}
	}
	op := p.hop(nn.Get, nn.TagDepthSet, k, ch.index)
	op.DType = tensor.U8
	shape := mtp.Inputs[T]{IDs: p.ids, Positions: p.positions, Pad: p.c.Pad, Embeddings: p.embeddings}
	b := make([]byte, rolledBytes(shape))
	p.get(op, ch.prev, b)
	in := rolledIn(b, shape)
	in.Hidden, in.Labels, in.Loss = f.heads[k].Hidden, f.heads[k].Labels, f.heads[k].Loss
	return in
}

// labelBytes is a label and its weight.
const labelBytes = 8

// labelsOf is a head's labels and loss mask on the wire: [n] I32, [n] F32.
func labelsOf[T tensor.Float](h mtp.ToHead[T]) []byte {
	return append(append([]byte(nil), tensor.Bytes(h.Labels)...), tensor.Bytes(weights(h.Loss))...)
}

// labelsIn is the inverse; like is a mask of the same shape.
func labelsIn(b []byte, like *nn.LossMask) ([]int32, *nn.LossMask) {
	n := len(b) / labelBytes
	labels, mask := make([]int32, n), &nn.LossMask{B: like.B, S: like.S, Weight: make([]float32, n)}
	copy(tensor.Bytes(labels), b)
	copy(tensor.Bytes(mask.Weight), b[4*n:])
	return labels, mask
}

// rolledOf is the rest of what a depth has rolled, on the wire: ids, positions, padding mask and embeddings, if any.
func rolledOf[T tensor.Float](s mtp.Inputs[T]) []byte {
	b := append(append([]byte(nil), tensor.Bytes(s.IDs)...), tensor.Bytes(s.Positions)...)
	if s.Pad != nil {
		for _, pad := range s.Pad.Pad {
			if pad {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	return append(b, tensor.Bytes([]T(s.Embeddings))...)
}

// rolledBytes is the length of rolledOf of a set of the shape of s.
func rolledBytes[T tensor.Float](s mtp.Inputs[T]) int {
	n := 4*len(s.IDs) + 4*len(s.Positions) + tensor.DTypeOf[T]().Size()*len(s.Embeddings)
	if s.Pad != nil {
		n += len(s.Pad.Pad)
	}
	return n
}

// rolledIn is the inverse of rolledOf.
func rolledIn[T tensor.Float](b []byte, shape mtp.Inputs[T]) mtp.Inputs[T] {
	out := mtp.Inputs[T]{IDs: make([]int32, len(shape.IDs)), Positions: make([]int32, len(shape.Positions))}
	b = b[copy(tensor.Bytes(out.IDs), b):]
	b = b[copy(tensor.Bytes(out.Positions), b):]
	if shape.Pad != nil {
		pad := *shape.Pad
		pad.Pad = make([]bool, len(shape.Pad.Pad))
		for i := range pad.Pad {
			pad.Pad[i] = b[i] != 0
		}
		out.Pad, b = &pad, b[len(pad.Pad):]
	}
	if shape.Embeddings != nil {
		out.Embeddings = make(mtp.Embeddings[T], len(shape.Embeddings))
		copy(tensor.Bytes([]T(out.Embeddings)), b)
	}
	return out
}
