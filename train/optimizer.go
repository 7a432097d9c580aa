package train

import (
	"math"

	"phalanx/config"
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// gradBucket is the number of gradient elements reduced in one operation: 16 MiB of fp32, small enough that a
// bucket's copies stay a fraction of the model, large enough that the latency of an operation does not count.
const gradBucket = 1 << 22

// adamPart is the number of elements one thread updates at least.
const adamPart = 1 << 16

// ReduceGrads completes every gradient: partial ones over the tensor-parallel group, then all over the
// context-parallel and the data-parallel group; those of experts over the copies of the expert. Losses are weighted by
// the whole step, so all are plain sums.
func ReduceGrads[T tensor.Float](c nn.Comm, site nn.Site, p *nn.Params[T], mut mutation.Set) {
	if mut.Has(mutation.DropReduce) {
		return
	}
	reduce := func(axis mesh.Axis, g []T) {
		for from := 0; from < len(g); from += gradBucket {
			nn.AllReduceInto(c, axis, nn.TagGradient, site, nn.Sum, g[from:min(from+gradBucket, len(g))])
		}
	}
	reduce(mesh.TP, p.SumTP)
	if mut.Has(mutation.AvgInsteadOfSum) {
		kernel.Scale(p.SumTP, 1/T(c.Size(mesh.TP)))
	}
	for _, axis := range [...]mesh.Axis{mesh.CP, mesh.DP} {
		reduce(axis, p.SumTP)
		reduce(axis, p.Rest)
	}
	reduce(mesh.EDP, p.Experts)
}

// GradNorms is the Euclidean norm of each norm group's gradient, every parameter counted once: one partial sum per
// parameter, shards added in rank order, parameters added in name order. Experts of other ranks are
// counted by those.
func GradNorms[T tensor.Float](c nn.Comm, site nn.Site, p *nn.Params[T], mut mutation.Set) map[string]float64 {
	specs := p.All()
	dense, experts := make([]float64, len(specs)), make([]float64, len(specs))
	for i, s := range specs {
		switch q := p.ByName(s.Name); {
		case q == nil, q.Shared:
		case s.Expert:
			experts[i] = kernel.SumSquares(q.Grad)
		case s.Shard.Parts > 1 || c.Rank(mesh.TP) == 0 || mut.Has(mutation.NormCountsReplicas):
			dense[i] = kernel.SumSquares(q.Grad)
		}
	}
	nn.AllReduceInto(c, mesh.TP, nn.TagGradNorm, site, nn.Sum, dense)
	nn.AllReduceInto(c, mesh.EP, nn.TagGradNorm, site, nn.Sum, experts)
	nn.AllReduceInto(c, mesh.PP, nn.TagGradNorm, site, nn.Sum, dense)
	nn.AllReduceInto(c, mesh.PP, nn.TagGradNorm, site, nn.Sum, experts)
	norms := map[string]float64{}
	for i, s := range specs {
		norms[s.Group] += dense[i] + experts[i]
	}
	for g, v := range norms {
		norms[g] = math.Sqrt(v)
	}
	return norms
}

// Adam is AdamW with decoupled decay over all parameters of a rank.
type Adam[T tensor.Float] struct {
	cfg    config.Optimizer
	params []*nn.Param[T]
	m, v   [][]T
	steps  int
	pow1   float64 // β1^steps
	pow2   float64
}

// NewAdam allocates the moments.
func NewAdam[T tensor.Float](cfg config.Optimizer, p *nn.Params[T]) *Adam[T] {
	a := &Adam[T]{cfg: cfg, params: p.List, pow1: 1, pow2: 1}
	for _, q := range p.List {
		a.m, a.v = append(a.m, make([]T, len(q.Data))), append(a.v, make([]T, len(q.Data)))
	}
	return a
}

// Clip is the factor that brings a norm down to clip_grad; 1 if it is below or clipping is off.
func (a *Adam[T]) Clip(norm float64) float64 {
	if a.cfg.ClipGrad <= 0 {
		return 1
	}
	return math.Min(1, a.cfg.ClipGrad/(norm+1e-6))
}

// Step updates every parameter with its group's clip factor. A step without tokens is an ordinary step.
func (a *Adam[T]) Step(lr float64, norms map[string]float64) {
	a.count()
	for i, q := range a.params {
		h := kernel.AdamWStep[T]{LR: T(lr), Beta1: T(a.cfg.AdamBeta1), Beta2: T(a.cfg.AdamBeta2), Eps: T(a.cfg.AdamEps),
			OneMinusBeta1: T(1 - a.cfg.AdamBeta1), OneMinusBeta2: T(1 - a.cfg.AdamBeta2),
			BiasCorr1: T(1 - a.pow1), BiasCorr2: T(1 - a.pow2), GradScale: T(a.Clip(norms[q.Group]))}
		if q.Decay() {
			h.WeightDecay = T(a.cfg.WeightDecay)
		}
		p, g, m, v := q.Data, q.Grad, a.m[i], a.v[i]
		kernel.Parallel(len(p), adamPart, func(from, to int) {
			kernel.AdamW(p[from:to], g[from:to], m[from:to], v[from:to], h)
		})
	}
}
