// Package moe holds the mixture-of-experts layer: router, auxiliary losses, and experts as grouped products over
// rows sorted by expert (SEMANTICS §5, §6).
//
// Shapes: N local rows, E experts, K experts per row, F hidden features of an expert.
package moe

import (
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Router scores every row and picks its K experts.
type Router[T tensor.Float] struct {
	Weight     nn.Weights[T] // [E, H], replicated
	K          int
	PreSoftmax bool    // softmax over all experts before the choice; else over the K chosen
	AuxCoeff   float64 // moe_aux_loss_coeff; 0: no aux loss
	ZCoeff     float64 // moe_z_loss_coeff; 0: no z loss
}

// Routing is the executed choice.
type Routing[T tensor.Float] struct {
	Expert []int32 // [N, K], by falling score; ties go to the lowest index
	Prob   []T     // [N, K]
}

type routerSaved[T tensor.Float] struct {
	x      tensor.Mat[T]
	logits tensor.Mat[T] // [N, E]
	scores tensor.Mat[T] // softmax over all experts
	lse    []T           // [N]
	route  Routing[T]
	stats  counts
}

// counts are integers over the whole microbatch (shards of the sequence added).
type counts struct {
	expert []int64 // valid rows that chose each expert
	valid  int64   // valid rows
}

// Forward routes rows [N, H]. Padding rows are routed too; they only do not count.
func (r *Router[T]) Forward(c *nn.Ctx[T], x tensor.Mat[T]) (Routing[T], *routerSaved[T]) {
	s := &routerSaved[T]{x: x, logits: r.Weight.Forward(c.Arena, x)}
	s.scores = c.Arena.Mat(x.Rows, r.Weight.Out)
	s.lse = c.Arena.Alloc(x.Rows)
	s.route = Routing[T]{Expert: make([]int32, x.Rows*r.K), Prob: c.Arena.Alloc(x.Rows * r.K)}
	for i := range x.Rows {
		mx, sum := kernel.SoftmaxInto(s.scores.Row(i), s.logits.Row(i), 1)
		s.lse[i] = mx + kernel.Log(sum)
		r.choose(s, i)
	}
	s.stats = r.count(c, s)
	r.report(c, s)
	return s.route, s
}

// choose fills row i of the routing.
func (r *Router[T]) choose(s *routerSaved[T], i int) {
	experts, probs := s.route.Expert[i*r.K:(i+1)*r.K], s.route.Prob[i*r.K:(i+1)*r.K]
	topK(experts, s.logits.Row(i))
	for j, e := range experts {
		if r.PreSoftmax {
			probs[j] = s.scores.Row(i)[e]
		} else {
			probs[j] = s.logits.Row(i)[e]
		}
	}
	if !r.PreSoftmax {
		kernel.SoftmaxInto(probs, probs, 1)
	}
}

// topK writes the indices of the len(dst) largest values, largest first, lowest index first among equals.
func topK[T tensor.Float](dst []int32, x []T) {
	for j := range dst {
		best := int32(-1)
		for e := range x {
			if taken(dst[:j], int32(e)) {
				continue
			}
			if best < 0 || x[e] > x[best] {
				best = int32(e)
			}
		}
		dst[j] = best
	}
}

func taken(chosen []int32, e int32) bool {
	for _, t := range chosen {
		if t == e {
			return true
		}
	}
	return false
}

// count takes the statistics of the microbatch: once, whatever the layout. Shards under sequence and context
// parallelism hold different rows and are added; without sequence parallelism every tensor-parallel rank has all rows.
func (r *Router[T]) count(c *nn.Ctx[T], s *routerSaved[T]) counts {
	v := make([]int64, r.Weight.Out+1)
	for i := range s.logits.Rows {
		if c.Skips(i) {
			continue
		}
		v[r.Weight.Out]++
		for _, e := range s.route.Expert[i*r.K : (i+1)*r.K] {
			v[e]++
		}
	}
	if c.SP {
		nn.AllReduceInto(c.Comm, mesh.TP, nn.TagRouterCounts, c.Site, nn.Sum, v)
	}
	nn.AllReduceInto(c.Comm, mesh.CP, nn.TagRouterCounts, c.Site, nn.Sum, v)
	return counts{expert: v[:r.Weight.Out], valid: v[r.Weight.Out]}
}

// Backward takes the gradient of the chosen probabilities [N, K], adds those of the auxiliary losses, and returns
// the gradient of the rows.
func (r *Router[T]) Backward(c *nn.Ctx[T], s *routerSaved[T], dprob []T) tensor.Mat[T] {
	dlogits := c.Arena.Mat(s.logits.Rows, s.logits.Cols)
	clear(dlogits.Data)
	dscore := c.Arena.Alloc(s.logits.Cols)
	aux := r.auxGrad(c, s)
	for i := range s.logits.Rows {
		clear(dscore)
		r.chosenGrad(s, i, dprob[i*r.K:(i+1)*r.K], dlogits.Row(i), dscore)
		if !c.Skips(i) {
			kernel.AddInto(dscore, aux)
			r.zGrad(c, s, i, dlogits.Row(i))
		}
		kernel.SoftmaxGradRow(dscore, s.scores.Row(i), dscore, 1)
		kernel.AddInto(dlogits.Row(i), dscore)
	}
	r.Weight.WeightGrad(dlogits, s.x)
	return r.Weight.InputGrad(c.Arena, dlogits)
}

// chosenGrad passes the gradient of row i's probabilities to its logits, or to its scores with PreSoftmax.
func (r *Router[T]) chosenGrad(s *routerSaved[T], i int, dprob, dlogit, dscore []T) {
	experts, probs := s.route.Expert[i*r.K:(i+1)*r.K], s.route.Prob[i*r.K:(i+1)*r.K]
	if r.PreSoftmax {
		for j, e := range experts {
			dscore[e] += dprob[j]
		}
		return
	}
	d := make([]T, r.K)
	kernel.SoftmaxGradRow(d, probs, dprob, 1)
	for j, e := range experts {
		dlogit[e] += d[j]
	}
}
