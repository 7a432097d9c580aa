package moe

import (
	"github.com/cespare/xxhash/v2"

	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// uniform is a number in [0, 1) that depends on the seed, the step, the microbatch of the whole step, the layer, the
// token's place in the whole microbatch and the feature, and on no layout.
func uniform[T tensor.Float](c *nn.Ctx[T], seed uint64, what string, row, feature int) float64 {
	key := seed ^ xxhash.Sum64String(what+c.Scope)
	mb := uint32(c.Microbatch)
	r := kernel.Philox([2]uint32{uint32(key), uint32(key >> 32)}, [4]uint32{uint32(c.Site.Step), mb, uint32(row), uint32(feature)})
	return float64(uint64(r[0])<<20|uint64(r[1])>>12) / (1 << 52)
}

// shake multiplies every feature that the router sees by a factor in [1−ε, 1+ε]. Without jitter the rows are as given.
func (r *Router[T]) shake(c *nn.Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], []T) {
	if r.Jitter == 0 || c.Site.Phase == nn.Eval {
		return x, nil
	}
	out, factors := c.Arena.Mat(x.Rows, x.Cols), c.Arena.Alloc(x.Rows*x.Cols)
	for i := range x.Rows {
		row := wholeRow(c, i)
		for j := range x.Cols {
			f := T(1)
			if row >= 0 {
				f = T(1 + r.Jitter*(2*uniform(c, r.Seed, "jitter", row, j)-1))
			}
			factors[i*x.Cols+j] = f
		}
	}
	kernel.Mul(out.Data, x.Data, factors)
	return out, factors
}

// force puts random logits in place of the router's, which balances experts: a benchmark's mode.
func (r *Router[T]) force(c *nn.Ctx[T], logits tensor.Mat[T]) {
	if !r.Forced {
		return
	}
	for i := range logits.Rows {
		row := max(wholeRow(c, i), 0)
		for j := range logits.Row(i) {
			logits.Row(i)[j] = T(uniform(c, r.Seed, "forced", row, j))
		}
	}
}
