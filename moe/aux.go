package moe

import (
	"phalanx/config/mutation"
	"phalanx/nn"
	"phalanx/tensor"
)

// The aux loss of a microbatch (SEMANTICS §5.4): A = E/(K·T²) · Σ_e n_e · Σ_rows P[row, e] over valid rows, with
// T valid rows and n_e valid rows that chose e, both of the whole microbatch and constants of the gradient. The
// denominator is clamped to one token, so that a microbatch of padding alone has loss and gradient zero.
//
// The z loss is the mean over valid rows of the whole microbatch of logsumexp(logits)², clamped alike.

// valid is the number of tokens that denominators take: at least one.
func (r *Router[T]) valid(c *nn.Ctx[T], s *routerSaved[T]) float64 {
	if c.Mut.Has(mutation.UnclampedZeroTokens) {
		return float64(s.stats.valid)
	}
	return float64(max(s.stats.valid, 1))
}

// auxFactor is E/(K·T²), the constant of the aux loss.
func (r *Router[T]) auxFactor(c *nn.Ctx[T], s *routerSaved[T]) float64 {
	t := r.valid(c, s)
	return float64(r.Weight.Out) / (float64(r.K) * t * t)
}

// auxGrad is the gradient of the weighted aux loss with respect to every valid row's scores: the same for all rows.
func (r *Router[T]) auxGrad(c *nn.Ctx[T], s *routerSaved[T]) []T {
	g := make([]T, r.Weight.Out)
	scale := r.AuxCoeff * r.auxFactor(c, s) * c.Aux.Gradient / c.Aux.Divisor
	for e, n := range s.stats.expert {
		g[e] = T(scale * float64(n))
	}
	return g
}

// zGrad adds the gradient of the weighted z loss to row i's logits: 2·lse·softmax/T.
func (r *Router[T]) zGrad(c *nn.Ctx[T], s *routerSaved[T], i int, dlogit []T) {
	if r.ZCoeff == 0 {
		return
	}
	scale := T(2*r.ZCoeff*c.Aux.Gradient/c.Aux.Divisor/r.valid(c, s)) * s.lse[i]
	for e, p := range s.scores.Row(i) {
		dlogit[e] += T(scale * p)
	}
}

// losses are this rank's parts of the unweighted aux and z loss: the whole is their sum over the shards.
func (r *Router[T]) losses(c *nn.Ctx[T], s *routerSaved[T]) (aux, z float64) {
	for i := range s.logits.Rows {
		if c.Skips(i) {
			continue
		}
		for e, p := range s.scores.Row(i) {
			aux += float64(s.stats.expert[e]) * float64(p)
		}
		z += float64(s.lse[i]) * float64(s.lse[i])
	}
	return aux * r.auxFactor(c, s) / c.Aux.Divisor, z / r.valid(c, s) / c.Aux.Divisor
}

// report adds the losses to the microbatch's figures and shows the router's quantities to an observer.
func (r *Router[T]) report(c *nn.Ctx[T], s *routerSaved[T]) {
	aux, z := r.losses(c, s)
	if c.Sums != nil && (c.SP || c.TPRank() == 0) { // without sequence parallelism every TP rank has the same
		c.Sums.Balancing += aux
		c.Sums.Z += z
	}
	if c.Obs == nil {
		return
	}
	rows, e := c.RowsLayout(), r.Weight.Out
	c.ObserveMat("router.logits", s.logits, rows, nn.Whole)
	probs, chosen := tensor.NewMat[T](s.logits.Rows, e), make([]float64, s.logits.Rows*e)
	for i := range s.logits.Rows {
		for j := range r.K {
			k := i*r.K + j
			probs.Row(i)[s.route.Expert[k]] = s.route.Prob[k]
			chosen[i*e+int(s.route.Expert[k])] = 1
		}
	}
	c.ObserveMat("router.probs", probs, rows, nn.Whole)
	c.ObserveRows("router.routing_map", chosen, e, rows)
	c.ObserveCounts("router.tokens_per_expert", nn.Float64s(s.stats.expert), nn.Full)
	c.ObserveCounts("router.valid_tokens", []float64{float64(s.stats.valid)}, nn.Full)
	c.ObserveNumber("router.aux_loss", aux, rows)
	c.ObserveNumber("router.z_loss", z, rows)
}
