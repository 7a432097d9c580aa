package oracle

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/model"
	"phalanx/nn"
)

// adamRun is the weights that plain AdamW, written down as in its paper, makes of gradients by step.
type adamRun struct {
	lr, b1, b2, eps, decay float64
	uncorrected            bool // a bug: no bias correction of the second moment
}

func (a adamRun) weights(start []float64, grads [][]float64) []float64 {
	w := append([]float64(nil), start...)
	for i := range w {
		m, v := 0.0, 0.0
		for t, g := range grads {
			m, v = a.b1*m+(1-a.b1)*g[i], a.b2*v+(1-a.b2)*g[i]*g[i]
			second := v / (1 - math.Pow(a.b2, float64(t+1)))
			if a.uncorrected {
				second = v
			}
			w[i] -= a.lr * (a.decay*w[i] + m/(1-math.Pow(a.b1, float64(t+1)))/(math.Sqrt(second)+a.eps))
		}
	}
	return w
}

// trial is gradients of a few steps whose elements span twelve orders of magnitude, and weights.
func trial(rng *rand.Rand, n, steps int) (start []float64, grads [][]float64) {
	size := make([]float64, n)
	for i := range n {
		size[i] = math.Pow(10, -12*rng.Float64())
		start = append(start, rng.NormFloat64())
	}
	size[0] = 1
	for range steps {
		g := make([]float64, n)
		for i := range g {
			g[i] = size[i] * (0.5 + rng.Float64()) * float64(1-2*rng.IntN(2))
		}
		grads = append(grads, g)
	}
	return start, grads
}

func reachOf(cfg config.Optimizer, tol, lr float64, grads [][]float64) *Reach {
	r := NewReach(cfg, tol)
	for _, g := range grads {
		r.Add(lr, []model.ShardView{{Spec: &nn.Spec{Name: "w"}, F64: g}})
	}
	return r
}

// TestReachCoversNoise: gradients within half the tolerance give weights within the reach, though many elements are noise.
func TestReachCoversNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	a := adamRun{lr: 0.01, b1: 0.9, b2: 0.999, eps: 1e-15, decay: 0.1}
	cfg := config.Optimizer{AdamBeta1: a.b1, AdamBeta2: a.b2, AdamEps: a.eps}
	for _, tol := range []float64{1e-9, 1e-4} {
		apart := 0
		for range 50 {
			start, grads := trial(rng, 40, 1+rng.IntN(6))
			noisy := make([][]float64, len(grads))
			for s, g := range grads {
				for _, v := range g {
					noisy[s] = append(noisy[s], v+tol/2*scaleOf(g)*(2*rng.Float64()-1))
				}
			}
			want, got := a.weights(start, grads), a.weights(start, noisy)
			if differ(got, want, tol, nil) != nil {
				apart++
			}
			require.Nil(t, differ(got, want, tol, reachOf(cfg, tol, a.lr, grads).Of("w")))
		}
		require.Greater(t, apart, 25, "without the reach rounding is called a difference")
	}
}

// TestReachShowsBugs: a wrong optimizer is found in the elements that learn.
func TestReachShowsBugs(t *testing.T) {
	right := adamRun{lr: 0.01, b1: 0.9, b2: 0.999, eps: 1e-8, decay: 0.1}
	cfg := config.Optimizer{AdamBeta1: right.b1, AdamBeta2: right.b2, AdamEps: right.eps}
	for name, bug := range map[string]func(*adamRun){
		"no decay":       func(a *adamRun) { a.decay = 0 },
		"no correction":  func(a *adamRun) { a.uncorrected = true },
		"learning rate":  func(a *adamRun) { a.lr *= 1.001 },
		"first moment":   func(a *adamRun) { a.b1 = 0.91 },
		"second moment":  func(a *adamRun) { a.b2 = 0.9 },
		"eps of another": func(a *adamRun) { a.eps = 1e-4 },
	} {
		for _, tol := range []float64{1e-9, 1e-6} {
			start, grads := trial(rand.New(rand.NewPCG(3, 1)), 40, 3)
			wrong := right
			bug(&wrong)
			reach := reachOf(cfg, tol, right.lr, grads).Of("w")
			require.NotNil(t, differ(wrong.weights(start, grads), right.weights(start, grads), tol, reach), "%s at %g", name, tol)
		}
	}
}

// TestReachByHand: one step, tolerance 1e-3, lr 0.01, clipped to half: an element at the largest gradient, one at a
// thousandth of it, one without. |u| is 1, 1 and 0; N/√v̂ is 1e-3, 1 and infinite.
func TestReachByHand(t *testing.T) {
	cfg := config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.999, ClipGrad: 2}
	r := reachOf(cfg, 1e-3, 0.01, [][]float64{{4, 4e-3, 0}})
	require.InDeltaSlice(t, []float64{0.01 * 2e-3, 0.01 * 2, 0.01 * 2}, r.Of("w"), 1e-12)
	require.Nil(t, r.Of("other"))
	require.Equal(t, r.Of("w"), reachOf(cfg, 1e-3, 0.01, [][]float64{{1, math.NaN(), 0}, {4, 4e-3, 0}, {math.Inf(1), 0, 0}}).Of("w"), "skipped steps")
	require.Equal(t, []float64{0, 0, 0}, reachOf(cfg, 0, 0.01, [][]float64{{4, 4e-3, 0}}).Of("w"), "tolerance 0: the same bits")
	require.Nil(t, (*Reach)(nil).Of("w"))
}

// TestReachOfAClippedGroup: the norm that clips is the group's, over parameters.
func TestReachOfAClippedGroup(t *testing.T) {
	r := NewReach(config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1, ClipGrad: 1}, 1e-3)
	view := func(name, group string, g float64) model.ShardView {
		return model.ShardView{Spec: &nn.Spec{Name: name, Group: group}, F64: []float64{g}}
	}
	r.Add(1, []model.ShardView{view("a", "", 3), view("b", "", 4), view("c", "heads", 0.5)})
	// a: 3/5, N = 1e-3·0.6, u = 0.6/1.6; c is not clipped: N = 1e-3·0.5, u = 0.5/1.5
	require.InDelta(t, (1+0.6/1.6)*0.6e-3/1.6, r.Of("a")[0], 1e-9)
	require.InDelta(t, (1+0.5/1.5)*0.5e-3/1.5, r.Of("c")[0], 1e-9)
}

// A number that is nothing but rounding noise has a tolerance of its own, not a share of itself.
func TestScaleOfNoise(t *testing.T) {
	require.Equal(t, []float64{1, 1, 3, 3}, []float64{Scale(0), Scale(5e-19), Scale(3), Scale(-3)})
}
