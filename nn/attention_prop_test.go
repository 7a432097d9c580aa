package nn_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

const (
	attnHidden = 6
	attnBase   = 50.0
)

// dense is attention written plainly: whole rows, every pair of positions. Rows are b·S + position.
type dense struct {
	batch
	hq, hkv, d int
	drop       nn.Dropout
	wqkv, wo   []float64 // [(hq+2·hkv)·d, hidden], [hidden, hq·d]
	x, dy      []float64 // [b·s, hidden]
	y, dx      []float64
	dwqkv, dwo []float64
}

func (a *dense) width() int { return (a.hq + 2*a.hkv) * a.d }

// drawn fills weights, input and output gradient.
func (a *dense) drawn() {
	rng := rand.New(rand.NewPCG(a.seed, 3))
	normal := func(n int, scale float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = scale * rng.NormFloat64()
		}
		return v
	}
	n := a.b * a.s * attnHidden
	a.wqkv, a.wo = normal(a.width()*attnHidden, 0.7), normal(attnHidden*a.hq*a.d, 0.7)
	a.x, a.dy = normal(n, 1), normal(n, 1)
	a.y, a.dx = make([]float64, n), make([]float64, n)
	a.dwqkv, a.dwo = make([]float64, len(a.wqkv)), make([]float64, len(a.wo))
}

// linear is y = x·wᵀ of one row, and linearGrad its backward: dx is added to.
func linear(y, x, w []float64) {
	for o := range y {
		y[o] = 0
		for i, v := range x {
			y[o] += v * w[o*len(x)+i]
		}
	}
}

func linearGrad(dx, dw, dy, x, w []float64) {
	for o, g := range dy {
		for i := range x {
			dx[i] += g * w[o*len(x)+i]
			dw[o*len(x)+i] += g * x[i]
		}
	}
}

// turn rotates every query and key head of a fused row by the angles of a position; sign −1 turns back.
func (a *dense) turn(row []float64, position int, sign float64) {
	for h := range a.hq + a.hkv {
		head := row[h*a.d : (h+1)*a.d]
		for i := range a.d / 2 {
			angle := sign * float64(position) * math.Pow(attnBase, -2*float64(i)/float64(a.d))
			p, q := head[i], head[i+a.d/2]
			head[i], head[i+a.d/2] = p*math.Cos(angle)-q*math.Sin(angle), q*math.Cos(angle)+p*math.Sin(angle)
		}
	}
}

// run is forward and backward.
func (a *dense) run() {
	n, places := a.b*a.s, trial.Places(a.docs, a.b, a.s)
	qkv, out := make([][]float64, n), make([][]float64, n)
	dqkv, dout := make([][]float64, n), make([][]float64, n)
	row := func(x []float64, i int) []float64 { return x[i*attnHidden : (i+1)*attnHidden] }
	for i := range n {
		qkv[i], out[i] = make([]float64, a.width()), make([]float64, a.hq*a.d)
		dqkv[i], dout[i] = make([]float64, a.width()), make([]float64, a.hq*a.d)
		linear(qkv[i], row(a.x, i), a.wqkv)
		a.turn(qkv[i], places[i].Off, 1)
	}
	for i := range n {
		for h := range a.hq {
			a.attend(places, i, h, qkv, out[i], nil, nil)
		}
		linear(row(a.y, i), out[i], a.wo)
		linearGrad(dout[i], a.dwo, row(a.dy, i), out[i], a.wo)
		for h := range a.hq {
			a.attend(places, i, h, qkv, out[i], dout[i], dqkv)
		}
	}
	for i := range n {
		a.turn(dqkv[i], places[i].Off, -1)
		linearGrad(row(a.dx, i), a.dwqkv, dqkv[i], row(a.x, i), a.wqkv)
	}
}

// attend is one query of one head over the keys of its document up to itself; with dout its backward.
func (a *dense) attend(places []trial.Place, i, h int, qkv [][]float64, out, dout []float64, dqkv [][]float64) {
	kv := h / (a.hq / a.hkv)
	q, k, v := h*a.d, (a.hq+kv)*a.d, (a.hq+a.hkv+kv)*a.d
	first := i - places[i].Off
	p, sum := make([]float64, i-first+1), 0.0
	for j := range p {
		score := 0.0
		for e := range a.d {
			score += qkv[i][q+e] * qkv[first+j][k+e]
		}
		p[j] = math.Exp(score / math.Sqrt(float64(a.d)))
		sum += p[j]
	}
	dp, dot := make([]float64, len(p)), 0.0
	for j := range p {
		p[j] /= sum
		keep := a.kept(h, i/a.s, i%a.s, (first+j)%a.s)
		for e := range a.d {
			if dout == nil {
				out[q+e] += keep * p[j] * qkv[first+j][v+e]
			} else {
				dp[j] += keep * dout[q+e] * qkv[first+j][v+e]
				dqkv[first+j][v+e] += keep * p[j] * dout[q+e]
			}
		}
		dot += p[j] * dp[j]
	}
	if dout == nil {
		return
	}
	for j := range p {
		ds := p[j] * (dp[j] - dot) / math.Sqrt(float64(a.d))
		for e := range a.d {
			dqkv[i][q+e] += ds * qkv[first+j][k+e]
			dqkv[first+j][k+e] += ds * qkv[i][q+e]
		}
	}
}

// overRanks runs package nn's attention on every rank and compares. What lies in inserted slots is noise and must not
// matter.
func overRanks[T tensor.Float](t require.TestingT, a *dense, how nn.CommType, tolerance float64) {
	n := len(a.x)
	y, dx, dwqkv, dwo := make([]float64, n), make([]float64, n), make([]float64, len(a.wqkv)), make([]float64, len(a.wo))
	err := inproc.Run(mesh.Sizes{TP: 1, CP: a.cp, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			frames := nn.NewFrames(a.docs, a.b, a.s, a.cp, a.align)
			ctx := &nn.Ctx[T]{Comm: c, Arena: &tensor.Arena[T]{}, B: a.b, Frame: frames[rank], Frames: frames, Site: nn.Site{Phase: nn.Forward, Step: dropStep},
				Microbatch: dropMicrobatch, Scope: dropScope}
			layer, params := attentionOf[T](a, how)
			got, saved := layer.Forward(ctx, slots[T](a, rank, a.x, 1))
			back := layer.Backward(ctx, saved, slots[T](a, rank, a.dy, 0))
			a.keep(y, rank, nn.Float64s(got.Data))
			a.keep(dx, rank, nn.Float64s(back.Data))
			add(dwqkv, nn.Float64s(params.Rest.Grad[:len(a.wqkv)]))
			add(dwo, nn.Float64s(params.Rest.Grad[len(a.wqkv):]))
		}}
	}, inproc.Options{Seed: a.order})
	require.NoError(t, err)
	for _, c := range []struct {
		what      string
		got, want []float64
	}{{"output", y, a.y}, {"input gradient", dx, a.dx}, {"gradient of q, k, v", dwqkv, a.dwqkv}, {"gradient of o", dwo, a.dwo}} {
		require.NoError(t, trial.Near(c.what, c.got, c.want, tolerance))
	}
}

// attentionOf is the layer with a's weights.
func attentionOf[T tensor.Float](a *dense, how nn.CommType) (*nn.Attention[T], *nn.Params[T]) {
	params := &nn.Params[T]{}
	wqkv := params.Declare(nn.Spec{Name: "qkv", Shape: []int{a.width(), attnHidden}, Shard: nn.Unsharded})
	wo := params.Declare(nn.Spec{Name: "o", Shape: []int{attnHidden, a.hq * a.d}, Shard: nn.Unsharded})
	params.Build()
	nn.FromWhole(wqkv, a.wqkv)
	nn.FromWhole(wo, a.wo)
	return &nn.Attention[T]{QKV: nn.ColumnLinear[T]{Weights: nn.WeightsOf(a.width(), attnHidden, wqkv)},
		Out: nn.RowLinear[T]{Weights: nn.WeightsOf(attnHidden, a.hq*a.d, wo)}, Hq: a.hq, Hkv: a.hkv, D: a.d, CommType: how, Dropout: a.drop,
		Rope: nn.NewRopeTable[T](2*a.s+16*a.cp*a.align, a.d, attnBase)}, params
}

// slots is a rank's rows of a whole tensor, row = slot·B + b; inserted rows are noise of a size.
func slots[T tensor.Float](a *dense, rank int, whole []float64, noise float64) tensor.Mat[T] {
	rng := rand.New(rand.NewPCG(a.seed, 9))
	m := tensor.NewMat[T](a.l*a.b, attnHidden)
	for i, p := range a.src[rank] {
		for e := range attnHidden {
			v := noise * rng.NormFloat64()
			if p >= 0 {
				v = whole[(i/a.l*a.s+p)*attnHidden+e]
			}
			m.Row(i%a.l*a.b + i/a.l)[e] = T(v)
		}
	}
	return m
}

// keep puts a rank's rows to their positions; inserted ones must be numbers.
func (a *dense) keep(whole []float64, rank int, local []float64) {
	for i, p := range a.src[rank] {
		for e := range attnHidden {
			v := local[(i%a.l*a.b+i/a.l)*attnHidden+e]
			if p >= 0 {
				whole[(i/a.l*a.s+p)*attnHidden+e] = v
			} else if math.IsNaN(v) || math.IsInf(v, 0) {
				panic("an inserted slot is no number")
			}
		}
	}
}

func add(sum, x []float64) {
	for i, v := range x {
		sum[i] += v
	}
}

// everyWay compares all ways that the heads allow with dense attention.
func everyWay(t require.TestingT, a *dense) {
	a.src, a.l = trial.Slots(a.docs, a.b, a.s, a.cp, a.align)
	a.drawn()
	a.run()
	ways := []nn.CommType{nn.P2P, nn.GatherAll}
	if a.hkv%a.cp == 0 {
		ways = append(ways, nn.AllToAll)
	}
	for _, how := range ways {
		overRanks[float64](t, a, how, 1e-11)
	}
	overRanks[float32](t, a, nn.P2P, 2e-4)
}

func TestI22_AttentionOverRanksIsDenseAttention(t *testing.T) {
	property.Check(t, 80, func(t *rapid.T) {
		a := &dense{batch: drawBatch(t, 14), hkv: rapid.IntRange(1, 4).Draw(t, "key heads"), d: rapid.SampledFrom([]int{2, 4}).Draw(t, "channels")}
		a.hq = a.hkv * rapid.IntRange(1, 2).Draw(t, "queries per key")
		a.drop = nn.Dropout{Rate: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "dropout"), Seed: a.seed}
		everyWay(t, a)
	})
}

// Rows longer than the tiles that attention works in, cut in the middle of them, on up to four ranks.
func TestI22_LongRows(t *testing.T) {
	for cp := 1; cp <= 4; cp++ {
		for _, docs := range []nn.Docs{nil, {{{Start: 0, Logical: 140, Physical: 150}, {Start: 150, Logical: 70, Physical: 70}}}} {
			everyWay(t, &dense{batch: batch{docs: docs, b: 1, s: 300, cp: cp, align: 1, seed: uint64(cp)}, hq: 4, hkv: 4 - cp%2*3, d: 4,
				drop: nn.Dropout{Rate: float64(cp%2) * 0.2, Seed: 4}})
		}
	}
}
