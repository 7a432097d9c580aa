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

	"phalanx/collective"
	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/nn"
)

// someLayouts are enough of them to meet every kind of cut.
var someLayouts = []trial.Layout{trial.Single, {TP: 2, CP: 1, DP: 1, SP: true}, {TP: 2, CP: 2, DP: 1}, {TP: 2, CP: 2, DP: 2, SP: true}}

// drawMoE draws a model with experts in the trunk and in the depths, and both auxiliary losses.
func drawMoE(t *rapid.T) config.Model {
	m := trial.DrawModel(t)
	trial.DrawExperts(t, &m)
	m.MoEAuxLossCoeff, m.MoEZLossCoeff = config.Numbers{0.3}, 0.1
	return m
}

// masked is a shape with a padding mask.
func masked(t *rapid.T, m config.Model) trial.Shape {
	s := trial.DrawShape(t, m)
	s.Pad = true
	return s
}

// eachBatch runs f on a copy of every microbatch and returns the job with the copies.
func eachBatch(j *trial.Job, f func(*nn.Microbatch)) *trial.Job {
	out := *j
	out.Batches = nil
	for _, step := range j.Batches {
		var copies []*nn.Microbatch
		for _, mb := range step {
			c := *mb
			f(&c)
			copies = append(copies, &c)
		}
		out.Batches = append(out.Batches, copies)
	}
	return &out
}

// What ids, labels and embeddings say at padding changes no bit of a loss, a statistic, a gradient or a weight.
func TestI6_ContentsOfPaddingDoNotMatter(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		m := drawMoE(t)
		s := masked(t, m)
		j := trial.DrawJob(t, m, s, 2, 2)
		j.DType = rapid.SampledFrom([]string{"fp64", "fp32"}).Draw(t, "dtype")
		j.Wants = isStatistic
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "fuzz"), 0))
		fuzzed := eachBatch(j, func(mb *nn.Microbatch) {
			if mb.Loss.AllOnes { // then padding counts
				return
			}
			mb.IDs, mb.Labels, mb.Embeddings = slices.Clone(mb.IDs), slices.Clone(mb.Labels), slices.Clone(mb.Embeddings)
			for i, pad := range mb.Pad.Pad {
				if pad {
					mb.IDs[i], mb.Labels[i] = int32(rng.IntN(s.V)), int32(rng.IntN(s.V))
					for e := range len(mb.Embeddings) / len(mb.IDs) {
						mb.Embeddings[i*s.H+e] = 3 * rng.NormFloat64()
					}
				}
			}
		})
		for _, l := range someLayouts {
			want, err := j.Run(l, inproc.Options{Seed: 1})
			require.NoError(t, err)
			got, err := fuzzed.Run(l, inproc.Options{Seed: 2})
			require.NoError(t, err)
			require.NoError(t, got.Same(want, 0), "%s", l)
			require.Equal(t, want.Record.Keys(), got.Record.Keys())
			for _, k := range want.Record.Keys() {
				a, err := want.Get(k.Name, k.Step, k.Microbatch)
				require.NoError(t, err)
				b, err := got.Get(k.Name, k.Step, k.Microbatch)
				require.NoError(t, err)
				require.Equal(t, a.Data, b.Data, "%s of step %d microbatch %d, %s", k.Name, k.Step, k.Microbatch, l)
			}
		}
	})
}

// isStatistic says whether a recorded quantity is a figure of a microbatch.
func isStatistic(name string, _ int) bool {
	for _, s := range []string{".loss_sum", ".tokens", ".aux_loss", ".z_loss", ".tokens_per_expert", ".valid_tokens"} {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

// figuresButPositions compares figures of batches whose sizes differ.
func figuresButPositions(t require.TestingT, got, want *trial.Outcome, tolerance float64) {
	for i := range want.Steps {
		w := want.Steps[i]
		w.Sums.Tokens, w.Sums.Samples = got.Steps[i].Sums.Tokens, got.Steps[i].Sums.Samples
		require.NoError(t, got.Steps[i].Same(&w, fmt.Sprintf("step %d ", i), tolerance))
	}
	require.NoError(t, trial.NearAll("weight", got.Weights, want.Weights, tolerance))
}

// sized is a batch of rows with given lengths, fresh contents: the same contents for the same seed, whatever the size.
func sized(m config.Model, s int, lengths []int, seed uint64) *nn.Microbatch {
	mb := &nn.Microbatch{B: len(lengths), S: s, Loss: &nn.LossMask{B: len(lengths), S: s}, Pad: &nn.PadMask{B: len(lengths), S: s}}
	for row, n := range lengths {
		for i := range s {
			rng := rand.New(rand.NewPCG(seed, uint64(row<<16+i)))
			mb.IDs, mb.Labels = append(mb.IDs, int32(rng.IntN(m.PaddedVocabSize))), append(mb.Labels, int32(rng.IntN(m.PaddedVocabSize)))
			mb.Positions, mb.Pad.Pad = append(mb.Positions, int32(i)), append(mb.Pad.Pad, i >= n)
			weight := float32(rng.IntN(2))
			if i >= n {
				weight = 0
			}
			mb.Loss.Weight = append(mb.Loss.Weight, weight)
		}
	}
	return mb
}

// Padding columns are as if they were not there; so are rows of padding alone.
func TestI7_I8_PaddingIsAsIfItWereNotThere(t *testing.T) {
	property.Check(t, 12, func(t *rapid.T) {
		m := drawMoE(t)
		n, seed := rapid.IntRange(1, 6).Draw(t, "valid"), rapid.Uint64().Draw(t, "contents")
		more, row := rapid.IntRange(1, 5).Draw(t, "padding"), rapid.IntRange(0, 2).Draw(t, "row")
		job := func(mb *nn.Microbatch) *trial.Job {
			return &trial.Job{Model: m, Optimizer: trial.Adam, Seed: seed, Batches: [][]*nn.Microbatch{{mb, mb}}}
		}
		want, err := job(sized(m, n, []int{n, n}, seed)).Run(trial.Single, inproc.Options{})
		require.NoError(t, err)
		withRow := sized(m, n, []int{n, n}, seed)
		insertRow(withRow, row)
		for _, l := range someLayouts {
			masked, err := job(sized(m, n+more, []int{n, n}, seed)).Run(l, inproc.Options{Seed: seed})
			require.NoError(t, err)
			figuresButPositions(t, masked, want, 1e-10)
			longer, err := job(withRow).Run(l, inproc.Options{Seed: seed})
			require.NoError(t, err)
			figuresButPositions(t, longer, want, 1e-10)
		}
	})
}

// insertRow adds a row of padding at a place.
func insertRow(mb *nn.Microbatch, row int) {
	at, s := row*mb.S, mb.S
	row32 := func(x []int32) []int32 { return slices.Insert(slices.Clone(x), at, make([]int32, s)...) }
	mb.IDs, mb.Labels, mb.Positions = row32(mb.IDs), row32(mb.Labels), row32(mb.Positions)
	mb.Loss.Weight = slices.Insert(mb.Loss.Weight, at, make([]float32, s)...)
	mb.Pad.Pad = slices.Insert(mb.Pad.Pad, at, slices.Repeat([]bool{true}, s)...)
	mb.B++
	mb.Loss.B, mb.Pad.B = mb.B, mb.B
}

// messageKinds counts the messages of a run by link, name and size: a run without tokens must send the same ones.
type messageKinds map[messageKind]int

type messageKind struct {
	src, dst uint16
	name     collective.OpName
	bytes    int
}

func (m messageKinds) count(h messages.Header, payload []byte) {
	m[messageKind{h.Src, h.Dst, collective.NameIn(h), len(payload)}]++
}

// A microbatch of padding alone: losses and gradients are zero, counters are zero, nothing is NaN, and every message is
// sent that a microbatch with tokens sends.
func TestI9_PaddingAlone(t *testing.T) {
	property.Check(t, 8, func(t *rapid.T) {
		m := drawMoE(t)
		s := masked(t, m)
		j := trial.DrawJob(t, m, s, 2, 2)
		j.Wants = isStatistic
		empty := eachBatch(j, func(mb *nn.Microbatch) {
			mb.Loss = &nn.LossMask{B: s.B, S: s.S, Weight: make([]float32, s.B*s.S)}
			mb.Pad = &nn.PadMask{B: s.B, S: s.S, Pad: slices.Repeat([]bool{true}, s.B*s.S)}
		})
		for _, l := range someLayouts {
			full, none := messageKinds{}, messageKinds{}
			_, err := j.Run(l, inproc.Options{Seed: 1, Sent: full.count})
			require.NoError(t, err)
			got, err := empty.Run(l, inproc.Options{Seed: 2, Sent: none.count})
			require.NoError(t, err)
			require.True(t, maps.Equal(full, none), "%s", l)
			for i := range got.Steps {
				isZero(t, &got.Steps[i])
			}
			for _, k := range got.Record.Keys() {
				v, err := got.Get(k.Name, k.Step, k.Microbatch)
				require.NoError(t, err)
				require.Equal(t, make([]float64, len(v.Data)), v.Data, "%s, %s", k.Name, l)
			}
			for name, w := range got.Weights {
				for _, v := range w {
					require.False(t, math.IsNaN(v) || math.IsInf(v, 0), name)
				}
			}
		}
	})
}

// isZero checks that a step without tokens has no loss and no gradient.
func isZero(t require.TestingT, s *trial.Step) {
	zero := make([]float64, len(s.Sums.MTPLoss))
	require.Equal(t, []float64{0, 0, 0, 0}, []float64{s.Sums.LMLoss, s.Sums.Balancing[0], s.Sums.ZLoss, s.GradNorm})
	require.Equal(t, zero, append([]float64{}, s.Sums.MTPLoss...))
	require.Zero(t, s.Sums.LMTokens)
	for _, name := range slices.Sorted(maps.Keys(s.Grads)) {
		for i, v := range s.Grads[name] {
			require.True(t, v == 0, "gradient of %s[%d] is %v", name, i, v)
		}
	}
}

// Without depths a mask without padding is no mask at all.
func TestMaskWithoutPaddingIsNoMask(t *testing.T) {
	property.Check(t, 10, func(t *rapid.T) {
		m := drawMoE(t)
		m.MTPNumLayers = 0
		s := masked(t, m)
		j := trial.DrawJob(t, m, s, 1, 2)
		full := eachBatch(j, func(mb *nn.Microbatch) { mb.Pad = &nn.PadMask{B: s.B, S: s.S, Pad: make([]bool, s.B*s.S)} })
		absent := eachBatch(j, func(mb *nn.Microbatch) { mb.Pad = nil })
		for _, l := range someLayouts {
			a, err := full.Run(l, inproc.Options{})
			require.NoError(t, err)
			b, err := absent.Run(l, inproc.Options{})
			require.NoError(t, err)
			require.NoError(t, a.Same(b, 0), "%s", l)
		}
	})
}
