package mtp_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/nn"
)

// drawPlain draws a model without auxiliary losses, at least depths depths.
func drawPlain(t *rapid.T, depths int) config.Model {
	m := trial.DrawModel(t)
	m.MoEAuxLossCoeff, m.MoEZLossCoeff = nil, 0
	m.MTPNumLayers = max(m.MTPNumLayers, depths)
	if m.MTPNumLayers > 0 {
		m.MTPLossScaling = 0.7
	}
	return m
}

func run(t require.TestingT, j *trial.Job, l trial.Layout, seed uint64) *trial.Outcome {
	out, err := j.Run(l, inproc.Options{Seed: seed})
	require.NoError(t, err)
	return out
}

// rows are the rows of a batch as batches of some rows each.
func rows(mb *nn.Microbatch, each int) (parts []*nn.Microbatch) {
	for from := 0; from < mb.B; from += each {
		a, b := from*mb.S, (from+each)*mb.S
		p := &nn.Microbatch{B: each, S: mb.S, IDs: mb.IDs[a:b], Labels: mb.Labels[a:b], Positions: mb.Positions[a:b],
			Loss: &nn.LossMask{B: each, S: mb.S, AllOnes: mb.Loss.AllOnes}}
		if !mb.Loss.AllOnes {
			p.Loss.Weight = mb.Loss.Weight[a:b]
		}
		if mb.Pad != nil {
			p.Pad = &nn.PadMask{B: each, S: mb.S, Pad: mb.Pad.Pad[a:b]}
		}
		if mb.Docs != nil {
			p.Docs = mb.Docs[from : from+each]
		}
		if mb.Embeddings != nil {
			h := len(mb.Embeddings) / len(mb.IDs)
			p.Embeddings = mb.Embeddings[a*h : b*h]
		}
		parts = append(parts, p)
	}
	return parts
}

// Per-token loss: how the rows of a step are split in microbatches and over replicas changes no gradient, of the LM or
// of a depth (denominators are those of the whole step), unequal counts or not.
func TestI12_SplittingABatchChangesNothingPerToken(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		m := drawPlain(t, 0)
		m.CalculatePerTokenLoss = true
		s := trial.DrawShape(t, m)
		s.B = 4
		whole := trial.DrawBatch(t, s)
		job := func(each int) *trial.Job {
			return &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 5, Batches: [][]*nn.Microbatch{rows(whole, each)}}
		}
		want := run(t, job(4), trial.Single, 1)
		for _, each := range []int{1, 2, 4} {
			for _, dp := range []int{1, 2, 4} {
				if each*dp > 4 {
					continue
				}
				got := run(t, job(each), trial.Layout{TP: 1, CP: 1, DP: dp}, 1)
				sums := want.Steps[0].Sums
				sums.Balancing, sums.ZLoss = got.Steps[0].Sums.Balancing, got.Steps[0].Sums.ZLoss // means of microbatches
				expect := trial.Step{Sums: sums, GradNorm: want.Steps[0].GradNorm, Grads: want.Steps[0].Grads}
				require.NoError(t, got.Steps[0].Same(&expect, "", 1e-10), "%d rows a microbatch, dp %d", each, dp)
			}
		}
	})
}

// Without per-token loss the step is the mean over microbatches of their own means: the gradient of a step of two is
// the mean of the gradients of steps of one.
func TestMicrobatchesAreAveraged(t *testing.T) {
	property.Check(t, 10, func(t *rapid.T) {
		m := drawPlain(t, 0)
		m.CalculatePerTokenLoss = false
		s := trial.DrawShape(t, m)
		a, b := trial.DrawBatch(t, s), trial.DrawBatch(t, s)
		grads := func(step ...*nn.Microbatch) map[string][]float64 {
			j := &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 5, Batches: [][]*nn.Microbatch{step}}
			return run(t, j, trial.Single, 1).Steps[0].Grads
		}
		require.NoError(t, trial.NearAll("gradient of", grads(a, b), combined(0.5, grads(a), 0.5, grads(b)), 1e-10))
	})
}

// combined is p·a + q·b.
func combined(p float64, a map[string][]float64, q float64, b map[string][]float64) map[string][]float64 {
	out := map[string][]float64{}
	for name := range a {
		out[name] = make([]float64, len(a[name]))
		for i := range a[name] {
			out[name][i] = p*a[name][i] + q*b[name][i]
		}
	}
	return out
}

// A mask of ones in words and in numbers is the same, and so is a mask withheld from the depths to one of ones.
func TestI13_NoLossMaskIsAMaskOfOnes(t *testing.T) {
	property.Check(t, 6, func(t *rapid.T) {
		m := trial.DrawModel(t)
		s := trial.DrawShape(t, m)
		j := trial.DrawJob(t, m, s, 1, 2)
		ones := func(mb *nn.Microbatch) { mb.Loss = &nn.LossMask{B: s.B, S: s.S, AllOnes: true} }
		numbers := func(mb *nn.Microbatch) {
			mb.Loss = &nn.LossMask{B: s.B, S: s.S, Weight: slices.Repeat([]float32{1}, s.B*s.S)}
		}
		for _, l := range someLayouts {
			want := run(t, eachBatch(j, numbers), l, 1)
			require.NoError(t, run(t, eachBatch(j, ones), l, 2).Same(want, 0))
			withheld := eachBatch(j, ones)
			withheld.Model.MTPLossMask = "withheld"
			require.NoError(t, run(t, withheld, l, 3).Same(want, 0))
		}
		// Withheld, the depths' counts do not depend on the mask.
		withheld := *j
		withheld.Model.MTPLossMask = "withheld"
		want := run(t, eachBatch(j, ones), trial.Single, 1).Steps[0].Sums.MTPTokens
		require.Equal(t, want, run(t, &withheld, trial.Single, 1).Steps[0].Sums.MTPTokens)
	})
}

// A loss mask of zeros has no loss and exactly no gradient. The LM's loss does not know of depths and their factor.
func TestI13_DepthsDoNotEnterTheLMLoss(t *testing.T) {
	property.Check(t, 6, func(t *rapid.T) {
		m := drawPlain(t, 1)
		s := trial.DrawShape(t, m)
		j := trial.DrawJob(t, m, s, 1, 2)
		nothing := eachBatch(j, func(mb *nn.Microbatch) { mb.Loss = &nn.LossMask{B: s.B, S: s.S, Weight: make([]float32, s.B*s.S)} })
		for _, l := range someLayouts {
			out := run(t, nothing, l, 1)
			sums := out.Steps[0].Sums
			sums.Balancing, sums.ZLoss = [3]float64{}, 0 // of experts: coefficients are 0, the figures are not
			isZero(t, &trial.Step{Sums: sums, GradNorm: out.Steps[0].GradNorm, Grads: out.Steps[0].Grads})
			require.Equal(t, make([]int64, m.MTPNumLayers), sums.MTPTokens)
			off, strong := *j, *j
			off.Model.MTPNumLayers = 0
			strong.Model.MTPLossScaling = 5
			want := run(t, j, l, 1).Steps[0].Sums
			for _, other := range []*trial.Job{&off, &strong} {
				got := run(t, other, l, 2).Steps[0].Sums
				require.Equal(t, want.LMLoss, got.LMLoss)
				require.Equal(t, want.LMTokens, got.LMTokens)
			}
		}
	})
}

// The gradient is linear in the factor, and with factor 0 the trunk does not know of the depths.
func TestI14_GradientIsLinearInTheFactor(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		j := trial.DrawJob(t, drawPlain(t, 1), trial.Shape{}, 0, 0)
		s := trial.DrawShape(t, j.Model)
		j.Batches = [][]*nn.Microbatch{{trial.DrawBatch(t, s), trial.DrawBatch(t, s)}}
		l := rapid.SampledFrom(someLayouts).Draw(t, "layout")
		grads := func(factor float64, depths int) map[string][]float64 {
			k := *j
			k.Model.MTPLossScaling, k.Model.MTPNumLayers = factor, depths
			return run(t, &k, l, 1).Steps[0].Grads
		}
		d := j.Model.MTPNumLayers
		none, one, three := grads(0, d), grads(1, d), grads(3, d)
		require.NoError(t, trial.NearAll("gradient of", three, combined(3, one, -2, none), 1e-9))
		off := grads(0, 0)
		for name := range none {
			if off[name] == nil {
				require.NoError(t, trial.Near(name, none[name], make([]float64, len(none[name])), 0), "a depth learns nothing with factor 0")
				delete(none, name)
			}
		}
		require.NoError(t, trial.NearAll("gradient of", none, off, 1e-12))
	})
}

// D copies of one layer with equal weights: their gradients add to the shared layer's, auxiliary losses weighing 1/D.
func TestI15_RepeatedLayerIsTheSumOfItsCopies(t *testing.T) {
	property.Check(t, 10, func(t *rapid.T) {
		m := drawMoE(t)
		m.MTPNumLayers, m.MTPLossScaling, m.MTPUseRepeatedLayer, m.MTPDetachHeads = rapid.IntRange(2, 3).Draw(t, "copies"), 0.7, true, false
		j := trial.DrawJob(t, m, trial.DrawShape(t, m), 1, 2)
		require.NoError(t, j.Gains())
		step := func(aux float64, repeated bool) trial.Step {
			k := *j
			k.Model.MoEAuxLossCoeff, k.Model.MoEZLossCoeff, k.Model.MTPUseRepeatedLayer = config.Numbers{aux}, aux/3, repeated
			if !repeated {
				k.Weights = withCopies(j.Weights, m)
			}
			s := run(t, &k, trial.Single, 1).Steps[0]
			s.Grads = withoutCopies(s.Grads, m)
			return s
		}
		shared, copies := step(0, true), step(0, false)
		copies.Sums.Balancing, copies.Sums.ZLoss = shared.Sums.Balancing, shared.Sums.ZLoss // means over another number of modules
		require.NoError(t, copies.SameFigures(&shared, "", 1e-12))
		require.NoError(t, trial.NearAll("gradient of", copies.Grads, shared.Grads, 1e-10))
		// What the auxiliary losses of the depths add to the layer.
		got := combined(1, step(0.3, true).Grads, -1, shared.Grads)
		want := combined(1, step(0.3, false).Grads, -1, copies.Grads)
		for name := range want {
			if strings.HasPrefix(name, layerName(m, 0)) {
				part := combined(1/float64(m.MTPNumLayers), map[string][]float64{name: want[name]}, 0, want)
				require.NoError(t, trial.Near("part of "+name, got[name], part[name], 1e-9))
			}
		}
	})
}

// layerName is the prefix of depth k+1's parameters.
func layerName(m config.Model, k int) string { return fmt.Sprintf("model.layers.%d.", m.NumLayers+k) }

// withCopies gives every depth the weights of the shared layer.
func withCopies(shared map[string][]float64, m config.Model) map[string][]float64 {
	out := maps.Clone(shared)
	for name, w := range shared {
		for k := 1; k < m.MTPNumLayers; k++ {
			if rest, ok := strings.CutPrefix(name, layerName(m, 0)); ok {
				out[layerName(m, k)+rest] = w
			}
		}
	}
	return out
}

// withoutCopies adds the gradients of all depths' layers to those of the first.
func withoutCopies(grads map[string][]float64, m config.Model) map[string][]float64 {
	sum := maps.Clone(grads)
	for name := range grads {
		for k := 1; k < m.MTPNumLayers; k++ {
			if rest, ok := strings.CutPrefix(name, layerName(m, k)); ok {
				first := layerName(m, 0) + rest
				sum[first] = slices.Clone(sum[first])
				for i, v := range sum[name] {
					sum[first][i] += v
				}
				delete(sum, name)
			}
		}
	}
	return sum
}

// Detached depths leave trunk, embedding and head as if they were not there, to the bit.
func TestI16_DetachedDepthsLeaveTheTrunkAlone(t *testing.T) {
	property.Check(t, 10, func(t *rapid.T) {
		m := drawPlain(t, 1)
		m.MTPDetachHeads = true
		trial.DrawExperts(t, &m)
		s := trial.DrawShape(t, m)
		s.Pad = true
		j := trial.DrawJob(t, m, s, 2, 2)
		off := *j
		off.Model.MTPNumLayers = 0
		for _, l := range someLayouts {
			got, want := run(t, j, l, 1), run(t, &off, l, 2)
			for i := range want.Steps {
				for name, g := range want.Steps[i].Grads {
					require.NoError(t, trial.Near(name, got.Steps[i].Grads[name], g, 0), "%s", l)
				}
				require.Equal(t, want.Steps[i].GradNorm, got.Steps[i].GradNorm, "depths have a norm of their own")
			}
		}
	})
}

// The gradient is that of the objective, put together here from recorded sums and from counts
// by arithmetic on lengths: finite differences along a random direction of all weights.
func TestI19_GradientOfTheObjective(t *testing.T) {
	property.Check(t, 25, func(t *rapid.T) {
		m := trial.DrawModel(t)
		m.MTPDetachHeads = false
		if m.NumMoEExperts > 0 {
			m.MoEAuxLossCoeff, m.MoEZLossCoeff = config.Numbers{0.3}, 0.1
		}
		j := trial.DrawJob(t, m, trial.DrawShape(t, m), 1, 2)
		j.Wants = isStatistic
		require.NoError(t, j.Gains())
		grads, rng := run(t, j, trial.Single, 1).Steps[0].Grads, rand.New(rand.NewPCG(j.Seed, 7))
		direction, slope := map[string][]float64{}, 0.0
		for _, name := range slices.Sorted(maps.Keys(grads)) {
			for _, g := range grads[name] {
				d := rng.NormFloat64()
				direction[name], slope = append(direction[name], d), slope+g*d
			}
		}
		const eps = 1e-6
		at := func(eps float64) float64 {
			moved := *j
			moved.Weights = combined(1, j.Weights, eps, direction)
			return objective(t, &moved)
		}
		require.InDelta(t, (at(eps)-at(-eps))/(2*eps), slope, 1e-6*math.Max(1, math.Abs(slope)))
	})
}

// objective is the scalar of a job's first step.
func objective(t require.TestingT, j *trial.Job) (total float64) {
	out, m := run(t, j, trial.Single, 1), j.Model
	n := float64(len(j.Batches[0]))
	figure := func(name string, mb int) float64 {
		v, err := out.Get(name, 0, mb)
		require.NoError(t, err)
		return v.Data[0]
	}
	for k := range m.MTPNumLayers + 1 {
		scope, weight := "lm", 1.0
		if k > 0 {
			scope, weight = fmt.Sprintf("mtp.%d", k), m.MTPLossScaling/float64(m.MTPNumLayers)
		}
		sum, counted := 0.0, 0.0
		for i, mb := range j.Batches[0] {
			loss, tokens := figure(scope+".loss_sum", i), countedLabels(mb, k)
			require.Equal(t, tokens, figure(scope+".tokens", i))
			sum, counted = sum+loss, counted+tokens
			if !m.CalculatePerTokenLoss {
				total += weight * loss / math.Max(tokens, 1) / n
			}
		}
		if m.CalculatePerTokenLoss {
			total += weight * sum / math.Max(counted, 1)
		}
	}
	for _, key := range out.Record.Keys() {
		if strings.HasSuffix(key.Name, ".router.aux_loss") {
			total += m.MoEAuxLossCoeff.At(0) * figure(key.Name, key.Microbatch) / n
		}
		if strings.HasSuffix(key.Name, ".router.z_loss") {
			total += m.MoEZLossCoeff * figure(key.Name, key.Microbatch) / n
		}
	}
	return total
}

// countedLabels is the number of labels that count after k rolls.
func countedLabels(mb *nn.Microbatch, k int) (n float64) {
	weights := make([]float32, mb.B*mb.S)
	for i := range weights {
		weights[i] = mb.Loss.At(i/mb.S, i%mb.S)
	}
	if k > 0 {
		weights = trial.Rolled(mb.Docs, mb.B, mb.S, 1, k, weights, 0)
	}
	for _, w := range weights {
		n += float64(w)
	}
	return n
}
