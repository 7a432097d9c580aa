package nn

import (
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Ctx is what a layer needs to run: the other ranks, memory, the shape of the microbatch and its place in the step.
// It belongs to one program and is passed down; a layer sets Site.Layer for those below it.
type Ctx[T tensor.Float] struct {
	Comm  Comm
	Arena *tensor.Arena[T]
	Site  Site
	B     int    // rows of the microbatch
	Frame *Frame // how this rank's slots lie; L of them a row
	// Frames are those of the whole context-parallel group, in rank order.
	Frames          []*Frame
	Rolls           *Frame   // where documents end for rolls; nil: as Frame says
	SP              bool     // sequence parallelism: activations between blocks are [L/tp·B, H]
	Pad             *PadMask // in the layout of the activations; nil: absent. Set with SetPad
	skip            []bool   // by row of an activation: padding or inserted; nil: none
	Microbatch      int      // of the whole step, whatever the layout
	Scope           string   // "layer.0", "mtp.2": prefix of the names of observed quantities
	Obs             Observer // nil: nobody looks
	Aux             AuxScale
	Sums            *AuxSums
	Mut             mutation.Set // planted bugs; none in a real run
	Upstream        bool         // loss_normalization upstream: local counts as denominators
	Recompute       bool         // this forward repeats an earlier one: it counts nothing and shows nothing
	DropActivations bool         // recompute_granularity full: blocks keep their input alone and run again in the backward pass
}

// AuxScale is the weight of the auxiliary losses in the objective. It is carried with the microbatch, no global.
type AuxScale struct {
	Gradient float64 // 1 / microbatches of the step
	Divisor  float64 // depths that share one repeated MTP layer, else 1
}

// AuxSums collects what MoE layers add to a microbatch's figures, before their coefficients.
type AuxSums struct {
	Balancing [3]float64 // by kind: aux, seq_aux, global_aux
	Z         float64
	ByRouter  map[string][4]float64 // by scope: the three kinds and z; nil: not asked for
}

// TP is the size of the tensor-parallel group.
func (c *Ctx[T]) TP() int { return c.Comm.Size(mesh.TP) }

// TPRank is this rank's place in it.
func (c *Ctx[T]) TPRank() int { return c.Comm.Rank(mesh.TP) }

// L is the number of slots a row has on this context-parallel rank.
func (c *Ctx[T]) L() int { return c.Frame.L }

// CP is the size of the context-parallel group.
func (c *Ctx[T]) CP() int { return c.Comm.Size(mesh.CP) }

// LocalRows is the number of rows of an activation between blocks: L·B, or L/tp·B under sequence parallelism.
func (c *Ctx[T]) LocalRows() int {
	if c.SP {
		return c.L() / c.TP() * c.B
	}
	return c.L() * c.B
}

// SetPad sets the padding mask of the activations (nil: absent) and what follows from it.
func (c *Ctx[T]) SetPad(pad *PadMask) {
	c.Pad = pad
	if c.Mut.Has(mutation.PaddingInRouter) {
		pad = nil
	}
	if pad == nil && c.Frame.Whole() {
		c.skip = nil
		return
	}
	from, n := c.SPRows()
	c.skip = make([]bool, n)
	for i := range n {
		b, slot := i%c.B, i/c.B
		c.skip[i] = c.Frame.Inserted(b, from/c.B+slot) || pad != nil && pad.Pad[b*pad.S+slot]
	}
}

// Skips reports whether a row of an activation is padding, or a slot that holds nothing: it counts in no statistic.
func (c *Ctx[T]) Skips(row int) bool { return c.skip != nil && c.skip[row] }

// SPRows is the first row and the number of rows that this rank holds of a tensor of all slots [L·B].
func (c *Ctx[T]) SPRows() (from, n int) {
	n = c.LocalRows()
	if c.SP {
		from = c.TPRank() * n
	}
	return from, n
}

// RowsLayout is the layout of activations between blocks.
func (c *Ctx[T]) RowsLayout() Layout {
	if c.SP && c.TP() > 1 {
		return c.Frame.Layout() | SPShard
	}
	return c.Frame.Layout()
}

// At is a copy of the context at another layer and scope.
func (c *Ctx[T]) At(layer int, scope string) *Ctx[T] {
	d := *c
	d.Site.Layer, d.Scope = layer, scope
	return &d
}

// allReduce combines x over the tensor-parallel group, in place.
func (c *Ctx[T]) allReduce(x []T, tag Tag, how ReduceKind) {
	AllReduceInto(c.Comm, mesh.TP, tag, c.Site, how, x)
}

// AllReduceInto combines x over the group of an axis, in place.
func AllReduceInto[N tensor.Number](comm Comm, axis mesh.Axis, tag Tag, site Site, how ReduceKind, x []N) {
	if comm.Size(axis) == 1 {
		return
	}
	b := tensor.Bytes(x)
	comm.Do(&Op{Axis: axis, Kind: AllReduce, Reduce: how, DType: tensor.DTypeOf[N](), Tag: tag, Site: site, In: b, Out: b})
}

// GatherRows joins the row shards of the tensor-parallel group: [n, C] of each → [tp·n, C].
func (c *Ctx[T]) GatherRows(x tensor.Mat[T], tag Tag) tensor.Mat[T] {
	tp := c.TP()
	if tp == 1 {
		return x
	}
	out := c.Arena.Mat(tp*x.Rows, x.Cols)
	c.Comm.Do(&Op{Axis: mesh.TP, Kind: AllGather, DType: tensor.DTypeOf[T](), Tag: tag, Site: c.Site,
		In: tensor.Bytes(x.Data), Out: tensor.Bytes(out.Data)})
	return out
}

// ReduceScatterRows adds x over the tensor-parallel group and keeps this rank's rows: [N, C] → [N/tp, C].
func (c *Ctx[T]) ReduceScatterRows(x tensor.Mat[T], tag Tag) tensor.Mat[T] {
	tp := c.TP()
	if tp == 1 {
		return x
	}
	out := c.Arena.Mat(x.Rows/tp, x.Cols)
	c.Comm.Do(&Op{Axis: mesh.TP, Kind: ReduceScatter, DType: tensor.DTypeOf[T](), Tag: tag, Site: c.Site,
		In: tensor.Bytes(x.Data), Out: tensor.Bytes(out.Data)})
	return out
}

// GatherCols joins feature shards of the tensor-parallel group: [N, C/tp] of each → [N, C].
func (c *Ctx[T]) GatherCols(x tensor.Mat[T], tag Tag) tensor.Mat[T] {
	tp := c.TP()
	if tp == 1 {
		return x
	}
	stacked := c.GatherRows(x, tag)
	out := c.Arena.Mat(x.Rows, tp*x.Cols)
	for j := range tp {
		for r := range x.Rows {
			copy(out.Row(r)[j*x.Cols:], stacked.Row(j*x.Rows+r))
		}
	}
	return out
}

// SliceCols is this rank's feature shard of a whole tensor: [N, C] → [N, C/tp].
func (c *Ctx[T]) SliceCols(x tensor.Mat[T]) tensor.Mat[T] {
	tp := c.TP()
	if tp == 1 {
		return x
	}
	w, from := x.Cols/tp, c.TPRank()*(x.Cols/tp)
	out := c.Arena.Mat(x.Rows, w)
	for r := range x.Rows {
		copy(out.Row(r), x.Row(r)[from:from+w])
	}
	return out
}

// ReducePartial completes a row-parallel sum: partial sums [N, C] on every rank → this rank's rows under sequence
// parallelism, all rows on every rank without.
func (c *Ctx[T]) ReducePartial(x tensor.Mat[T], tag Tag) tensor.Mat[T] {
	if c.SP {
		return c.ReduceScatterRows(x, tag)
	}
	c.allReduce(x.Data, tag, Sum)
	return x
}

// WholeRows makes all rows present on every rank: an all-gather under sequence parallelism, nothing without.
func (c *Ctx[T]) WholeRows(x tensor.Mat[T], tag Tag) tensor.Mat[T] {
	if c.SP {
		return c.GatherRows(x, tag)
	}
	return x
}

// Add is a + b in new memory.
func (c *Ctx[T]) Add(a, b tensor.Mat[T]) tensor.Mat[T] {
	out := c.Arena.Mat(a.Rows, a.Cols)
	kernel.Add(out.Data, a.Data, b.Data)
	return out
}
