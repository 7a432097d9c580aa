package moe

import (
	"maps"
	"slices"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// Bias is the expert bias: added to scores for the choice alone, moved after every optimizer step by
// Rate towards the experts that got too few tokens. It is no parameter: it has no gradient, decay or moments.
//
// A repeated MTP layer is applied at every depth; each application has its own counts and moves the one bias, in
// ascending order of depths, as the reference cases have it.
type Bias[T tensor.Float] struct {
	Name   string // Hugging Face name
	Rate   float64
	Values []T
	counts map[int][]int64 // by depth: valid rows of the executed choice, this rank's, since the last update
}

// NewBias is a bias of zeros for e experts.
func NewBias[T tensor.Float](name string, e int, rate float64) *Bias[T] {
	return &Bias[T]{Name: name, Rate: rate, Values: make([]T, e), counts: map[int][]int64{}}
}

// add adds the bias to a row of scores. Nil adds nothing.
func (b *Bias[T]) add(scores []float64) {
	if b == nil {
		return
	}
	for e, v := range b.Values {
		scores[e] += float64(v)
	}
}

// count takes the executed choice of valid rows of a training forward. Evaluation and recomputation do not count; a
// tensor-parallel rank without sequence parallelism holds the rows of rank 0 again and leaves them to it.
func (b *Bias[T]) count(c *nn.Ctx[T], r Routing[T]) {
	if b == nil || !training(c) || !c.SP && c.TPRank() > 0 {
		return
	}
	n := b.counts[c.Site.Depth]
	for i, e := range r.Expert {
		if e >= 0 && !c.Skips(i/r.K) {
			n[e]++
		}
	}
}

// training says whether a forward counts: a first forward of training does, a recomputed one and evaluation do not.
func training[T tensor.Float](c *nn.Ctx[T]) bool {
	switch {
	case c.Recompute:
		return c.Mut.Has(mutation.RecomputeDoubleCount) && c.Site.Microbatch == 0 // doubling all would keep the signs
	case c.Site.Phase == nn.Eval:
		return c.Mut.Has(mutation.EvalCounts)
	}
	return c.Site.Phase == nn.Forward
}

// Use declares that the router is applied at a depth; 0 is the trunk.
func (b *Bias[T]) Use(depth int) { b.counts[depth] = make([]int64, len(b.Values)) }

// Reset forgets what was counted.
func (b *Bias[T]) Reset() {
	for _, n := range b.counts {
		clear(n)
	}
}

// Update moves every bias by Rate·sign(mean − n) with n over the whole step, and forgets the counts.
func (b *Bias[T]) Update(c nn.Comm, site nn.Site) {
	for _, depth := range slices.Sorted(maps.Keys(b.counts)) {
		n := b.counts[depth]
		for _, axis := range [...]mesh.Axis{mesh.TP, mesh.CP, mesh.DP} {
			nn.AllReduceInto(c, axis, nn.TagRouterCounts, site, nn.Sum, n)
		}
		b.move(n)
	}
	b.Reset()
}

func (b *Bias[T]) move(counts []int64) {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	for e, n := range counts {
		switch n *= int64(len(counts)); { // n < mean without a division
		case n < total:
			b.Values[e] += T(b.Rate)
		case n > total:
			b.Values[e] -= T(b.Rate)
		}
	}
}
