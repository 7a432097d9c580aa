package moe

import (
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// The balancing losses. All are A = E/(K·T²) · Σ_e n_e · Σ_rows P[row, e] over valid rows, with P the
// scores that sum to 1, n_e the valid rows whose plain top-k has e (no bias, no groups, no drops), T valid rows; n and T
// are constants of the gradient. Denominators are clamped to one token, so that a microbatch of padding alone has loss
// and gradient zero.
//
//	aux_loss         n and T of the whole microbatch
//	seq_aux_loss     n of each row of the batch, one T for all: valid rows over rows of the batch; the mean over rows
//	global_aux_loss  n the running mean over the step's microbatches, summed over data-parallel ranks; T of this
//	                 microbatch index over them; each rank has its own rows' part
//
// The z loss is the mean over valid rows of the whole microbatch of logsumexp(logits)².

// BalancingKind is one entry of moe_router_load_balancing_type.
type BalancingKind uint8

// The kinds, in the order in which they are attached.
const (
	AuxLoss BalancingKind = iota
	SeqAuxLoss
	GlobalAuxLoss
)

// String is the observable's name.
func (k BalancingKind) String() string {
	return [...]string{"aux_loss", "seq_aux_loss", "global_aux_loss"}[k]
}

// Balancing is one balancing loss and its coefficient.
type Balancing struct {
	Kind   BalancingKind
	Coeff  float64
	PerRow bool // seq_aux_loss: each row's own T, and the mean over rows that have one (moe_seq_aux_per_row)
}

// clamp is a number of tokens as a denominator: at least one.
func clamp[T tensor.Float](c *nn.Ctx[T], n float64) float64 {
	if c.Mut.Has(mutation.UnclampedZeroTokens) {
		return n
	}
	return max(n, 1)
}

// zTokens is the z loss's denominator: valid rows of the whole microbatch, or upstream's.
func (r *Router[T]) zTokens(c *nn.Ctx[T], s *routerSaved[T]) float64 {
	if !c.Upstream {
		return clamp(c, float64(s.stats.valid))
	}
	n := 0 // Megatron: each rank's own mean, averaged over the ranks of the sequence
	for i := range s.lse {
		if !c.Skips(i) {
			n++
		}
	}
	ranks := c.CP()
	if c.SP {
		ranks *= c.TP()
	}
	return clamp(c, float64(n)) * float64(ranks)
}

// pooled adds what global balancing needs: counts of this microbatch index over the data-parallel ranks, and their
// running mean over the step.
func (r *Router[T]) pooled(c *nn.Ctx[T], st stats) stats {
	for i := range r.Balancing {
		if r.Balancing[i].Kind != GlobalAuxLoss {
			continue
		}
		v := append(append([]int64(nil), st.aux...), st.valid)
		nn.AllReduceInto(c.Comm, mesh.DP, nn.TagRouterCounts, c.Site, nn.Sum, v)
		st.poolT = v[len(v)-1]
		st.pool = r.running.add(v[:len(v)-1])
	}
	return st
}

// slopes is dA/dP of every valid row's scores: the same for all rows of a row of the batch.
type slopes struct{ byRow [][]float64 }

func (s slopes) add(b int, weight float64, dshare []float64) {
	for j, v := range s.byRow[b%len(s.byRow)] {
		dshare[j] += weight * v
	}
}

// balancingSlopes is the gradient of the weighted balancing losses with respect to scores.
func (r *Router[T]) balancingSlopes(c *nn.Ctx[T], s *routerSaved[T]) slopes {
	e := s.logits.Cols
	out := slopes{byRow: make([][]float64, c.B)}
	for b := range out.byRow {
		out.byRow[b] = make([]float64, e)
		for _, l := range r.Balancing {
			scale := l.Coeff * c.Aux.Gradient / c.Aux.Divisor * mutatedScale(c, l.Kind)
			for x, n := range r.counts(l.Kind, s, b) {
				out.byRow[b][x] += scale * r.factor(c, l, s, b) * n
			}
		}
	}
	return out
}

// counts is n_e as a balancing loss sees it for row b of the batch.
func (r *Router[T]) counts(k BalancingKind, s *routerSaved[T], b int) []float64 {
	switch k {
	case SeqAuxLoss:
		return nn.Float64s(s.stats.rows[b])
	case GlobalAuxLoss:
		return s.stats.pool
	}
	return nn.Float64s(s.stats.aux)
}

// factor is E/(K·T²), over the number of rows for seq_aux.
func (r *Router[T]) factor(c *nn.Ctx[T], l Balancing, s *routerSaved[T], b int) float64 {
	t, rows := float64(s.stats.valid), 1.0
	switch {
	case l.Kind == SeqAuxLoss && l.PerRow:
		t, rows = float64(s.stats.rowValid[b]), clamp(c, float64(nonEmpty(s.stats.rowValid)))
	case l.Kind == SeqAuxLoss:
		t, rows = t/float64(c.B), float64(c.B)
	case l.Kind == GlobalAuxLoss:
		t = float64(s.stats.poolT)
	}
	t = clamp(c, t)
	return float64(r.Weight.Out) / (float64(r.K) * t * t) / rows
}

func nonEmpty(x []int64) int {
	n := 0
	for _, v := range x {
		if v > 0 {
			n++
		}
	}
	return n
}

// losses are this rank's parts of the unweighted losses: the whole is their sum over the shards of the sequence.
func (r *Router[T]) losses(c *nn.Ctx[T], s *routerSaved[T]) (balancing []float64, z float64) {
	e := s.logits.Cols
	sums := make([][]float64, c.B) // Σ_rows P by row of the batch
	for b := range sums {
		sums[b] = make([]float64, e)
	}
	for i := range s.lse {
		if c.Skips(i) {
			continue
		}
		for x, p := range s.shares[i*e : (i+1)*e] {
			sums[i%c.B][x] += p
		}
		z += s.lse[i] * s.lse[i]
	}
	for _, l := range r.Balancing {
		a := 0.0
		for b := range c.B {
			dot := 0.0
			for x, n := range r.counts(l.Kind, s, b) {
				dot += n * sums[b][x]
			}
			a += r.factor(c, l, s, b) * dot
		}
		balancing = append(balancing, a/c.Aux.Divisor)
	}
	return balancing, z / r.zTokens(c, s) / c.Aux.Divisor
}

// byKind is the balancing losses by kind, then z.
func (r *Router[T]) byKind(balancing []float64, z float64) [4]float64 {
	v := [4]float64{3: z}
	for i, l := range r.Balancing {
		v[l.Kind] += balancing[i]
	}
	return v
}

// report adds the losses to the microbatch's figures and shows the router's quantities to an observer. Where neither is
// there, as in evaluation and recomputation, the losses are not computed.
func (r *Router[T]) report(c *nn.Ctx[T], s *routerSaved[T], executed Routing[T]) {
	adds := c.Sums != nil && (c.SP || c.TPRank() == 0) // without sequence parallelism every TP rank has the same
	if !adds && c.Obs == nil {
		return
	}
	balancing, z := r.losses(c, s)
	if adds {
		for i, l := range r.Balancing {
			c.Sums.Balancing[l.Kind] += balancing[i]
		}
		c.Sums.Z += z
		if c.Sums.ByRouter != nil {
			c.Sums.ByRouter[c.Scope] = r.byKind(balancing, z)
		}
	}
	if c.Obs == nil {
		return
	}
	rows, e := c.RowsLayout(), r.Weight.Out
	c.ObserveMat("router.logits", s.logits, rows, nn.Whole)
	probs, chosen := tensor.NewMat[T](s.logits.Rows, e), make([]float64, s.logits.Rows*e)
	counts := make([]int64, e)
	for k, x := range executed.Expert {
		if x < 0 {
			continue
		}
		i := k / r.K
		probs.Row(i)[x] = executed.Prob[k]
		chosen[i*e+int(x)] = 1
		if !c.Skips(i) {
			counts[x]++
		}
	}
	c.ObserveMat("router.probs", probs, rows, nn.Whole)
	c.ObserveRows("router.routing_map", chosen, e, rows)
	c.ObserveCounts("router.tokens_per_expert", nn.Float64s(counts), rows)
	c.ObserveCounts("router.valid_tokens", []float64{float64(s.stats.valid)}, nn.Full)
	for i, l := range r.Balancing {
		c.ObserveNumber("router."+l.Kind.String(), balancing[i], rows)
	}
	c.ObserveNumber("router.z_loss", z, rows)
}
