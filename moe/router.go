// Package moe holds the mixture-of-experts layer: router, auxiliary losses, expert bias, capacity, dispatch, and experts
// as grouped products over rows sorted by expert.
//
// Shapes: N local rows, E experts, K experts per row, F hidden features of an expert. The router works in float64
// inside a row and rounds what leaves it to T, as upstream works in fp32 inside bf16 models.
package moe

import (
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Router scores every row and picks its K experts.
type Router[T tensor.Float] struct {
	Weight     nn.Weights[T] // [E, H], replicated
	K          int
	Score      ScoreFunc
	PreSoftmax bool     // softmax over all experts before the choice; else over the K chosen
	Groups     Groups   // group-limited choice
	Scaling    float64  // moe_router_topk_scaling_factor; 0: none
	Bias       *Bias[T] // expert bias; nil: none
	Balancing  []Balancing
	ZCoeff     float64 // moe_z_loss_coeff; 0: no z loss
	Jitter     float64 // moe_input_jitter_eps; 0: none
	Forced     bool    // moe_router_force_load_balancing: random logits, for benchmarks
	Seed       uint64  // of jitter and forced logits
	Capacity   Capacity
	Replay     *Replay              // nil: choose anew every time
	Fused      bool                 // moe_router_fusion: softmax scores without groups or bias in one pass over a row
	running    mean                 // of global balancing
	kept       map[forwardKey]stats // of forwards that will be recomputed
}

// Routing is the executed choice. A dropped choice has expert −1 and probability 0.
type Routing[T tensor.Float] struct {
	K      int     // entries of a row: the router's K, and more where rows fill experts up to their capacity
	Expert []int32 // [N, K], by falling score; ties go to the lowest index. Behind the choices: experts filled up, or −1
	Prob   []T     // [N, K]; 0 where an expert is filled up
}

type routerSaved[T tensor.Float] struct {
	x      tensor.Mat[T] // after jitter
	logits tensor.Mat[T] // [N, E]
	scores []float64     // [N, E] of the score function, before normalisation
	shares []float64     // [N, E] what the auxiliary losses see: scores that sum to 1
	lse    []float64     // [N]
	best   []int32       // [N, K] plain top-k of the shares: what the balancing losses count
	route  Routing[T]    // before capacity drops
	jitter []T           // [N, H] factors; nil: none
	stats  stats
}

// stats are integers over the whole microbatch (shards of the sequence added) and over the pool of global balancing.
type stats struct {
	valid    int64     // valid rows of the microbatch
	aux      []int64   // [E] valid rows whose plain top-k has each expert
	rows     [][]int64 // [B][E] the same by row of the batch, for seq_aux
	rowValid []int64   // [B] valid rows of each row of the batch
	pool     []float64 // [E] running mean of aux over the step's microbatches, summed over data-parallel ranks
	poolT    int64     // valid rows of this microbatch index over data-parallel ranks
}

// Forward routes rows [N, H]. Padding rows are routed too; they only do not count, and neither do rows that fill experts
// up to their capacity.
func (r *Router[T]) Forward(c *nn.Ctx[T], x tensor.Mat[T]) (Routing[T], *routerSaved[T]) {
	s := &routerSaved[T]{x: x}
	s.x, s.jitter = r.shake(c, x)
	s.logits = r.Weight.Forward(c.Arena, s.x)
	r.force(c, s.logits)
	n, e := s.logits.Rows, s.logits.Cols
	s.scores, s.shares, s.lse = make([]float64, n*e), make([]float64, n*e), make([]float64, n)
	s.route = Routing[T]{K: r.K, Expert: make([]int32, n*r.K), Prob: c.Arena.Alloc(n * r.K)}
	s.best = make([]int32, n*r.K)
	row := newRowScratch(e)
	for i := range n {
		if r.Fused {
			r.fusedRow(s, i)
		} else {
			r.routeRow(s, i, row)
		}
	}
	r.replay(c, s, row)
	s.stats = r.counted(c, s)
	kept, executed := applyCapacity(r.Capacity, c, s.route, e)
	r.Bias.count(c, kept)
	r.report(c, s, kept)
	return executed, s
}

// mean is a running mean of counts over the calls since the last reset.
type mean struct {
	sum   []float64
	calls float64
}

func (m *mean) add(v []int64) []float64 {
	if m.sum == nil {
		m.sum = make([]float64, len(v))
	}
	m.calls++
	out := make([]float64, len(v))
	for i, n := range v {
		m.sum[i] += float64(n)
		out[i] = m.sum[i] / m.calls
	}
	return out
}

// StartStep forgets what was counted in the step before, or in an earlier run of this one.
func (r *Router[T]) StartStep(mut mutation.Set) {
	r.running = mean{}
	clear(r.kept)
	if r.Bias != nil && !mut.Has(mutation.EvalCounts) {
		r.Bias.Reset()
	}
}

type rowScratch struct{ logits, biased []float64 }

func newRowScratch(e int) rowScratch { return rowScratch{make([]float64, e), make([]float64, e)} }

// routeRow scores row i, chooses its experts and their probabilities.
func (r *Router[T]) routeRow(s *routerSaved[T], i int, t rowScratch) {
	e := s.logits.Cols
	for j, v := range s.logits.Row(i) {
		t.logits[j] = float64(v)
	}
	scores, shares := s.scores[i*e:(i+1)*e], s.shares[i*e:(i+1)*e]
	mx, sum := kernel.SoftmaxInto(shares, t.logits, 1)
	s.lse[i] = mx + kernel.Log(sum)
	if r.Score == Softmax {
		copy(scores, shares)
	} else {
		r.Score.score(scores, t.logits)
		total := kernel.Sum(scores) + sumFloor
		for j, v := range scores {
			shares[j] = v / total
		}
	}
	topK(s.best[i*r.K:(i+1)*r.K], shares)
	choice := t.logits // the order of softmax scores is that of the logits
	if r.Score != Softmax {
		choice = scores
	}
	copy(t.biased, choice)
	r.Bias.add(t.biased)
	if r.Groups.N > 0 && r.Score == Softmax && r.PreSoftmax { // the order of sums of scores is not that of logits
		copy(t.biased, scores)
		r.Bias.add(t.biased)
	}
	r.Groups.limit(t.biased, r.K)
	topK(s.route.Expert[i*r.K:(i+1)*r.K], t.biased)
	r.probabilities(s, i, t)
}

// probabilities fills the probabilities of row i's chosen experts: of the scores without bias.
func (r *Router[T]) probabilities(s *routerSaved[T], i int, t rowScratch) {
	e := s.logits.Cols
	experts, probs, scores := s.route.Expert[i*r.K:(i+1)*r.K], s.route.Prob[i*r.K:(i+1)*r.K], s.scores[i*e:(i+1)*e]
	w := t.biased[:0]
	for _, x := range experts {
		switch {
		case r.Score == Softmax && !r.PreSoftmax:
			w = append(w, float64(s.logits.Row(i)[x]))
		default:
			w = append(w, scores[x])
		}
	}
	switch {
	case r.Score == Softmax && !r.PreSoftmax:
		kernel.SoftmaxInto(w, w, 1)
	case r.Score != Softmax && r.K > 1:
		total := kernel.Sum(w) + sumFloor
		for j := range w {
			w[j] /= total
		}
	}
	for j := range w {
		probs[j] = T(w[j] * r.scaling())
	}
}

func (r *Router[T]) scaling() float64 {
	if r.Scaling == 0 {
		return 1
	}
	return r.Scaling
}

// Backward takes the gradient of the executed probabilities [N, K of the executed routing], adds those of the auxiliary
// losses, and returns the gradient of the rows. The probability of a row that fills an expert up is the constant 0.
func (r *Router[T]) Backward(c *nn.Ctx[T], s *routerSaved[T], dprob []T) tensor.Mat[T] {
	n, e := s.logits.Rows, s.logits.Cols
	width := len(dprob) / max(n, 1)
	dlogits := c.Arena.Mat(n, e)
	g := rowGrad{dlogit: make([]float64, e), dscore: make([]float64, e), dshare: make([]float64, e), w: make([]float64, r.K)}
	slopes := r.balancingSlopes(c, s)
	for i := range n {
		clear(g.dlogit)
		clear(g.dscore)
		clear(g.dshare)
		r.chosenGrad(s, i, dprob[i*width:i*width+r.K], &g)
		if weight, counts := rowWeight(c, i); counts {
			slopes.add(i%c.B, weight, g.dshare)
			r.zGrad(c, s, i, weight, g.dlogit)
		}
		r.scoreGrad(s, i, &g)
		for j, v := range g.dlogit {
			dlogits.Row(i)[j] = T(v)
		}
	}
	if r.Forced {
		clear(dlogits.Data) // random logits teach nothing
	}
	r.Weight.WeightGrad(dlogits, s.x)
	dx := r.Weight.InputGrad(c.Arena, dlogits)
	if s.jitter != nil {
		kernel.Mul(dx.Data, dx.Data, s.jitter)
	}
	return dx
}

// rowGrad is one row's gradients of logits, scores and shares.
type rowGrad struct{ dlogit, dscore, dshare, w []float64 }

// chosenGrad passes the gradient of row i's probabilities to its logits or scores.
func (r *Router[T]) chosenGrad(s *routerSaved[T], i int, dprob []T, g *rowGrad) {
	e := s.logits.Cols
	experts, scores := s.route.Expert[i*r.K:(i+1)*r.K], s.scores[i*e:(i+1)*e]
	scale := r.scaling()
	for j := range g.w {
		g.w[j] = float64(dprob[j]) * scale
	}
	switch {
	case r.Score == Softmax && !r.PreSoftmax:
		p := make([]float64, r.K)
		for j := range p {
			p[j] = float64(s.route.Prob[i*r.K+j]) / scale
		}
		kernel.SoftmaxGradRow(g.w, p, g.w, 1)
		for j, x := range experts {
			g.dlogit[x] += g.w[j]
		}
		return
	case r.Score != Softmax && r.K > 1: // w = q/Σq
		total, dot := sumFloor, 0.0
		for _, x := range experts {
			total += scores[x]
		}
		for j, x := range experts {
			dot += g.w[j] * scores[x] / total
		}
		for j := range g.w {
			g.w[j] = (g.w[j] - dot) / total
		}
	}
	for j, x := range experts {
		g.dscore[x] += g.w[j]
	}
}

// scoreGrad passes the gradients of scores and shares to the logits.
func (r *Router[T]) scoreGrad(s *routerSaved[T], i int, g *rowGrad) {
	e := s.logits.Cols
	scores, shares := s.scores[i*e:(i+1)*e], s.shares[i*e:(i+1)*e]
	if r.Score == Softmax {
		for j := range g.dscore {
			g.dscore[j] += g.dshare[j]
		}
		kernel.SoftmaxGradRow(g.dscore, scores, g.dscore, 1)
		for j, v := range g.dscore {
			g.dlogit[j] += v
		}
		return
	}
	total, dot := sumFloor, 0.0
	for j, v := range scores {
		total += v
		dot += g.dshare[j] * shares[j]
	}
	for j, v := range scores {
		d := g.dscore[j] + (g.dshare[j]-dot)/total
		g.dlogit[j] += d * r.Score.slope(float64(s.logits.Row(i)[j]), v)
	}
}

// zGrad adds the gradient of the weighted z loss to row i's logits: 2·lse·softmax/T, times the row's weight.
func (r *Router[T]) zGrad(c *nn.Ctx[T], s *routerSaved[T], i int, weight float64, dlogit []float64) {
	if r.ZCoeff == 0 {
		return
	}
	scale := weight * (2 * r.ZCoeff * c.Aux.Gradient / c.Aux.Divisor / r.zTokens(c, s) * s.lse[i])
	for j, v := range s.logits.Row(i) {
		dlogit[j] += scale * kernel.Exp(float64(v)-s.lse[i])
	}
}

// counted is the statistics of this forward; a recomputed forward takes those of the first one, so that nothing is
// counted twice.
func (r *Router[T]) counted(c *nn.Ctx[T], s *routerSaved[T]) stats {
	key := forwardOf(c)
	if c.Recompute {
		return r.kept[key]
	}
	st := r.count(c, s)
	if c.DropActivations {
		if r.kept == nil {
			r.kept = map[forwardKey]stats{}
		}
		r.kept[key] = st
	}
	return st
}

// forwardKey names a forward of a router in a step.
type forwardKey struct{ microbatch, depth int }

func forwardOf[T tensor.Float](c *nn.Ctx[T]) forwardKey {
	return forwardKey{c.Site.Microbatch, c.Site.Depth}
}

// count takes the statistics of the microbatch: once, whatever the layout. Shards under sequence and context
// parallelism hold different rows and are added; without sequence parallelism every tensor-parallel rank has all rows.
func (r *Router[T]) count(c *nn.Ctx[T], s *routerSaved[T]) stats {
	e := s.logits.Cols
	v := make([]int64, c.B*(e+1)) // by row of the batch: E counts, then valid rows
	for i := range s.logits.Rows {
		if c.Skips(i) {
			continue
		}
		row := v[i%c.B*(e+1) : (i%c.B+1)*(e+1)]
		row[e]++
		for _, x := range s.best[i*r.K : (i+1)*r.K] {
			row[x]++
		}
	}
	if c.SP {
		nn.AllReduceInto(c.Comm, mesh.TP, nn.TagRouterCounts, c.Site, nn.Sum, v)
	}
	nn.AllReduceInto(c.Comm, mesh.CP, nn.TagRouterCounts, c.Site, nn.Sum, v)
	return r.pooled(c, newStats(v, c.B, e))
}

func newStats(v []int64, b, e int) stats {
	st := stats{aux: make([]int64, e)}
	for row := range b {
		part := v[row*(e+1) : (row+1)*(e+1)]
		st.rows, st.rowValid = append(st.rows, part[:e]), append(st.rowValid, part[e])
		st.valid += part[e]
		for x, n := range part[:e] {
			st.aux[x] += n
		}
	}
	return st
}
