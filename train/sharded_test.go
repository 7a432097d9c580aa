package train_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// world is a made-up model on a layout: parameters of every kind, with gradients that are drawn from a seed, the name,
// and the rank where ranks may differ.
type world struct {
	sizes mesh.Sizes
	specs []nn.Spec // of the whole model; shards are filled in by rank
	seed  uint64
}

// kinds of parameters.
const (
	replicated = "replicated" // over tensor parallelism
	partial    = "partial"    // replicated, each tensor-parallel rank with a part of the gradient
	sharded    = "sharded"    // cut over tensor parallelism
	expert     = "expert"
)

func drawWorld(t *rapid.T, sizes mesh.Sizes) *world {
	w := &world{sizes: sizes, seed: rapid.Uint64().Draw(t, "seed")}
	for i := range rapid.IntRange(1, 6).Draw(t, "parameters") {
		kind := rapid.SampledFrom([]string{replicated, partial, sharded, expert}).Draw(t, "kind")
		n := rapid.SampledFrom([]int{1, 3, 63, 64, 65, 200, 700}).Draw(t, "length")
		s := nn.Spec{Name: fmt.Sprintf("%c.%d.%s", 'z'-i, i, kind), Shape: []int{n, 4}, Group: rapid.SampledFrom([]string{"", "", "mtp"}).Draw(t, "group")}
		s.SumTP, s.Expert = kind == partial, kind == expert
		w.specs = append(w.specs, s)
	}
	return w
}

// params declares a rank's part of the model.
func params[T tensor.Float](w *world, rank int) *nn.Params[T] {
	c, p := w.sizes.Coord(rank), &nn.Params[T]{}
	for i, s := range w.specs {
		s.Shard = nn.Unsharded
		switch {
		case s.Expert && i%w.sizes.Experts() != c.EP:
			p.Foreign = append(p.Foreign, s)
			continue
		case w.cut(&s):
			s.Shard = nn.Shard{Dim: 1, Parts: w.sizes.TP, Index: c.TP}
		}
		p.Declare(s)
	}
	p.Build()
	return p
}

func (w *world) cut(s *nn.Spec) bool { return !s.SumTP && !s.Expert && s.Name[4:] == sharded }

// values are numbers of very different sizes, the same for equal keys.
func values(n int, keys ...any) []float64 {
	seed := [2]uint64{}
	for i, r := range fmt.Sprint(keys...) {
		seed[i%2] = seed[i%2]*1099511628211 + uint64(r)
	}
	rng := rand.New(rand.NewPCG(seed[0], seed[1]))
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64() * math.Exp(3*rng.NormFloat64())
	}
	return x
}

// gradient is the whole gradient that a rank contributes to a parameter: of its rows, and for a partial one of its part.
func (w *world) gradient(s *nn.Spec, step, rank int) []float64 {
	c := w.sizes.Coord(rank)
	part := c.TP
	switch {
	case s.Expert:
		return values(s.Elements(), w.seed, s.Name, step, c.EDP)
	case !s.SumTP:
		part = 0
	}
	return values(s.Elements(), w.seed, s.Name, step, c.CP, c.DP, part)
}

// result is what a run left on one rank.
type result[T tensor.Float] struct {
	weights map[string][]T
	norms   []map[string]float64
	grads   map[string][]T // of the last step, gathered
	moments int
	pieces  []train.Piece[T]
}

// run trains for some steps on made-up gradients.
func run[T tensor.Float](t require.TestingT, w *world, l train.Layout, steps int) []result[T] {
	out := make([]result[T], w.sizes.World())
	cfg := config.Optimizer{AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8, ClipGrad: 1}
	l.Sizes = w.sizes
	require.NoError(t, inproc.Run(w.sizes, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			l := l
			l.Rank = rank
			p := params[T](w, rank)
			for _, q := range p.List {
				nn.FromWhole(q, values(q.Elements(), w.seed, q.Name))
			}
			g := train.NewGrads(p, l)
			a := train.NewAdam(cfg, g)
			r := &out[rank]
			for step := range steps {
				site := nn.Site{Step: step, Phase: nn.Update, Layer: -1}
				p.ZeroGrads()
				for _, q := range p.List {
					nn.FromWhole(&nn.Param[T]{Spec: q.Spec, Data: q.Grad}, w.gradient(&q.Spec, step, rank))
				}
				g.Reduce(c, site, 0)
				r.norms = append(r.norms, g.Norms(c, site, 0))
				g.GatherGrads(c, site)
				a.Step(train.Rates{LR: 0.01, DecoupledLR: 0.01, WeightDecay: 0.1}, r.norms[step], nil)
				g.GatherWeights(c, site)
			}
			r.weights, r.grads = map[string][]T{}, map[string][]T{}
			for _, q := range p.List {
				r.weights[q.Name], r.grads[q.Name] = q.Data, q.Grad
			}
			r.pieces = a.State()
			for _, piece := range r.pieces {
				r.moments += len(piece.ExpAvg) + len(piece.ExpAvgSq)
			}
		}}
	}, inproc.Options{Seed: w.seed}))
	return out
}

// drawSizes draws tensor, context and data parallelism and a grid of experts over them.
func drawSizes(t *rapid.T) mesh.Sizes {
	size := rapid.SampledFrom([]int{1, 2, 2, 3, 4})
	s := mesh.Sizes{TP: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "tp"), CP: size.Draw(t, "cp"), DP: size.Draw(t, "dp"), PP: 1}
	for s.World() > 16 {
		s.DP = 1
		if s.World() > 16 {
			s.CP = 2
		}
	}
	var fits []int
	for e := 1; e <= s.World(); e++ {
		if s.World()%e == 0 {
			fits = append(fits, e)
		}
	}
	s.EP = rapid.SampledFrom(fits).Draw(t, "ep")
	return s
}

// With a sharded optimizer weights, gradients and norms have the bits of one that is not, on any layout, for any size of
// buckets; and every element has its moments on exactly one of the ranks that hold it.
func TestShardedIsUnsharded(t *testing.T) {
	t.Run("fp32", func(t *testing.T) { shardedIsUnsharded[float32](t) })
	t.Run("fp64", func(t *testing.T) { shardedIsUnsharded[float64](t) })
}

func shardedIsUnsharded[T tensor.Float](t *testing.T) {
	property.Check(t, 24, func(t *rapid.T) {
		w := drawWorld(t, drawSizes(t))
		l := train.Layout{Bucket: rapid.SampledFrom([]int{1, 100, 1000, 2000, 0}).Draw(t, "bucket"), BF16: rapid.IntRange(0, 3).Draw(t, "bf16") == 0}
		want := run[T](t, w, train.Layout{BF16: l.BF16}, 2)
		l.Sharded = true
		got := run[T](t, w, l, 2)
		for rank := range got {
			require.Equal(t, want[rank].norms, got[rank].norms, "norms of rank %d", rank)
			require.Equal(t, want[rank].weights, got[rank].weights, "weights of rank %d", rank)
			require.Equal(t, want[rank].grads, got[rank].grads, "gradients of rank %d", rank)
			require.Equal(t, want[0].norms, want[rank].norms, "norms of rank %d without sharding", rank)
		}
		coversOnce(t, w, got)
	})
}

// coversOnce: the pieces of the ranks that hold the same shard are a partition of it.
func coversOnce[T tensor.Float](t require.TestingT, w *world, got []result[T]) {
	type span struct{ from, to int }
	spans, length := map[string][]span{}, map[string]int{}
	for rank, r := range got {
		c := w.sizes.Coord(rank)
		for _, p := range r.pieces {
			key := fmt.Sprint(p.Spec.Name, " tp ", c.TP)
			if p.Spec.Expert {
				key = p.Spec.Name
			}
			spans[key], length[key] = append(spans[key], span{p.From, p.To}), p.Spec.Local()
			require.Len(t, p.ExpAvg, p.To-p.From)
			require.Len(t, p.ExpAvgSq, p.To-p.From)
			require.Len(t, p.Weight, p.To-p.From)
		}
	}
	for key, list := range spans {
		sort.Slice(list, func(i, j int) bool { return list[i].from < list[j].from })
		at := 0
		for _, s := range list {
			require.Equal(t, at, s.from, key)
			at = s.to
		}
		require.Equal(t, length[key], at, key)
	}
}

// The gradient that a step uses is the sum of what all ranks contributed, added in fp64 by this test in its own order;
// the norm counts every parameter of the model once (I30).
func TestNormCountsEveryParameterOnce(t *testing.T) {
	property.Check(t, 24, func(t *rapid.T) {
		w := drawWorld(t, drawSizes(t))
		for _, on := range []bool{false, true} {
			got := run[float64](t, w, train.Layout{Sharded: on, Bucket: 1000}, 1)
			want := w.norms(0)
			for rank := range got {
				require.Len(t, got[rank].norms[0], len(want))
				for group, v := range want {
					require.InEpsilon(t, v, got[rank].norms[0][group], 1e-12, "group %q on rank %d", group, rank)
				}
			}
		}
	})
}

// norms are those of the whole model: contributions added over distinct (cp, dp, part) and copies of experts.
func (w *world) norms(step int) map[string]float64 {
	squares := map[string]float64{}
	for i := range w.specs {
		s := w.specs[i]
		s.Shard = nn.Unsharded
		sum, seen := make([]float64, s.Elements()), map[string]bool{}
		for rank := range w.sizes.World() {
			c := w.sizes.Coord(rank)
			key := fmt.Sprint(c.CP, c.DP)
			switch {
			case s.Expert:
				key = fmt.Sprint(c.EDP)
			case s.SumTP:
				key = fmt.Sprint(c.CP, c.DP, c.TP)
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			for j, v := range w.gradient(&s, step, rank) {
				sum[j] += v
			}
		}
		for _, v := range sum {
			squares[s.Group] += v * v
		}
	}
	for group, v := range squares {
		squares[group] = math.Sqrt(v)
	}
	return squares
}

// A rank's moments are 1/(DP·CP) of the parameters', those of experts 1/EDP, up to a block for each slice of a bucket.
func TestOptimizerMemoryFalls(t *testing.T) {
	const dense, experts, block = 40000, 16000, 256
	w := &world{seed: 7, specs: []nn.Spec{
		{Name: "a.0.sharded", Shape: []int{2000, 4}}, {Name: "b.1.replicated", Shape: []int{8000, 4}}, {Name: "c.2.expert", Shape: []int{4000, 4}, Expert: true}}}
	for _, s := range []mesh.Sizes{{TP: 1, CP: 1, DP: 1, PP: 1}, {TP: 1, CP: 1, DP: 2, PP: 1}, {TP: 1, CP: 1, DP: 4, PP: 1}, {TP: 1, CP: 2, DP: 4, PP: 1}, {TP: 1, CP: 4, DP: 4, PP: 1}} {
		w.sizes = s
		n := s.CP * s.DP
		got := run[float32](t, w, train.Layout{Sharded: true}, 1)
		whole := run[float32](t, w, train.Layout{}, 1)
		total := 0
		for rank := range got {
			require.InDelta(t, 2*(dense+experts)/n, got[rank].moments, 4*block, "%+v rank %d", s, rank)
			require.Equal(t, 2*(dense+experts), whole[rank].moments)
			total += got[rank].moments
		}
		require.Equal(t, 2*(dense+experts), total)
	}
	// Experts over their copies: EP 2 of 4 ranks leaves 2 copies; a rank hosts the expert at index 2, place 0, or none.
	w.sizes = mesh.Sizes{TP: 1, CP: 1, DP: 4, PP: 1, EP: 2}
	got := run[float32](t, w, train.Layout{Sharded: true}, 1)
	for rank, want := range []int{2 * (dense/4 + experts/2), 2 * dense / 4, 2 * (dense/4 + experts/2), 2 * dense / 4} {
		require.InDelta(t, want, got[rank].moments, 4*block, "rank %d", rank)
	}
}

// By hand, in bfloat16, two ranks: 1 + 2⁻⁸ rounds to 1 on either, the sum is 2; 257 + 1 is 256 + 1 = 257, which rounds
// to 256 (ties to even); 3 + 2⁻⁷ of both are 3 and 3 (next to 3 is 3 + 2⁻⁶, half way goes to the even 3), the sum 6.
func TestBF16OnTheWire(t *testing.T) {
	contributions := [2][]float64{{1 + 1.0/256, 257, 3 + 1.0/128, math.Inf(1), 0.1}, {1 + 1.0/256, 1, 3 + 1.0/128, 1, 0.2}}
	// 0.1 is 0x3dcc·cccd: 0x3dcd = .10009765625; 0.2 is 0x3e4d = .2001953125; their sum .30029296875 is 0x3e9a (.30078125) rounded.
	want := []float64{2, 256, 6, math.Inf(1), 0.30078125}
	for _, sharded := range []bool{false, true} {
		sizes := mesh.Sizes{TP: 1, CP: 1, DP: 2, PP: 1}
		require.NoError(t, inproc.Run(sizes, func(rank int) []func(nn.Comm) {
			return []func(nn.Comm){func(c nn.Comm) {
				p := &nn.Params[float32]{}
				q := p.Declare(nn.Spec{Name: "w", Shape: []int{5}, Shard: nn.Unsharded})
				p.Build()
				for i, v := range contributions[rank] {
					q.Grad[i] = float32(v)
				}
				g := train.NewGrads(p, train.Layout{Sizes: sizes, Rank: rank, Sharded: sharded, BF16: true})
				g.Reduce(c, nn.Site{Phase: nn.Update, Layer: -1}, 0)
				g.GatherGrads(c, nn.Site{Phase: nn.Update, Layer: -1})
				require.Equal(t, want, nn.Float64s(q.Grad), "sharded %v, rank %d", sharded, rank)
			}}
		}, inproc.Options{}))
	}
}

// A gradient that is not a number: every rank sees it in the norms, whoever's it is; the check names it before.
func TestNotFinite(t *testing.T) {
	sizes := mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}
	for _, sharded := range []bool{false, true} {
		for bad, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.NaN()} {
			finite := make([]bool, sizes.World())
			require.NoError(t, inproc.Run(sizes, func(rank int) []func(nn.Comm) {
				return []func(nn.Comm){func(c nn.Comm) {
					p := &nn.Params[float64]{}
					p.Declare(nn.Spec{Name: "fine", Shape: []int{300}, Shard: nn.Unsharded, Group: "mtp"})
					q := p.Declare(nn.Spec{Name: "bad", Shape: []int{600, 2}, Shard: nn.Shard{Dim: 1, Parts: 2, Index: sizes.Coord(rank).TP}, Uses: 2})
					p.Build()
					g := train.NewGrads(p, train.Layout{Sizes: sizes, Rank: rank, Sharded: sharded})
					require.NoError(t, g.CheckFinite(3, -1))
					if rank == bad {
						q.Uses[0].Grad[517] = value
						err := g.CheckFinite(3, -1)
						var e *train.NotFiniteError
						require.ErrorAs(t, err, &e)
						require.Equal(t, []any{bad, 3, "bad", 517}, []any{e.Rank, e.Step, e.Name, e.Index})
						require.ErrorContains(t, err, fmt.Sprintf("rank %d found %v in the gradient of bad, element 517 of its shard, in iteration 4", bad, value))
					}
					copy(q.Grad, q.Uses[0].Grad)
					site := nn.Site{Phase: nn.Update, Layer: -1}
					g.Reduce(c, site, 0)
					finite[rank] = train.Finite(g.Norms(c, site, 0))
				}}
			}, inproc.Options{}))
			require.False(t, slices.Contains(finite, true), "rank %d", bad)
		}
	}
}
