package train

import (
	"math"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// leaves are the sums of squares of the gradient's blocks, those of dense parameters and of experts apart, because
// different ranks hold their slices.
type leaves[T tensor.Float] struct {
	dense, experts []float64
	of             map[*nn.Param[T]][]float64 // a parameter's part of either
}

// newLeaves counts the blocks of every parameter.
func newLeaves[T tensor.Float](p *nn.Params[T]) leaves[T] {
	l := leaves[T]{of: map[*nn.Param[T]][]float64{}}
	blocks := func(q *nn.Param[T]) int { return (len(q.Grad) + normBlock - 1) / normBlock }
	for _, q := range p.List {
		sums := &l.dense
		if q.Expert {
			sums = &l.experts
		}
		*sums = append(*sums, make([]float64, blocks(q))...)
	}
	dense, experts := l.dense, l.experts
	for _, q := range p.List {
		rest := &dense
		if q.Expert {
			rest = &experts
		}
		l.of[q], *rest = (*rest)[:blocks(q)], (*rest)[blocks(q):]
	}
	return l
}

// add fills in the blocks of one bucket's own slice.
func (l *leaves[T]) add(b *bucket[T]) {
	b.eachOwn(func(q *nn.Param[T], from, to int) {
		sums := l.of[q]
		for at := from; at < to; at += normBlock {
			sums[at/normBlock] = kernel.SumSquares(q.Grad[at:min(at+normBlock, to)])
		}
	})
}

// sum is a parameter's sum of squares: blocks one after another.
func (l *leaves[T]) sum(q *nn.Param[T]) float64 {
	s := 0.0
	for _, v := range l.of[q] {
		s += v
	}
	return s
}

// squares completes the leaves of this rank's parameters. Each block is in one rank's slice and zero elsewhere, so that
// adding them over ranks changes no bit.
func (g *Grads[T]) squares(c nn.Comm, site nn.Site) {
	l := &g.leaves
	clear(l.dense)
	clear(l.experts)
	for _, b := range g.buckets {
		l.add(b)
	}
	if !g.layout.Sharded {
		return
	}
	for _, axis := range denseAxes {
		nn.AllReduceInto(c, axis, nn.TagGradNorm, site, nn.Sum, l.dense)
	}
	for _, axis := range expertAxes {
		nn.AllReduceInto(c, axis, nn.TagGradNorm, site, nn.Sum, l.experts)
	}
}

// Norms is the Euclidean norm of each norm group's gradient, every parameter counted once: one partial sum per
// parameter, shards added in rank order, parameters added in name order. Experts of other ranks and parameters of other
// stages are counted by those. It has the same bits with and without a sharded optimizer.
func (g *Grads[T]) Norms(c nn.Comm, site nn.Site, mut mutation.Set) map[string]float64 {
	g.squares(c, site)
	specs := g.params.All()
	dense, experts := make([]float64, len(specs)), make([]float64, len(specs))
	for i, s := range specs {
		switch q := g.params.ByName(s.Name); {
		case q == nil, q.Shared:
		case s.Expert:
			experts[i] = g.leaves.sum(q)
		case s.Shard.Parts > 1 || c.Rank(mesh.TP) == 0 || mut.Has(mutation.NormCountsReplicas):
			dense[i] = g.leaves.sum(q)
		}
	}
	nn.AllReduceInto(c, mesh.TP, nn.TagGradNorm, site, nn.Sum, dense)
	nn.AllReduceInto(c, mesh.EP, nn.TagGradNorm, site, nn.Sum, experts)
	norms := map[string]float64{}
	for i := range specs {
		dense[i] += experts[i]
	}
	nn.AllReduceInto(c, mesh.PP, nn.TagGradNorm, site, nn.Sum, dense)
	for i, s := range specs {
		norms[s.Group] += dense[i]
	}
	for group, v := range norms {
		norms[group] = math.Sqrt(v)
	}
	return norms
}

// Finite reports whether all norms are: whether every gradient of the model is, since squares are added in float64.
// The norms are the same bits on every rank, so all ranks say the same.
func Finite(norms map[string]float64) bool {
	for _, v := range norms {
		if v-v != 0 {
			return false
		}
	}
	return true
}
