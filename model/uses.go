package model

import (
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// usePiece is the number of elements of a use's gradient in one message: 16 MiB of fp32, as a gradient bucket has.
const usePiece = 1 << 22

// joinUses completes the gradients of tables with several uses.
func (r *Rank[T]) joinUses(c nn.Comm, site nn.Site) {
	r.tables.embed.join(c, site)
	r.tables.positions.join(c, site)
}

// join adds the gradients of a table's uses, in their order, wherever they lie: the first stage adds, the others
// get the sum, so that all copies move alike. It comes before the sums over context and data parallelism, as on one
// stage, so every placement of the uses gives the same bits. A head on the first stage has its place in the sum already:
// it is the second of the uses, and a + b is b + a.
func (t *table[T]) join(c nn.Comm, site nn.Site) {
	if len(t.mine) == 0 {
		return
	}
	me, first := c.Rank(mesh.PP), t.uses[0].stage
	for i, u := range t.uses {
		switch {
		case me != first && u.stage == me:
			t.movePieces(c, nn.Put, site, i, first, t.acc(u.name).Grad)
		case me == first && u.stage != me:
			acc := make([]T, len(t.param.Grad))
			t.movePieces(c, nn.Get, site, i, u.stage, acc)
			kernel.AddInto(t.param.Grad, acc)
		case me == first && t.mine[u.name] > 0:
			t.acc(u.name).AddTo(t.param.Grad)
		}
	}
	told := map[int]bool{first: true}
	for _, u := range t.uses {
		switch {
		case told[u.stage]:
		case me == first:
			t.movePieces(c, nn.Put, site, len(t.uses), u.stage, t.param.Grad)
		case u.stage == me:
			t.movePieces(c, nn.Get, site, len(t.uses), first, t.param.Grad)
		}
		told[u.stage] = true
	}
}

// movePieces sends or takes x, piece by piece. What names it is the use: its place, or their number for the sum.
func (t *table[T]) movePieces(c nn.Comm, kind nn.OpKind, site nn.Site, use, stage int, x []T) {
	for i, from := 0, 0; from < len(x); i, from = i+1, from+usePiece {
		b := tensor.Bytes(x[from:min(from+usePiece, len(x))])
		site.Microbatch, site.Depth = i, use
		op := &nn.Op{Axis: mesh.PP, Kind: kind, DType: tensor.DTypeOf[T](), Tag: t.tag, Site: site}
		part := []nn.Part{{Member: stage, Bytes: len(b)}}
		if kind == nn.Put {
			op.In, op.To = b, part
		} else {
			op.Out, op.From = b, part
		}
		c.Do(op)
	}
}
