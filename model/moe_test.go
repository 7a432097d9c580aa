package model_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
)

// mixture is a small model with experts in its last layer and in its depths.
func mixture() config.Model {
	return config.Model{NumLayers: 1, HiddenSize: 8, NumAttentionHeads: 4, NumQueryGroups: 4, KVChannels: 2, FFNHiddenSize: 6, PaddedVocabSize: 12,
		LayernormEpsilon: 1e-5, RotaryBase: 100, InitMethodStd: 0.4, GatedLinearUnit: true, NumMoEExperts: 4, MoEFFNHiddenSize: 4, MoERouterTopK: 2,
		MoERouterScore: "softmax", MoERouterBalancing: config.Words{"none"}, MoEAuxLossCoeff: config.Numbers{0}}
}

// drawMixture draws everything that a router and its experts can be.
func drawMixture(t *rapid.T) config.Model {
	flag, m := rapid.Bool(), mixture()
	m.NumLayers = rapid.IntRange(1, 2).Draw(t, "layers")
	m.MoELayerFreq.Pattern = append(make([]int, m.NumLayers-1), 1)
	m.GatedLinearUnit, m.MTPNumLayers, m.MTPLossScaling = flag.Draw(t, "gated"), rapid.IntRange(0, 2).Draw(t, "depths"), 0.5
	m.MTPUseRepeatedLayer, m.CalculatePerTokenLoss = flag.Draw(t, "repeated"), flag.Draw(t, "per token")
	m.MoERouterScore = rapid.SampledFrom([]string{"softmax", "sigmoid", "sqrtsoftplus"}).Draw(t, "score")
	m.MoERouterTopK = rapid.IntRange(1, 2).Draw(t, "topk")
	m.MoERouterPreSoftmax = m.MoERouterTopK == 1 || flag.Draw(t, "pre")
	if flag.Draw(t, "groups") {
		m.MoERouterNumGroups, m.MoERouterGroupTopK = 2, 1
	}
	m.MoERouterFusion = m.MoERouterScore == "softmax" && m.MoERouterNumGroups == 0 && flag.Draw(t, "fused")
	m.MoERouterEnableExpertBias = m.MoERouterScore != "softmax" && flag.Draw(t, "bias")
	m.MoERouterBiasUpdateRate = 0.05
	m.MoERouterBalancing, m.MoEAuxLossCoeff = nil, nil
	for i, kind := range []string{"aux_loss", "seq_aux_loss", "global_aux_loss"} {
		if flag.Draw(t, kind) {
			m.MoERouterBalancing, m.MoEAuxLossCoeff = append(m.MoERouterBalancing, kind), append(m.MoEAuxLossCoeff, 0.2+0.1*float64(i))
		}
	}
	m.MoESeqAuxPerRow, m.MoEZLossCoeff = flag.Draw(t, "per row"), rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "z")
	m.MoERouterTopKScaling, m.MoEInputJitterEps = rapid.SampledFrom([]float64{0, 2.5}).Draw(t, "scaling"), rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "jitter")
	m.MoERouterForceLoadBalancing = rapid.IntRange(0, 9).Draw(t, "random experts") == 0
	m.MoESharedExpertSize = rapid.SampledFrom([]int{0, 4}).Draw(t, "shared")
	m.MoESharedExpertGate = m.MoESharedExpertSize > 0 && flag.Draw(t, "shared gate")
	if rapid.IntRange(0, 2).Draw(t, "capacity") == 0 {
		m.MoEExpertCapacityFactor, m.MoETokenDropPolicy = 0.8, rapid.SampledFrom([]string{"probs", "position"}).Draw(t, "policy")
	}
	m.MoEDropPaddingTokens = flag.Draw(t, "drop padding")
	m.MoEPadExpertInput = m.MoEExpertCapacityFactor > 0 && !m.MoEDropPaddingTokens && flag.Draw(t, "pad to capacity")
	trial.DrawDropout(t, &m)
	return m
}

// spread is a layout with experts spread over it.
type spread struct {
	trial.Layout
	ep, etp int
}

func (s spread) String() string { return fmt.Sprintf("%s ep%d etp%d", s.Layout, s.ep, s.etp) }

func spreads() []spread {
	var all []spread
	for _, l := range trial.Layouts() {
		for _, e := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {4, 2}} {
			if n := l.TP * l.CP * l.DP; e[0]*e[1] == 1 || n%(e[0]*e[1]) == 0 && (l.TP == 1 || l.SP) {
				all = append(all, spread{l, e[0], e[1]})
			}
		}
	}
	return all
}

// on is the job with its experts spread.
func on(j *trial.Job, s spread, dispatcher string) *trial.Job {
	k := *j
	k.Model.ExpertParallel, k.Model.ExpertTensorParallel, k.Model.MoETokenDispatcher = s.ep, s.etp, dispatcher
	return &k
}

// I11: whatever the layout, losses, gradients, norms and weights, with the expert bias, are those of one rank. Global
// balancing pools replicas, and depends on their number: with it the reference has one rank for each.
func TestI11_ExpertsOnAnyLayout(t *testing.T) {
	property.Check(t, 60, func(t *rapid.T) {
		m := drawMixture(t)
		shape := trial.DrawShape(t, m)
		job := trial.DrawJob(t, m, shape, 2, 2)
		s := rapid.SampledFrom(spreads()).Draw(t, "layout")
		reference := trial.Single
		if m.MoERouterBalancing.Has("global_aux_loss") {
			reference.DP = s.DP
		}
		want, err := job.Run(reference, inproc.Options{})
		require.NoError(t, err)
		dispatcher := rapid.SampledFrom([]string{"alltoall", "allgather", "flex"}).Draw(t, "dispatcher")
		got, err := on(job, s, dispatcher).Run(s.Layout, inproc.Options{Seed: 1, Overtake: true})
		require.NoError(t, err)
		require.NoError(t, got.Same(want, 1e-8), s)
	})
}

// Recomputation, full or selective, changes no bit of a run: gradients, figures, weights, expert biases.
func TestRecomputationChangesNoBit(t *testing.T) {
	property.Check(t, 25, func(t *rapid.T) {
		m := drawMixture(t)
		job := trial.DrawJob(t, m, trial.DrawShape(t, m), 2, 2)
		s := rapid.SampledFrom(spreads()).Draw(t, "layout")
		plain := on(job, s, rapid.SampledFrom([]string{"alltoall", "allgather", "flex"}).Draw(t, "dispatcher"))
		again := *plain
		again.Model.RecomputeGranularity = rapid.SampledFrom([]string{"full", "selective"}).Draw(t, "granularity")
		want, err := plain.Run(s.Layout, inproc.Options{})
		require.NoError(t, err)
		got, err := again.Run(s.Layout, inproc.Options{Seed: 1})
		require.NoError(t, err)
		require.NoError(t, got.Same(want, 0))
	})
}

// Tokens that are alike have probabilities that differ in their last bits, and otherwise on every layout; where a capacity
// takes some of them, it takes the first on all.
func TestCapacityOfAlikeTokens(t *testing.T) {
	property.Check(t, 60, func(t *rapid.T) {
		m := mixture()
		m.NumLayers, m.MoELayerFreq.Pattern, m.MTPNumLayers, m.MTPLossScaling = 2, []int{0, 1}, 1, 0.5
		m.MoEExpertCapacityFactor, m.MoETokenDropPolicy = 0.5, "probs"
		m.MoERouterScore = rapid.SampledFrom([]string{"softmax", "sigmoid"}).Draw(t, "score")
		m.MoEPadExpertInput = rapid.Bool().Draw(t, "pad to capacity")
		job := trial.DrawJob(t, m, trial.Shape{B: 2, S: 9, V: m.PaddedVocabSize, H: m.HiddenSize}, 1, 2)
		for _, mb := range job.Batches[0] {
			for i := range mb.IDs {
				mb.IDs[i] = 5
			}
		}
		job.Wants = func(name string, _ int) bool { return strings.HasSuffix(name, ".routing_map") }
		job.DType = rapid.SampledFrom([]string{"fp64", "fp32"}).Draw(t, "dtype")
		want, err := job.Run(trial.Single, inproc.Options{})
		require.NoError(t, err)
		s := rapid.SampledFrom(spreads()).Draw(t, "layout")
		got, err := on(job, s, "alltoall").Run(s.Layout, inproc.Options{})
		require.NoError(t, err)
		for mb := range job.Batches[0] {
			for _, scope := range []string{"layer.1", "mtp.1"} {
				expected, err := want.Get(scope+".router.routing_map", 0, mb)
				require.NoError(t, err)
				found, err := got.Get(scope+".router.routing_map", 0, mb)
				require.NoError(t, err)
				require.Equal(t, expected.Data, found.Data, "%s %s", s, scope)
			}
		}
	})
}

// I24: the executed counts of valid tokens add up to K for each, and every bias moved by the rate or stood still: once
// a step for the trunk's router and for each depth of its own, up to D times for one that D depths share.
func TestI24_CountsAndBiases(t *testing.T) {
	property.Check(t, 20, func(t *rapid.T) {
		m := drawMixture(t)
		m.MoERouterScore, m.MoERouterFusion, m.MoERouterEnableExpertBias, m.MoEExpertCapacityFactor = "sigmoid", false, true, 0
		job := trial.DrawJob(t, m, trial.DrawShape(t, m), 1, 2)
		job.Wants = func(name string, _ int) bool {
			return strings.HasSuffix(name, ".tokens_per_expert") || strings.HasSuffix(name, ".valid_tokens")
		}
		s := rapid.SampledFrom(spreads()).Draw(t, "layout")
		out, err := on(job, s, "alltoall").Run(s.Layout, inproc.Options{})
		require.NoError(t, err)
		scopes, uses := map[string][]string{}, m.NumLayers-1
		for k := range m.MTPNumLayers {
			uses++
			if m.MTPUseRepeatedLayer {
				uses = m.NumLayers
			}
			bias := fmt.Sprintf("model.layers.%d.mlp.gate.e_score_correction_bias", uses)
			scopes[bias] = append(scopes[bias], fmt.Sprintf("mtp.%d", k+1))
		}
		scopes[fmt.Sprintf("model.layers.%d.mlp.gate.e_score_correction_bias", m.NumLayers-1)] = []string{fmt.Sprintf("layer.%d", m.NumLayers-1)}
		for bias, uses := range scopes {
			moved := make([]float64, m.NumMoEExperts)
			for _, scope := range uses {
				total, sum := make([]float64, m.NumMoEExperts), 0.0
				for mb := range job.Batches[0] {
					counts, err := out.Get(scope+".router.tokens_per_expert", 0, mb)
					require.NoError(t, err)
					valid, err := out.Get(scope+".router.valid_tokens", 0, mb)
					require.NoError(t, err)
					n := 0.0
					for e, v := range counts.Data {
						total[e], n, sum = total[e]+v, n+v, sum+v
					}
					require.Equal(t, float64(m.MoERouterTopK)*valid.Data[0], n, scope)
				}
				for e, n := range total {
					switch mean := sum / float64(len(total)); {
					case n < mean:
						moved[e] += m.MoERouterBiasUpdateRate
					case n > mean:
						moved[e] -= m.MoERouterBiasUpdateRate
					}
				}
			}
			require.Equal(t, moved, out.Weights[bias], bias)
		}
	})
}

// copied gives every depth of its own the weights of the shared one.
func copied(shared map[string][]float64, layers, depths int) map[string][]float64 {
	out, first := map[string][]float64{}, fmt.Sprintf("model.layers.%d.", layers)
	for name, v := range shared {
		out[name] = v
		if rest, ok := strings.CutPrefix(name, first); ok {
			for k := range depths {
				out[fmt.Sprintf("model.layers.%d.%s", layers+k, rest)] = append([]float64(nil), v...)
			}
		}
	}
	return out
}

// I15: a layer that all depths share gets the sum of what copies of their own get; of the auxiliary losses the mean.
func TestI15_RepeatedLayerIsItsCopies(t *testing.T) {
	property.Check(t, 15, func(t *rapid.T) {
		m := drawMixture(t)
		m.MTPNumLayers, m.MTPUseRepeatedLayer, m.MoEInputJitterEps, m.MoERouterEnableExpertBias = rapid.IntRange(2, 3).Draw(t, "depths"), true, 0, false
		m.MoERouterBalancing = config.Words{"aux_loss", "seq_aux_loss"} // global balancing belongs to the module: it runs over depths
		job := trial.DrawJob(t, m, trial.DrawShape(t, m), 1, 2)
		job.Wants = func(name string, _ int) bool { return strings.HasSuffix(name, "_loss") }
		weights, err := job.Initial()
		require.NoError(t, err)
		run := func(repeated bool, aux, z float64) *trial.Outcome {
			k := *job
			k.Model.MTPUseRepeatedLayer, k.Model.MoEAuxLossCoeff, k.Model.MoEZLossCoeff, k.Weights = repeated, config.Numbers{aux, 2 * aux}, z, weights
			if !repeated {
				k.Weights = copied(weights, m.NumLayers, m.MTPNumLayers)
			}
			out, err := k.Run(trial.Single, inproc.Options{})
			require.NoError(t, err)
			return out
		}
		shared, apart := run(true, 0, 0), run(false, 0, 0)
		sharedAux, apartAux := run(true, 0.3, 0.2), run(false, 0.3, 0.2)
		prefix := fmt.Sprintf("model.layers.%d.", m.NumLayers)
		for name, g := range shared.Steps[0].Grads {
			rest, ofDepth := strings.CutPrefix(name, prefix)
			if !ofDepth {
				require.NoError(t, trial.Near(name, apart.Steps[0].Grads[name], g, 1e-11))
				continue
			}
			sum, aux := make([]float64, len(g)), make([]float64, len(g))
			for k := range m.MTPNumLayers {
				own := fmt.Sprintf("model.layers.%d.%s", m.NumLayers+k, rest)
				for i := range g {
					sum[i] += apart.Steps[0].Grads[own][i]
					aux[i] += (apartAux.Steps[0].Grads[own][i] - apart.Steps[0].Grads[own][i]) / float64(m.MTPNumLayers)
				}
			}
			require.NoError(t, trial.Near(name, g, sum, 1e-11))
			for i := range g {
				require.InDelta(t, aux[i], sharedAux.Steps[0].Grads[name][i]-g[i], 1e-11*math.Max(1, math.Abs(g[i])), name)
			}
		}
		for _, q := range []string{"aux_loss", "seq_aux_loss", "z_loss"} {
			for k := range m.MTPNumLayers {
				name := fmt.Sprintf("mtp.%d.router.%s", k+1, q)
				a, err := sharedAux.Get(name, 0, 0)
				require.NoError(t, err)
				b, err := apartAux.Get(name, 0, 0)
				require.NoError(t, err)
				require.InDelta(t, b.Data[0]/float64(m.MTPNumLayers), a.Data[0], 1e-12, name)
			}
		}
	})
}

// B9 of docs/examples.md: what a coefficient adds to gradients is linear in it, and is there.
func TestB9_CoefficientIsDifferentiated(t *testing.T) {
	for _, kind := range []string{"aux_loss", "seq_aux_loss", "global_aux_loss", "z"} {
		t.Run(kind, func(t *testing.T) {
			property.Check(t, 3, func(t *rapid.T) {
				m := mixture()
				job := trial.DrawJob(t, m, trial.Shape{B: 2, S: 7, V: m.PaddedVocabSize, H: m.HiddenSize}, 1, 2)
				run := func(coeff float64) []float64 {
					k := *job
					if kind == "z" {
						k.Model.MoEZLossCoeff = coeff
					} else {
						k.Model.MoERouterBalancing, k.Model.MoEAuxLossCoeff = config.Words{kind}, config.Numbers{coeff}
					}
					out, err := k.Run(trial.Single, inproc.Options{})
					require.NoError(t, err)
					return out.Steps[0].Grads["model.layers.0.mlp.gate.weight"]
				}
				none, once, twice := run(0), run(0.01), run(0.02)
				most := 0.0
				for i := range none {
					most = max(most, math.Abs(once[i]-none[i]))
					require.InDelta(t, 2*(once[i]-none[i]), twice[i]-none[i], 1e-12)
				}
				require.Greater(t, most, 1e-6)
			})
		})
	}
}
