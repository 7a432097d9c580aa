package oracle

import (
	"math"

	"phalanx/config"
	"phalanx/model"
)

// Reach is how far gradients that agree within a tolerance may lead Adam apart, element by element.
//
// Adam divides a gradient by its own size: an element whose gradient is rounding alone moves as far as one that learns,
// in a direction that the order of a sum decides. So weights can agree only as well as what they were made of. With N the
// difference that a comparison of the gradients lets pass (tolerance · largest element, as everywhere) and
// u = m̂/(√v̂+ε) an element's update, a step's updates differ by at most
//
//	lr · min(2, (1+|u|) · N/(√v̂+ε))
//
// to first order: m̂ and √v̂ are means of gradients and of their squares, and move by at most N each; and an update is at most
// about lr (Kingma & Ba 2015, §2.1), which is all that is known where √v̂+ε is no more than N. The sum over the steps is the
// reach. Where a gradient is far above N that is about the tolerance itself, so that a wrong update shows; where it is
// below, the weight may be anywhere that lr·steps allows.
type Reach struct {
	cfg        config.Optimizer
	tol        float64
	pow1, pow2 float64 // β^steps
	params     map[string]*reach
}

// reach is one parameter's.
type reach struct {
	m, v  []float64 // Adam's moments, not corrected
	noise float64   // N, the largest so far
	sum   []float64
}

// NewReach begins before the first step. tol is the tolerance of gradients.
func NewReach(cfg config.Optimizer, tol float64) *Reach {
	return &Reach{cfg: cfg, tol: tol, pow1: 1, pow2: 1, params: map[string]*reach{}}
}

// Add takes the gradients of the next step, whole fp64 tensors before clipping, and its learning rate. A step whose norm is
// not finite moves nothing: it is skipped, or everything is NaN from there on.
func (r *Reach) Add(lr float64, grads []model.ShardView) {
	clip, finite := r.clips(grads)
	if !finite {
		return
	}
	r.pow1 *= r.cfg.AdamBeta1
	r.pow2 *= r.cfg.AdamBeta2
	for _, g := range grads {
		p := r.params[g.Spec.Name]
		if p == nil {
			n := len(g.F64)
			p = &reach{m: make([]float64, n), v: make([]float64, n), sum: make([]float64, n)}
			r.params[g.Spec.Name] = p
		}
		r.step(p, lr, clip[g.Spec.Group], g.F64)
	}
}

// clips is the factor that brings each group's norm down to clip_grad; false if one is not finite.
func (r *Reach) clips(grads []model.ShardView) (factor map[string]float64, finite bool) {
	factor = map[string]float64{}
	for _, g := range grads {
		for _, v := range g.F64 {
			factor[g.Spec.Group] += v * v
		}
	}
	for group, squares := range factor {
		if math.IsNaN(squares) || math.IsInf(squares, 0) {
			return nil, false
		}
		factor[group] = 1
		if r.cfg.ClipGrad > 0 {
			factor[group] = math.Min(1, r.cfg.ClipGrad/(math.Sqrt(squares)+1e-6))
		}
	}
	return factor, true
}

// step adds one step of one parameter.
func (r *Reach) step(p *reach, lr, clip float64, grad []float64) {
	p.noise = math.Max(p.noise, r.tol*clip*scaleOf(grad))
	b1, b2 := r.cfg.AdamBeta1, r.cfg.AdamBeta2
	for i, g := range grad {
		g *= clip
		p.m[i] = b1*p.m[i] + (1-b1)*g
		p.v[i] = b2*p.v[i] + (1-b2)*g*g
		size := math.Sqrt(p.v[i]/(1-r.pow2)) + r.cfg.AdamEps
		switch {
		case p.noise == 0:
		case size <= p.noise:
			p.sum[i] += lr * 2
		default:
			update := math.Abs(p.m[i]) / (1 - r.pow1) / size
			p.sum[i] += lr * math.Min(2, (1+update)*p.noise/size)
		}
	}
}

// Of is the reach of every element of a parameter; nil if no gradient of that name came. A nil Reach has none.
func (r *Reach) Of(name string) []float64 {
	if r == nil || r.params[name] == nil {
		return nil
	}
	return r.params[name].sum
}
