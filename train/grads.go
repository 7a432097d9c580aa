package train

import (
	"fmt"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Layout says where a rank stands and how its optimizer is laid out.
type Layout struct {
	Sizes mesh.Sizes
	Rank  int
	// Sharded: each of the ranks that hold the same parameters updates one slice of them (use_distributed_optimizer).
	Sharded bool
	Bucket  int // elements of a bucket; 0: BucketElements
	// LayerOf is the decoder layer of a parameter, −1 for others; nil: nobody asks. With it no bucket holds both sorts, so
	// that Ready says what can be reduced while the backward pass goes on.
	LayerOf func(*nn.Spec) int
	BF16    bool // gradients are rounded to bfloat16 for the data-parallel reduction (grad_reduce_in_fp32: false)
}

// Grads completes the gradients of a rank: it adds them over the ranks that hold the same parameters, and gives their
// norm. With a sharded optimizer it leaves each rank the sum of its own slices and collects updated weights.
type Grads[T tensor.Float] struct {
	layout  Layout
	params  *nn.Params[T]
	buckets []*bucket[T]
	leaves  leaves[T]
	stage   [2][]T // buckets on their way
	wire    [2][]tensor.BFloat16
}

// NewGrads cuts a rank's parameters into buckets. The parameters must be built.
func NewGrads[T tensor.Float](p *nn.Params[T], l Layout) *Grads[T] {
	if l.Bucket <= 0 {
		l.Bucket = BucketElements
	}
	g := &Grads[T]{layout: l, params: p}
	for _, f := range [...]*nn.Flat[T]{&p.SumTP, &p.Rest} {
		g.buckets = append(g.buckets, newBuckets(f, denseAxes, l)...)
	}
	g.buckets = append(g.buckets, newBuckets(&p.Experts, expertAxes, l)...)
	g.leaves = newLeaves(p)
	return g
}

// Reduce completes every gradient: partial ones over the tensor-parallel group, then all over the context-parallel and
// the data-parallel group; those of experts over the copies of the expert. Losses are weighted by the whole step, so
// all are plain sums. With a sharded optimizer only this rank's slices are complete.
func (g *Grads[T]) Reduce(c nn.Comm, site nn.Site, mut mutation.Set) {
	if mut.Has(mutation.DropReduce) {
		return
	}
	for i := range g.buckets {
		g.ReduceBucket(c, site, mut, i)
	}
}

// ReduceBucket is Reduce for bucket i alone. Buckets of one group must come in the same order on all of its ranks.
func (g *Grads[T]) ReduceBucket(c nn.Comm, site nn.Site, mut mutation.Set, i int) {
	b := g.buckets[i]
	x := b.flat.Grad[b.from():b.to()]
	if b.flat == &g.params.SumTP {
		nn.AllReduceInto(c, mesh.TP, nn.TagGradient, site, nn.Sum, x)
		if mut.Has(mutation.AvgInsteadOfSum) {
			kernel.Scale(x, 1/T(c.Size(mesh.TP)))
		}
	}
	if b.slices() > 1 {
		g.scatter(c, site, b)
		return
	}
	for _, axis := range b.axes {
		if g.layout.BF16 {
			g.allReduceBF16(c, axis, site, x)
		} else {
			nn.AllReduceInto(c, axis, nn.TagGradient, site, nn.Sum, x)
		}
	}
}

// Ready is the buckets that are complete when the backward pass of a layer has ended, in the last microbatch of a step:
// those of which it is the lowest layer. With −1 it is those that wait for the end of the step.
func (g *Grads[T]) Ready(layer int) []int {
	var ready []int
	for i, b := range g.buckets {
		if b.lowest == layer {
			ready = append(ready, i)
		}
	}
	return ready
}

// scatter adds a bucket over its axes and keeps this rank's slice, in place. Slices lie in the order of the axes, the first
// slowest, so that each axis halves, quarters, … what is left.
func (g *Grads[T]) scatter(c nn.Comm, site nn.Site, b *bucket[T]) {
	if g.layout.BF16 {
		g.scatterBF16(c, site, b)
		return
	}
	for _, s := range b.divisions(c) {
		c.Do(&nn.Op{Axis: s.axis, Kind: nn.ReduceScatter, Reduce: nn.Sum, DType: tensor.DTypeOf[T](), Tag: nn.TagGradient, Site: site,
			In: tensor.Bytes(b.flat.Grad[s.from:s.to]), Out: tensor.Bytes(b.flat.Grad[s.low:s.high]), Cuts: s.cuts})
	}
}

// GatherWeights gives every rank the weights that the others have updated.
func (g *Grads[T]) GatherWeights(c nn.Comm, site nn.Site) {
	g.gather(c, site, nn.TagParamGather, func(f *nn.Flat[T]) []T { return f.Data })
}

// GatherGrads completes the gradients of the other ranks' slices too, for those who want to see them.
func (g *Grads[T]) GatherGrads(c nn.Comm, site nn.Site) {
	g.gather(c, site, nn.TagGradientView, func(f *nn.Flat[T]) []T { return f.Grad })
}

func (g *Grads[T]) gather(c nn.Comm, site nn.Site, tag nn.Tag, of func(*nn.Flat[T]) []T) {
	for _, b := range g.buckets {
		if b.slices() == 1 {
			continue
		}
		x, divisions := of(b.flat), b.divisions(c)
		for i := len(divisions) - 1; i >= 0; i-- {
			s := divisions[i]
			c.Do(&nn.Op{Axis: s.axis, Kind: nn.AllGather, DType: tensor.DTypeOf[T](), Tag: tag, Site: site,
				In: tensor.Bytes(x[s.low:s.high]), Out: tensor.Bytes(x[s.from:s.to]), Cuts: s.cuts})
		}
	}
}

// staged is one of two buffers, with n elements.
func (g *Grads[T]) staged(i, n int) []T {
	if cap(g.stage[i]) < n {
		g.stage[i] = make([]T, n)
	}
	return g.stage[i][:n]
}

// NotFiniteError says that a gradient is not a number before it was added over ranks.
type NotFiniteError struct {
	Rank, Step int    // step is 0-based
	Name       string // of the parameter
	Index      int    // of the element in this rank's shard
	Value      float64
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("rank %d found %v in the gradient of %s, element %d of its shard, in iteration %d, before the gradients are added over ranks; "+
		"ddp.check_for_nan_in_grad: false lets the run go on, train.skip_nan_steps: true skips the step",
		e.Rank, e.Value, e.Name, e.Index, e.Step+1)
}

// Finding implements nn.Finding.
func (*NotFiniteError) Finding() {}

// CheckFinite is the first gradient of this rank, in declaration order, that is not finite; nil if all are. It looks at
// the parameters of a layer, with LayerOf, or at all others with −1.
func (g *Grads[T]) CheckFinite(step, layer int) error {
	for _, q := range g.params.List {
		if g.layout.LayerOf != nil && g.layout.LayerOf(&q.Spec) != layer {
			continue
		}
		for _, u := range append([]nn.Use[T]{{Grad: q.Grad}}, q.Uses...) {
			for i, v := range u.Grad {
				if v-v != 0 {
					return &NotFiniteError{Rank: g.layout.Rank, Step: step, Name: q.Name, Index: i, Value: float64(v)}
				}
			}
		}
	}
	return nil
}
