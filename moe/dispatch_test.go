package moe_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/moe"
	"phalanx/nn"
)

var dispatchers = map[moe.Dispatcher]string{moe.AllToAll: "alltoall", moe.AllGather: "allgather", moe.Flex: "flex"}

// I20: every dispatcher on every layout is the plain computation: outputs, gradients of rows and of all weights. Memory
// is full of NaN before.
func TestI20_DispatchersAgreeWithPlainOne(t *testing.T) {
	mem := newArenas()
	property.Check(t, 200, func(t *rapid.T) {
		w := drawWorld(t)
		want := w.asPlain()
		got := map[moe.Dispatcher]*result{}
		for d, name := range dispatchers {
			got[d] = w.overRanks(t, d, mem, w.order)
			got[d].near(t, name, want, 1e-12)
			w.checkFlows(t, d, got[d])
		}
		for d, name := range dispatchers {
			got[d].near(t, name+" and alltoall", got[moe.AllToAll], 1e-12)
		}
		for f, v := range got[moe.Flex].flows {
			if f.tag == nn.TagDispatch || f.tag == nn.TagCombine {
				require.LessOrEqual(t, v.bytes, got[moe.AllToAll].flows[f].bytes, "%+v", f)
			}
		}
	})
}

// load is what one rank has for another: entries, rows with an entry there, rows at all.
type load struct{ entries, rows, all int }

// loads counts them by the plain routing.
func (w *world) loads(rows [][]int, src, dst int) load {
	at, to := w.sizes.Coord(src), w.sizes.Coord(dst).EP/w.sizes.ETP
	p, l := w.parts[at.DP], load{}
	for _, g := range rows[src] {
		if g < 0 || w.drop && !p.valid[g] {
			continue
		}
		n := 0
		for j, e := range p.route(p.x[g*width : (g+1)*width]).chosen {
			if p.kept[g*p.k+j] && e/(p.e/w.sizes.EP) == to {
				n++
			}
		}
		for _, e := range p.fill[g] {
			if e/(p.e/w.sizes.EP) == to {
				n++
			}
		}
		l.all++
		l.entries += n
		if n > 0 {
			l.rows++
		}
	}
	return l
}

// checkFlows: every pair of an expert group exchanges the same messages whatever is routed, and the bytes are what §6
// says. An item is a row of fp64 features; each entry adds a probability on the way there and its gradient on the way
// back in the backward pass. Plans are two numbers for each member, then a number for each item and each entry.
func (w *world) checkFlows(t require.TestingT, d moe.Dispatcher, got *result) {
	seen := 0
	for src := range w.sizes.World() {
		for _, dst := range w.sizes.Group(src, mesh.EP) {
			if src == dst {
				continue
			}
			seen++
			l := w.loads(got.rows, src, dst)
			items := map[moe.Dispatcher]int{moe.AllToAll: l.entries, moe.AllGather: l.all, moe.Flex: l.rows}[d]
			row := 8 * width
			plan := 4 * (2*w.sizes.Experts() + items + l.entries)
			require.Equal(t, volume{2, plan}, got.flows[flow{nn.TagDispatchCounts, nn.Forward, src, dst}])
			require.Equal(t, volume{1, items*row + 8*l.entries}, got.flows[flow{nn.TagDispatch, nn.Forward, src, dst}])
			require.Equal(t, volume{1, items * row}, got.flows[flow{nn.TagCombine, nn.Forward, dst, src}])
			require.Equal(t, volume{1, items * row}, got.flows[flow{nn.TagDispatch, nn.Backward, src, dst}])
			require.Equal(t, volume{1, items*row + 8*l.entries}, got.flows[flow{nn.TagCombine, nn.Backward, dst, src}])
		}
	}
	n := 0
	for f := range got.flows {
		if f.tag == nn.TagDispatchCounts || f.tag == nn.TagDispatch || f.tag == nn.TagCombine {
			n++
		}
	}
	require.Equal(t, 5*seen, n, "no other pair exchanges")
}

// The order in which messages arrive changes no bit.
func TestDispatchIsTheSameInAnyOrder(t *testing.T) {
	mem := newArenas()
	property.Check(t, 25, func(t *rapid.T) {
		w := drawWorld(t)
		for d := range dispatchers {
			a, b := w.overRanks(t, d, mem, 1), w.overRanks(t, d, mem, 2)
			require.Equal(t, a, b)
		}
	})
}

// small is a world of two replicas with four experts on two places.
func small(ep, etp int, valid []bool) *world {
	w := &world{sizes: mesh.Sizes{TP: 1, CP: 1, DP: ep * etp, PP: 1, EP: ep, ETP: etp}, f: 2 * etp}
	for range w.sizes.DP {
		w.parts = append(w.parts, &part{routing: &routing{b: 1, s: len(valid), tp: 1, cp: 1, e: 4, k: 2, scale: 1, divisor: 1, valid: valid}})
	}
	return w
}

func trues(n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
	}
	return out
}

// B10 of docs/examples.md: experts 2 and 3 and with them rank 1 get none of six tokens. Nothing hangs, their gradients are exactly
// zero whatever memory held before, the others are right.
func TestB10_RankWithoutTokens(t *testing.T) {
	for d, name := range dispatchers {
		for _, etp := range []int{1, 2} {
			w := small(2, etp, trues(6))
			w.fill(rand.New(rand.NewPCG(1, 2)), true)
			want, got := w.asPlain(), w.overRanks(t, d, newArenas(), 3)
			got.near(t, name, want, 1e-12)
			for e := 2; e < 4; e++ {
				require.Equal(t, make([]float64, len(w.w1[e])), got.dw1[e])
				require.Equal(t, make([]float64, len(w.w2[e])), got.dw2[e])
			}
			for e := range 2 {
				require.NotEqual(t, make([]float64, len(w.w1[e])), got.dw1[e])
			}
			w.checkFlows(t, d, got)
		}
	}
}

// A replica that has nothing but padding, which is not dispatched, still exchanges with everybody.
func TestReplicaOfPaddingTakesPart(t *testing.T) {
	for d, name := range dispatchers {
		w := small(4, 1, trues(5))
		w.drop = true
		w.parts[2].valid = make([]bool, 5)
		w.fill(rand.New(rand.NewPCG(1, 3)), false)
		want, got := w.asPlain(), w.overRanks(t, d, newArenas(), 3)
		got.near(t, name, want, 1e-12)
		require.Equal(t, make([]float64, 5*width), got.y[2])
		w.checkFlows(t, d, got)
	}
}

// Which expert lives where changes nothing: experts, with their rows of the router, in another order.
func TestI20_ExpertsInAnotherOrder(t *testing.T) {
	mem := newArenas()
	property.Check(t, 30, func(t *rapid.T) {
		w := drawWorld(t)
		d := rapid.SampledFrom([]moe.Dispatcher{moe.AllToAll, moe.AllGather, moe.Flex}).Draw(t, "dispatcher")
		e := w.parts[0].e
		perm := rand.New(rand.NewPCG(w.order, 1)).Perm(e)
		other := *w
		other.parts, other.w1, other.w2 = nil, make([][]float64, e), make([][]float64, e)
		gate := make([]float64, e*width)
		for from, to := range perm {
			other.w1[to], other.w2[to] = w.w1[from], w.w2[from]
			copy(gate[to*width:(to+1)*width], w.parts[0].w[from*width:])
		}
		for _, p := range w.parts {
			q, r := *p, *p.routing
			q.routing, r.w = &r, gate
			other.parts = append(other.parts, &q)
		}
		want, got := w.overRanks(t, d, mem, w.order), other.overRanks(t, d, mem, w.order)
		back := *got
		back.dw, back.dw1, back.dw2 = make([]float64, e*width), make([][]float64, e), make([][]float64, e)
		for from, to := range perm {
			back.dw1[from], back.dw2[from] = got.dw1[to], got.dw2[to]
			copy(back.dw[from*width:(from+1)*width], got.dw[to*width:])
		}
		back.near(t, "permuted", want, 1e-12)
	})
}

// Padding that is not dispatched changes nothing for valid rows, if nothing learns from padding, and saves bytes.
func TestDroppedPaddingIsNotMissed(t *testing.T) {
	mem := newArenas()
	property.Check(t, 40, func(t *rapid.T) {
		w := drawWorld(t)
		w.capacity.Pad = false
		padding := 0
		for _, p := range w.parts {
			for i, ok := range p.valid {
				if !ok {
					padding++
					clear(p.dy[i*width : (i+1)*width])
				}
			}
		}
		for d, name := range dispatchers {
			w.drop = false
			all := w.overRanks(t, d, mem, w.order)
			w.drop = true
			got := w.overRanks(t, d, mem, w.order)
			for i, p := range w.parts {
				for row, ok := range p.valid {
					if !ok {
						require.Equal(t, make([]float64, width), got.y[i][row*width:(row+1)*width])
						copy(all.y[i][row*width:(row+1)*width], make([]float64, width))
					}
				}
			}
			got.near(t, name, all, 1e-12)
			before, after := total(all.flows), total(got.flows)
			require.LessOrEqual(t, after, before)
			if d == moe.AllGather && w.sizes.Experts() > 1 && padding > 0 {
				require.Less(t, after, before)
			}
		}
	})
}

func total(flows map[flow]volume) int {
	n := 0
	for _, v := range flows {
		n += v.bytes
	}
	return n
}

// I20: dispatch and combine with experts that return their row is the row times the sum of its probabilities. With
// a large gate SiLU is the identity, so that a·x·1/a comes back: here by weights of one feature at a time.
func TestI20_IdentityExperts(t *testing.T) {
	w := small(2, 1, trues(7))
	w.f = width
	w.fill(rand.New(rand.NewPCG(5, 2)), false)
	for _, p := range w.parts {
		p.pre = true // probabilities that do not add up to 1
		for i := range p.valid {
			p.x[i*width] = 1 // the gate's input
		}
	}
	const large = 40 // silu(40) = 40 to 17 digits
	for e := range w.w1 {
		clear(w.w1[e])
		clear(w.w2[e])
		for i := range width {
			w.w1[e][i*width], w.w1[e][(width+i)*width+i], w.w2[e][i*width+i] = large, 1, 1./large
		}
	}
	for d, name := range dispatchers {
		got := w.overRanks(t, d, newArenas(), 1)
		for r, p := range w.parts {
			for i := range p.valid {
				sum := 0.0
				for _, v := range p.route(p.x[i*width : (i+1)*width]).probs {
					sum += v
				}
				want := make([]float64, width)
				for f := range want {
					want[f] = sum * p.x[i*width+f]
				}
				require.Less(t, math.Abs(sum-1), 1.)
				require.NoError(t, trial.Near(name, got.y[r][i*width:(i+1)*width], want, 1e-12))
			}
		}
	}
}
