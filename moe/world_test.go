package moe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/collective"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

// world is a layer of experts over ranks, and the same layer written plainly over whole rows.
type world struct {
	sizes    mesh.Sizes
	sp       bool
	f        int // hidden features of an expert
	capacity moe.Capacity
	drop     bool
	order    uint64
	parts    []*part     // by data-parallel rank; their routings share the router's weight
	w1, w2   [][]float64 // by expert: [2f, width] gate rows then up rows, [width, f]

	dw1, dw2 [][]float64 // of the plain computation
	dw       []float64
}

// part is a replica's microbatch, rows b·S + position.
type part struct {
	*routing
	dy   []float64
	kept []bool  // [b·s, k]: not beyond an expert's capacity
	fill [][]int // by row: experts that it fills up
	y    []float64
	dx   []float64
}

// layouts are all that eight ranks can take: expert groups of 1, 2, 4 expert places and 1, 2 parts of an expert, laid
// over whatever ranks there are.
func layouts() []mesh.Sizes {
	var all []mesh.Sizes
	for _, tp := range []int{1, 2, 4} {
		for _, cp := range []int{1, 2} {
			for _, dp := range []int{1, 2, 4} {
				for _, ep := range []int{1, 2, 4} {
					for _, etp := range []int{1, 2} {
						n := tp * cp * dp
						if n <= 8 && n%(ep*etp) == 0 {
							all = append(all, mesh.Sizes{TP: tp, CP: cp, DP: dp, PP: 1, EP: ep, ETP: etp})
						}
					}
				}
			}
		}
	}
	return all
}

func drawWorld(t *rapid.T) *world {
	w := &world{sizes: rapid.SampledFrom(layouts()).Draw(t, "sizes"), drop: rapid.Bool().Draw(t, "drop padding"), order: rapid.Uint64().Draw(t, "order")}
	// Without sequence parallelism all tensor-parallel ranks have all rows, and their experts are whole.
	w.sp = w.sizes.TP > 1 && (w.sizes.Experts() > 1 || rapid.Bool().Draw(t, "sp"))
	e := w.sizes.EP * rapid.IntRange(1, 3).Draw(t, "experts of a place")
	w.f = w.sizes.ETP * rapid.IntRange(1, 2).Draw(t, "features of a part")
	if rapid.IntRange(0, 3).Draw(t, "capacity") == 0 {
		w.capacity = moe.Capacity{Factor: rapid.SampledFrom([]float64{0.3, 0.8, 1.5}).Draw(t, "factor"), ByPosition: rapid.Bool().Draw(t, "by position"),
			Pad: !w.drop && rapid.Bool().Draw(t, "pad")}
	}
	k, b, s := rapid.IntRange(1, min(e, 4)).Draw(t, "k"), rapid.IntRange(1, 2).Draw(t, "rows"), rapid.IntRange(1, 9).Draw(t, "positions")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
	crowded := rapid.IntRange(0, 2).Draw(t, "crowded") == 0
	packed := rapid.Bool().Draw(t, "packed")
	pre := k == 1 || rapid.Bool().Draw(t, "pre softmax")
	for range w.sizes.DP {
		r := &routing{b: b, s: s, tp: w.sizes.TP, cp: w.sizes.CP, sp: w.sp, e: e, k: k, pre: pre, aux: 0.7, z: 0.2, scale: 0.5, divisor: 2}
		if packed {
			r.docs = trial.DrawDocs(t, b, s)
		}
		padding := rapid.SampledFrom([]string{"some", "none", "all"}).Draw(t, "padding")
		for range b * s {
			r.valid = append(r.valid, padding == "none" || padding == "some" && rng.IntN(3) > 0)
		}
		w.parts = append(w.parts, &part{routing: r})
	}
	w.fill(rng, crowded)
	return w
}

// fill draws weights and rows. In a crowded world the first K experts get everything.
func (w *world) fill(rng *rand.Rand, crowded bool) {
	normals := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	e := w.parts[0].e
	gate := normals(e * width)
	for i := range e {
		w.w1, w.w2 = append(w.w1, normals(2*w.f*width)), append(w.w2, normals(width*w.f))
		if crowded && i >= w.parts[0].k {
			gate[i*width] -= 30
		}
	}
	for _, p := range w.parts {
		p.w, p.x, p.dy = gate, normals(p.b*p.s*width), normals(p.b*p.s*width)
		for i := 0; i < len(p.x); i += width {
			if crowded {
				p.x[i] = 1
			}
		}
	}
}

// swiglu is expert e of a row: its output, the hidden products and the activation.
func (w *world) swiglu(e int, x []float64) (y, h, a []float64) {
	h, a, y = make([]float64, 2*w.f), make([]float64, w.f), make([]float64, width)
	for o := range h {
		for i, v := range x {
			h[o] += v * w.w1[e][o*width+i]
		}
	}
	for i := range a {
		a[i] = h[i] / (1 + math.Exp(-h[i])) * h[w.f+i]
	}
	for o := range y {
		for i, v := range a {
			y[o] += v * w.w2[e][o*w.f+i]
		}
	}
	return y, h, a
}

// swigluGrad adds the gradients of expert e's weights and of its row.
func (w *world) swigluGrad(e int, x, dy, h, a, dx []float64) {
	da := make([]float64, w.f)
	for o, d := range dy {
		for i := range a {
			w.dw2[e][o*w.f+i] += d * a[i]
			da[i] += d * w.w2[e][o*w.f+i]
		}
	}
	for i, d := range da {
		g := 1 / (1 + math.Exp(-h[i]))
		for at, dh := range map[int]float64{i: d * h[w.f+i] * g * (1 + h[i]*(1-g)), w.f + i: d * h[i] * g} {
			for j, v := range x {
				w.dw1[e][at*width+j] += dh * v
				dx[j] += dh * w.w1[e][at*width+j]
			}
		}
	}
}

// plain computes everything: y, dx and the gradients of all weights.
func (w *world) plain() {
	e := w.parts[0].e
	w.dw, w.dw1, w.dw2 = make([]float64, e*width), make([][]float64, e), make([][]float64, e)
	for i := range e {
		w.dw1[i], w.dw2[i] = make([]float64, 2*w.f*width), make([]float64, width*w.f)
	}
	for _, p := range w.parts {
		p.y, p.dprob = make([]float64, len(p.x)), make([]float64, p.b*p.s*p.k)
		dx := make([]float64, len(p.x))
		p.keep(w.capacity)
		for i := range p.valid {
			if w.drop && !p.valid[i] {
				continue
			}
			x, dy, at := p.x[i*width:(i+1)*width], p.dy[i*width:(i+1)*width], p.route(p.x[i*width:(i+1)*width])
			for j, e := range at.chosen {
				if !p.kept[i*p.k+j] {
					continue
				}
				y, h, a := w.swiglu(e, x)
				scaled := make([]float64, width)
				for o, v := range y {
					p.y[i*width+o] += at.probs[j] * v
					p.dprob[i*p.k+j] += dy[o] * v
					scaled[o] = at.probs[j] * dy[o]
				}
				w.swigluGrad(e, x, scaled, h, a, dx[i*width:(i+1)*width])
			}
		}
		p.expert, p.prob, p.tokens, p.auxLoss, p.zLoss = nil, nil, 0, 0, 0
		p.run()
		for i, v := range p.routing.dw {
			w.dw[i] += v
		}
		p.dx = dx
		for i, v := range p.routing.dx {
			p.dx[i] += v
		}
	}
}

// keep decides what is within an expert's capacity: over all rows of the microbatch, position first.
func (p *part) keep(c moe.Capacity) {
	n := p.b * p.s
	p.kept, p.fill = make([]bool, n*p.k), make([][]int, n)
	for e := range p.e {
		type claim struct {
			place, at int
			prob      float64
		}
		var claims []claim
		for i := range n {
			r := p.route(p.x[i*width : (i+1)*width])
			for j, x := range r.chosen {
				if x == e {
					mantissa, exp := math.Frexp(r.probs[j])
					compared := math.Ldexp(math.Round(math.Ldexp(mantissa, 33)), exp-33) // 32 bits behind the leading one
					claims = append(claims, claim{i%p.s*p.b + i/p.s, i*p.k + j, compared})
				}
			}
		}
		sort.Slice(claims, func(i, j int) bool {
			a, b := claims[i], claims[j]
			if !c.ByPosition && a.prob != b.prob {
				return a.prob > b.prob
			}
			return a.place < b.place
		})
		limit := math.Ceil(float64(n) * float64(p.k) / float64(p.e) * c.Factor)
		rows := make([]int, n) // by place: 0, or 1 for a claim
		for i, cl := range claims {
			p.kept[cl.at] = c.Factor == 0 || float64(i) < limit
			rows[cl.place] = 1
		}
		for i, full := 0, len(claims); c.Pad && i < n && float64(full) < limit; i++ {
			if place := (e*n/p.e + i) % n; rows[place] == 0 {
				row := place%p.b*p.s + place/p.b
				p.fill[row] = append(p.fill[row], e)
				full++
			}
		}
	}
}

// flow is one kind of message from one rank to another.
type flow struct {
	tag      nn.Tag
	phase    nn.Phase
	src, dst int
}

// volume is how many there were, and their bytes.
type volume struct{ messages, bytes int }

// result is what the ranks computed, joined.
type result struct {
	y, dx    [][]float64 // by replica
	dw       []float64
	dw1, dw2 [][]float64
	rows     [][]int // by rank: the row b·S + position that each local row is; −1: none
	flows    map[flow]volume
	computed [][]float64           // by replica and expert: rows
	params   []*nn.Params[float64] // by rank
}

// arenas are memory that is full of NaN wherever a layer gets some: what is not written is seen.
type arenas []*tensor.Arena[float64]

func (a arenas) poisoned(rank int) *tensor.Arena[float64] {
	a[rank].Reset()
	for i, x := 0, a[rank].Alloc(1<<14); i < len(x); i++ {
		x[i] = math.NaN()
	}
	a[rank].Reset()
	return a[rank]
}

func newArenas() arenas {
	all := make(arenas, 8)
	for i := range all {
		all[i] = &tensor.Arena[float64]{}
	}
	return all
}

// overRanks runs the layer on every rank, forward and backward.
func (w *world) overRanks(t require.TestingT, d moe.Dispatcher, mem arenas, order uint64) *result {
	e := w.parts[0].e
	out := &result{dw: make([]float64, e*width), flows: map[flow]volume{}, rows: make([][]int, w.sizes.World()),
		params: make([]*nn.Params[float64], w.sizes.World())}
	for range e {
		out.dw1, out.dw2 = append(out.dw1, make([]float64, 2*w.f*width)), append(out.dw2, make([]float64, width*w.f))
	}
	for _, p := range w.parts {
		out.y, out.dx = append(out.y, make([]float64, len(p.x))), append(out.dx, make([]float64, len(p.x)))
		out.computed = append(out.computed, make([]float64, e))
	}
	err := inproc.Run(w.sizes, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) { w.onRank(c, rank, d, mem.poisoned(rank), out) }}
	}, inproc.Options{Seed: order, Overtake: order%2 == 1, Sent: func(h messages.Header, payload []byte) {
		name := collective.NameIn(h)
		f := flow{name.Tag, name.Site.Phase, int(h.Src), int(h.Dst)}
		v := out.flows[f]
		out.flows[f] = volume{v.messages + 1, v.bytes + len(payload)}
	}})
	require.NoError(t, err)
	for rank, params := range out.params {
		if at := w.sizes.Coord(rank); w.sp || at.TP == 0 { // else every tensor-parallel rank has the same
			w.gather(at.EP, params, out)
		}
	}
	out.params = nil
	return out
}

func (w *world) onRank(c nn.Comm, rank int, d moe.Dispatcher, a *tensor.Arena[float64], out *result) {
	at := w.sizes.Coord(rank)
	p := w.parts[at.DP]
	ctx := p.context(c, at, a)
	seen := counted{}
	ctx.Site.Phase, ctx.Obs = nn.Forward, seen
	rows := p.localRows(ctx, at)
	out.rows[rank] = rows
	x, dy := a.Mat(len(rows), width), a.Mat(len(rows), width)
	clear(x.Data)
	clear(dy.Data)
	for i, g := range rows {
		if g >= 0 {
			copy(x.Row(i), p.x[g*width:])
			copy(dy.Row(i), p.dy[g*width:])
		}
	}
	layer, params := w.layer(at.EP, d)
	y, saved := layer.Forward(ctx, x)
	ctx.Site.Phase = nn.Backward
	dx := layer.Backward(ctx, saved, dy)
	for i, g := range rows {
		if g >= 0 {
			copy(out.y[at.DP][g*width:], y.Row(i))
			copy(out.dx[at.DP][g*width:], dx.Row(i))
		}
	}
	for e, n := range seen["test.experts.rows"] {
		if w.sp || at.TP == 0 {
			out.computed[at.DP][e] += n
		}
	}
	out.params[rank] = params
}

// context is that of a rank.
func (r *routing) context(c nn.Comm, at mesh.Coord, a *tensor.Arena[float64]) *nn.Ctx[float64] {
	align := 1
	if r.sp {
		align = r.tp
	}
	frames := nn.NewFrames(r.docs, r.b, r.s, r.cp, align)
	ctx := &nn.Ctx[float64]{Comm: c, Arena: a, B: r.b, Frame: frames[at.CP], Frames: frames, SP: r.sp, Scope: "test",
		Aux: nn.AuxScale{Gradient: r.scale, Divisor: r.divisor}}
	pad := (&nn.Validity{B: r.b, S: r.s, Valid: r.valid}).PadMask().Local(ctx.Frame)
	if r.sp {
		pad = pad.Shard(at.TP, r.tp)
	}
	ctx.SetPad(pad)
	return ctx
}

// localRows is the row of the whole that each local row is, by package trial's arithmetic.
func (r *routing) localRows(ctx *nn.Ctx[float64], at mesh.Coord) []int {
	align := 1
	if r.sp {
		align = r.tp
	}
	src, l := trial.Slots(r.docs, r.b, r.s, r.cp, align)
	from, n := ctx.SPRows()
	rows := make([]int, n)
	for i := range rows {
		b, slot := (from+i)%r.b, (from+i)/r.b
		rows[i] = -1
		if p := src[at.CP][b*l+slot]; p >= 0 {
			rows[i] = b*r.s + p
		}
	}
	return rows
}

// layer is a rank's: place is its place in the expert group.
func (w *world) layer(place int, d moe.Dispatcher) (*moe.Layer[float64], *nn.Params[float64]) {
	r, params := w.parts[0], &nn.Params[float64]{}
	declare := func(name string, shape ...int) *nn.Param[float64] {
		return params.Declare(nn.Spec{Name: name, Shape: shape, Shard: nn.Unsharded})
	}
	gate := declare("gate", r.e, width)
	n, f := r.e/w.sizes.EP, w.f/w.sizes.ETP
	var fc1, fc2 []*nn.Param[float64]
	for i := range n {
		fc1, fc2 = append(fc1, declare(fmt.Sprint("a", i), 2*f, width)), append(fc2, declare(fmt.Sprint("b", i), width, f))
	}
	params.Build()
	copy(gate.Data, r.w)
	l := &moe.Layer[float64]{Place: moe.Place{Experts: r.e, EP: w.sizes.EP, ETP: w.sizes.ETP}, Dispatcher: d, DropPadding: w.drop,
		Act: nn.Activation[float64]{Gated: true}, Router: moe.Router[float64]{Weight: nn.WeightsOf(r.e, width, gate), K: r.k, PreSoftmax: r.pre,
			ZCoeff: r.z, Balancing: aux(moe.AuxLoss, r.aux), Capacity: w.capacity}}
	for i := range n {
		w.eachCut(place, i, func(e, whole, local int, second bool) {
			if second {
				fc2[i].Data[local] = w.w2[e][whole]
			} else {
				fc1[i].Data[local] = w.w1[e][whole]
			}
		})
		l.Experts = append(l.Experts, moe.Expert[float64]{FC1: nn.WeightsOf(2*f, width, fc1[i]), FC2: nn.WeightsOf(width, f, fc2[i])})
	}
	return l, params
}

// eachCut visits every element of a rank's i-th expert: which expert it is, and the element's index in the whole and in
// the part. Hidden features are cut: rows of the gate, rows of the up product, columns of the second.
func (w *world) eachCut(place, i int, visit func(e, whole, local int, second bool)) {
	n, f := w.parts[0].e/w.sizes.EP, w.f/w.sizes.ETP
	e, first := place/w.sizes.ETP*n+i, place%w.sizes.ETP*f
	for o := range f {
		for j := range width {
			visit(e, (first+o)*width+j, o*width+j, false)
			visit(e, (w.f+first+o)*width+j, (f+o)*width+j, false)
			visit(e, j*w.f+first+o, j*f+o, true)
		}
	}
}

// gather adds a rank's gradients.
func (w *world) gather(place int, params *nn.Params[float64], out *result) {
	for i, v := range params.ByName("gate").Grad {
		out.dw[i] += v
	}
	for i := range w.parts[0].e / w.sizes.EP {
		g1, g2 := params.ByName(fmt.Sprint("a", i)).Grad, params.ByName(fmt.Sprint("b", i)).Grad
		w.eachCut(place, i, func(e, whole, local int, second bool) {
			if second {
				out.dw2[e][whole] += g2[local]
			} else {
				out.dw1[e][whole] += g1[local]
			}
		})
	}
}

// near compares two results. Errors are relative to the largest element, or to 1: where a softmax is saturated a
// gradient is the rounding of larger numbers.
func (r *result) near(t require.TestingT, what string, want *result, tolerance float64) {
	check := func(name string, i int, got, want []float64) {
		scale := 1.0
		for _, v := range want {
			scale = max(scale, math.Abs(v))
		}
		require.Len(t, got, len(want))
		for j, v := range want {
			require.False(t, !(math.Abs(got[j]-v) <= tolerance*scale), "%s: %s %d[%d] is %v, want %v", what, name, i, j, got[j], v)
		}
	}
	for i := range want.y {
		check("output of replica", i, r.y[i], want.y[i])
		check("input gradient of replica", i, r.dx[i], want.dx[i])
	}
	check("router gradient", 0, r.dw, want.dw)
	for e := range want.dw1 {
		check("first gradient of expert", e, r.dw1[e], want.dw1[e])
		check("second gradient of expert", e, r.dw2[e], want.dw2[e])
	}
}

// asPlain is the plain computation as a result.
func (w *world) asPlain() *result {
	w.plain()
	r := &result{dw: w.dw, dw1: w.dw1, dw2: w.dw2}
	for _, p := range w.parts {
		r.y, r.dx = append(r.y, p.y), append(r.dx, p.dx)
	}
	return r
}
