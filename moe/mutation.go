package moe

import (
	"math"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// mutatedScale is 1 but for planted bugs of the balancing gradient.
func mutatedScale[T tensor.Float](c *nn.Ctx[T], k BalancingKind) float64 {
	switch {
	case c.Mut.Has(mutation.AuxDetached):
		return 0
	case c.Mut.Has(mutation.AuxLayoutScaled):
		ranks := c.CP()
		if c.SP {
			ranks *= c.TP()
		}
		if k == GlobalAuxLoss {
			ranks *= c.Comm.Size(mesh.DP)
		}
		return 1 / float64(ranks)
	}
	return 1
}

// rowWeight is the weight of a row in the gradients of the auxiliary losses, and whether it has one: padding has none.
// Without the clamp it is multiplied by 0 instead, as where a loss is taken over masked scores: 0 · ∞ is not a number.
func rowWeight[T tensor.Float](c *nn.Ctx[T], i int) (float64, bool) {
	if !c.Skips(i) {
		return 1, true
	}
	return 0, c.Mut.Has(mutation.UnclampedZeroTokens)
}

// poisonEmpty plants the bug of an expert without rows whose gradient is left as the memory was.
func poisonEmpty[T tensor.Float](c *nn.Ctx[T], experts []Expert[T], by order) {
	if !c.Mut.Has(mutation.SkipEmptyExpert) {
		return
	}
	for e, ex := range experts {
		if by.start[e] == by.start[e+1] {
			for i := range ex.FC1.G {
				ex.FC1.G[i] = T(math.NaN())
			}
		}
	}
}
