// Package train holds what a step is made of besides the model: the order of microbatches, the learning rate, the
// reduction of gradients and their norm, and the optimizer, all pure.
package train

import (
	"math"
	"strings"

	"phalanx/config"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// adamPart is the number of elements one thread updates at least.
const adamPart = 1 << 16

// Adam is AdamW with decoupled decay over what a rank updates: all of its parameters, or with a sharded optimizer its
// slices of them. It has moments for these elements only.
type Adam[T tensor.Float] struct {
	cfg   config.Optimizer
	held  []held[T]
	steps int
	pow1  float64 // β1^steps
	pow2  float64
}

// held is a piece with its gradient.
type held[T tensor.Float] struct {
	Piece[T]
	grad []T
}

// NewAdam allocates the moments.
func NewAdam[T tensor.Float](cfg config.Optimizer, g *Grads[T]) *Adam[T] {
	a := &Adam[T]{cfg: cfg, pow1: 1, pow2: 1}
	for _, q := range g.params.List {
		for _, b := range g.buckets {
			b.eachOwn(func(p *nn.Param[T], from, to int) {
				if p == q {
					a.hold(p, from, to)
				}
			})
		}
	}
	for i := range a.held {
		h := &a.held[i]
		h.ExpAvg, h.ExpAvgSq = make([]T, len(h.grad)), make([]T, len(h.grad))
	}
	return a
}

// hold adds a piece; one that goes on where the last one ends becomes a part of it.
func (a *Adam[T]) hold(p *nn.Param[T], from, to int) {
	if n := len(a.held); n > 0 && a.held[n-1].Spec == &p.Spec && a.held[n-1].To == from {
		from = a.held[n-1].From
		a.held = a.held[:n-1]
	}
	a.held = append(a.held, held[T]{grad: p.Grad[from:to:to], Piece: Piece[T]{Spec: &p.Spec, From: from, To: to, Weight: p.Data[from:to:to]}})
}

// Clip is the factor that brings a norm down to clip_grad; 1 if it is below or clipping is off.
func (a *Adam[T]) Clip(norm float64) float64 {
	if a.cfg.ClipGrad <= 0 {
		return 1
	}
	return math.Min(1, a.cfg.ClipGrad/(norm+1e-6))
}

// decays reports whether decoupled weight decay applies to a parameter.
func (a *Adam[T]) decays(s *nn.Spec) bool {
	return s.Decay() || a.cfg.ApplyWDToQKLayernorm && (strings.HasSuffix(s.Name, ".q_norm.weight") || strings.HasSuffix(s.Name, ".k_norm.weight"))
}

// Step updates what this rank holds with each group's clip factor. A step without tokens is an ordinary step. middle is
// called when half of it has moved; nil: nobody looks.
func (a *Adam[T]) Step(r Rates, norms map[string]float64, middle func()) {
	a.count()
	if middle == nil {
		middle = func() {}
	}
	if len(a.held) == 0 {
		middle()
	}
	for i, x := range a.held {
		h := kernel.AdamWStep[T]{LR: T(r.LR), Beta1: T(a.cfg.AdamBeta1), Beta2: T(a.cfg.AdamBeta2), Eps: T(a.cfg.AdamEps),
			OneMinusBeta1: T(1 - a.cfg.AdamBeta1), OneMinusBeta2: T(1 - a.cfg.AdamBeta2),
			BiasCorr1: T(1 - a.pow1), BiasCorr2: T(1 - a.pow2), GradScale: T(a.Clip(norms[x.Spec.Group]))}
		if x.Spec.EmbeddingOrOutput {
			h.LR = T(r.DecoupledLR)
		}
		if a.decays(x.Spec) {
			h.WeightDecay = T(r.WeightDecay)
		}
		kernel.Parallel(len(x.grad), adamPart, func(from, to int) {
			kernel.AdamW(x.Weight[from:to], x.grad[from:to], x.ExpAvg[from:to], x.ExpAvgSq[from:to], h)
		})
		if i == (len(a.held)-1)/2 {
			middle()
		}
	}
}
