package train

import (
	"phalanx/nn"
	"phalanx/tensor"
)

// Piece is what a rank's optimizer knows of a parameter: the elements [From, To) of the rank's shard, counted in
// row-major order of the shard's shape. A parameter that lies in several buckets of a sharded optimizer has several
// pieces. The slices are the optimizer's own memory: a checkpoint reads them, a resumed run writes them, between steps.
type Piece[T tensor.Float] struct {
	Spec     *nn.Spec // name, whole shape, shard
	From, To int
	Weight   []T // To − From elements, as are the others
	ExpAvg   []T // Megatron's names: the first moment,
	ExpAvgSq []T // and the second
}

// State is the pieces of this rank, in declaration order of the parameters and ascending in each.
func (a *Adam[T]) State() []Piece[T] {
	pieces := make([]Piece[T], len(a.held))
	for i, h := range a.held {
		pieces[i] = h.Piece
	}
	return pieces
}

// Steps is the number of updates done.
func (a *Adam[T]) Steps() int { return a.steps }

// SetSteps makes the optimizer one that has done n updates: bias corrections have the bits of a run that did.
func (a *Adam[T]) SetSteps(n int) {
	a.steps, a.pow1, a.pow2 = 0, 1, 1
	for range n {
		a.count()
	}
}

// count is one more update: powers are products of the factors one after another, so that they do not depend on math.Pow.
func (a *Adam[T]) count() {
	a.steps++
	a.pow1 *= a.cfg.AdamBeta1
	a.pow2 *= a.cfg.AdamBeta2
}
