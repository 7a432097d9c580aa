package moe_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

// step is some microbatches of every replica, and one balancing loss of them, written plainly.
type step struct {
	sizes mesh.Sizes
	loss  moe.Balancing
	parts [][]*routing // by microbatch, by replica

	losses [][]float64 // by microbatch, by replica
	dw     []float64
}

func drawStep(t *rapid.T) *step {
	w := drawWorld(t)
	s := &step{sizes: w.sizes, loss: moe.Balancing{Kind: rapid.SampledFrom([]moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss}).Draw(t, "kind"),
		Coeff: 0.8, PerRow: rapid.Bool().Draw(t, "per row")}}
	rng := rand.New(rand.NewPCG(w.order, 2))
	for range rapid.IntRange(1, 3).Draw(t, "microbatches") {
		var replicas []*routing
		for _, p := range w.parts {
			r := *p.routing
			r.valid, r.x = nil, nil
			some := rng.IntN(4) > 0
			for range p.valid {
				r.valid = append(r.valid, some && rng.IntN(3) > 0)
				for range width {
					r.x = append(r.x, rng.NormFloat64())
				}
			}
			replicas = append(replicas, &r)
		}
		s.parts = append(s.parts, replicas)
	}
	return s
}

// tallies are the plain counts of a replica's microbatch: of every row of the batch, and of all.
func tallies(r *routing) (rows [][]float64, tokens, all []float64, whole float64) {
	rows, tokens, all = make([][]float64, r.b), make([]float64, r.b), make([]float64, r.e)
	for b := range rows {
		rows[b] = make([]float64, r.e)
	}
	for i, ok := range r.valid {
		if !ok {
			continue
		}
		tokens[i/r.s]++
		whole++
		for _, e := range r.route(r.x[i*width : (i+1)*width]).chosen {
			rows[i/r.s][e]++
			all[e]++
		}
	}
	return rows, tokens, all, whole
}

// slopes are the derivatives of a replica's loss by the sum of scores of each expert over each row of the batch.
func (s *step) slopes(mb, replica int) [][]float64 {
	r := s.parts[mb][replica]
	rows, tokens, all, whole := tallies(r)
	pool, poolTokens := make([]float64, r.e), 0.0
	for m := range mb + 1 {
		for _, q := range s.parts[m] {
			_, _, n, t := tallies(q)
			for e, v := range n {
				pool[e] += v / float64(mb+1)
			}
			if m == mb {
				poolTokens += t
			}
		}
	}
	filled := 0.0
	for _, t := range tokens {
		if t > 0 {
			filled++
		}
	}
	out := make([][]float64, r.b)
	for b := range out {
		n, t, share := all, whole, 1.0
		switch {
		case s.loss.Kind == moe.GlobalAuxLoss:
			n, t = pool, poolTokens
		case s.loss.Kind == moe.SeqAuxLoss && s.loss.PerRow:
			n, t, share = rows[b], tokens[b], max(filled, 1)
		case s.loss.Kind == moe.SeqAuxLoss:
			n, t, share = rows[b], whole/float64(r.b), float64(r.b)
		}
		t = max(t, 1)
		out[b] = make([]float64, r.e)
		for e, v := range n {
			out[b][e] = float64(r.e) / (float64(r.k) * t * t) * v / share
		}
	}
	return out
}

// plain computes losses and the router's gradient.
func (s *step) plain() {
	s.dw = make([]float64, len(s.parts[0][0].w))
	for mb, replicas := range s.parts {
		s.losses = append(s.losses, make([]float64, len(replicas)))
		for i, r := range replicas {
			slopes := s.slopes(mb, i)
			for row, ok := range r.valid {
				if !ok {
					continue
				}
				x, slope := r.x[row*width:(row+1)*width], slopes[row/r.s]
				p, mean := r.route(x).scores, 0.0
				for e, v := range p {
					mean += v * slope[e]
				}
				s.losses[mb][i] += mean / r.divisor
				for e, v := range p {
					for f := range width {
						s.dw[e*width+f] += s.loss.Coeff * r.scale / r.divisor * v * (slope[e] - mean) * x[f]
					}
				}
			}
		}
	}
}

// overRanks runs the router on every rank: its losses by microbatch and replica, and its gradient.
func (s *step) overRanks(t require.TestingT, order uint64) (losses [][]float64, dw []float64) {
	dw = make([]float64, len(s.parts[0][0].w))
	for range s.parts {
		losses = append(losses, make([]float64, s.sizes.DP))
	}
	err := inproc.Run(s.sizes, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			at, first := s.sizes.Coord(rank), s.parts[0][0]
			params := &nn.Params[float64]{}
			gate := params.Declare(nn.Spec{Name: "gate", Shape: []int{first.e, width}, Shard: nn.Unsharded})
			params.Build()
			copy(gate.Data, first.w)
			router := moe.Router[float64]{Weight: nn.WeightsOf(first.e, width, gate), K: first.k, PreSoftmax: first.pre, Balancing: []moe.Balancing{s.loss}}
			for mb, replicas := range s.parts {
				r := replicas[at.DP]
				ctx := r.context(c, at, &tensor.Arena[float64]{})
				ctx.Site.Microbatch, ctx.Site.Phase, ctx.Sums = mb, nn.Forward, &nn.AuxSums{}
				rows := r.localRows(ctx, at)
				x := tensor.NewMat[float64](len(rows), width)
				for i, g := range rows {
					if g >= 0 {
						copy(x.Row(i), r.x[g*width:(g+1)*width])
					}
				}
				_, saved := router.Forward(ctx, x)
				router.Backward(ctx, saved, make([]float64, len(rows)*r.k))
				losses[mb][at.DP] += ctx.Sums.Balancing[s.loss.Kind]
			}
			if first.sp || at.TP == 0 { // else every tensor-parallel rank has the same
				for i, v := range gate.Grad {
					dw[i] += v
				}
			}
		}}
	}, inproc.Options{Seed: order})
	require.NoError(t, err)
	return losses, dw
}

// Every balancing loss on every layout, over microbatches and replicas: its value and its gradient.
func TestBalancingOverRanksAgainstPlainOne(t *testing.T) {
	property.Check(t, 100, func(t *rapid.T) {
		s := drawStep(t)
		s.plain()
		losses, dw := s.overRanks(t, 1)
		for mb := range losses {
			require.NoError(t, trial.Near("loss", losses[mb], s.losses[mb], 1e-11))
		}
		require.NoError(t, trial.Near("router gradient", dw, s.dw, 1e-11))
	})
}
