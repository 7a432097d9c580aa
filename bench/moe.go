package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Limits of a layer: what is beyond takes minutes or gigabytes and says nothing new.
const (
	MoEExpertsMax = 1 << 10
	MoESizeMax    = 1 << 14 // of widths and tokens
	MoERanksMax   = 16
)

// ProcessorTime is a Clock of the processor time of this process, for work on one thread: what others do on a busy
// machine is not in it. It is the wall clock where the system does not tell.
func ProcessorTime() Clock {
	if cpuTime() == 0 {
		return time.Now
	}
	return func() time.Time { return time.Time{}.Add(cpuTime()) }
}

// MoEOptions say which layer is measured: Experts SwiGLU networks of Width hidden features over Hidden features, of
// which TopK see each of Tokens rows.
type MoEOptions struct {
	Experts, Width, TopK int
	Tokens, Hidden       int
	EP                   int // ranks of the expert group whose traffic is counted
	Reps                 int
	Now                  Clock // ProcessorTime, or a test's
}

// MoEResult compares a layer of experts with a dense one that does the same products.
type MoEResult struct {
	Experts    int       `json:"experts"`
	Width      int       `json:"width"`
	TopK       int       `json:"topk"`
	Tokens     int       `json:"tokens"`
	Hidden     int       `json:"hidden"`
	Reps       int       `json:"reps"`
	Threads    int       `json:"threads"`
	Kernel     string    `json:"kernel"`
	PeakGFlops float64   `json:"peak_gflops"`   // median of the FMA peaks measured before each repetition
	DenseMs    float64   `json:"dense_ms"`      // median, forward and backward
	DenseShare float64   `json:"dense_of_peak"` // its products' operations over its time
	MoEMs      float64   `json:"moe_ms"`        // the layer of experts, the same
	MoEShare   float64   `json:"moe_of_peak"`
	Ratio      float64   `json:"ratio"`       // median of layer of experts ÷ dense layer
	Busiest    float64   `json:"busiest"`     // rows of the fullest expert ÷ mean
	Parts      []MoEPart `json:"parts"`       // what the layer of experts spends its time on
	EP         int       `json:"ep"`          // of the traffic
	LeastBytes float64   `json:"least_bytes"` // a rank's share of what any dispatcher must send
	Traffic    []Traffic `json:"traffic"`     // by dispatcher
}

// MoEPart is a part of the layer, measured alone, or the rest of the layer's time.
type MoEPart struct {
	Name    string  `json:"name"`
	Ms      float64 `json:"ms"` // median
	OfLayer float64 `json:"of_layer"`
	OfPeak  float64 `json:"of_peak"` // 0: it does no products
}

// Check refuses sizes that say nothing.
func (o MoEOptions) Check() error {
	for _, s := range []struct {
		name      string
		size, max int
	}{{"experts", o.Experts, MoEExpertsMax}, {"width", o.Width, MoESizeMax}, {"topk", o.TopK, o.Experts}, {"tokens", o.Tokens, MoESizeMax},
		{"hidden", o.Hidden, MoESizeMax}, {"ep", o.EP, min(MoERanksMax, o.Experts)}} {
		if s.size < 1 || s.size > s.max {
			return fmt.Errorf("found --%s %d, expected 1 to %d", s.name, s.size, s.max)
		}
	}
	if o.Experts%o.EP != 0 {
		return fmt.Errorf("found --ep %d, expected a divisor of --experts %d", o.EP, o.Experts)
	}
	if o.Reps < GemmRepsMin {
		return fmt.Errorf("found --reps %d, expected %d or more: a median of fewer is noise", o.Reps, GemmRepsMin)
	}
	return nil
}

// flops are the operations of the experts' products, forward and backward, and those of the dense layer: three matrices
// of Width·Hidden for each of TopK rows a token, each multiplied once forward and twice backward.
func (o MoEOptions) flops() float64 {
	return 3 * 3 * kernel.GemmFlops(o.Tokens*o.TopK, o.Width, o.Hidden)
}

// MoE measures a layer of experts on one rank and one thread against a dense layer of TopK·Width hidden features, and
// counts what every dispatcher sends over EP ranks.
func MoE(ctx context.Context, o MoEOptions) (*MoEResult, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	threads := kernel.Threads()
	kernel.SetThreads(1)
	defer kernel.SetThreads(threads)
	r := &MoEResult{Experts: o.Experts, Width: o.Width, TopK: o.TopK, Tokens: o.Tokens, Hidden: o.Hidden, Reps: o.Reps, Threads: 1,
		Kernel: kernel.Active().String(), EP: o.EP}
	m := newMoEMeter(o)
	if err := m.measure(ctx, r); err != nil {
		return nil, err
	}
	var err error
	r.Traffic, r.LeastBytes, err = traffic(o)
	return r, err
}

// moeMeter is what is timed: both layers, and the parts of the layer of experts.
type moeMeter struct {
	o              MoEOptions
	experts, dense *layerRun
	parts          []part
}

// part is some of the layer's work, done alone.
type part struct {
	name  string
	flops float64
	run   func()
}

// layerRun is one layer with its rows.
type layerRun struct {
	layer nn.FFN[float32]
	c     *nn.Ctx[float32]
	x, dy tensor.Mat[float32]
}

func newMoEMeter(o MoEOptions) *moeMeter {
	rng := rand.New(rand.NewPCG(1, 0))
	x, dy := randomRows(rng, o.Tokens, o.Hidden, 1), randomRows(rng, o.Tokens, o.Hidden, 1)
	layer := newExperts(o, rng, o.Width, 1, moe.AllToAll)
	m := &moeMeter{o: o, experts: &layerRun{layer, newRankCtx(o, nn.Solo{}), x, dy}, dense: &layerRun{newDense(o, rng), newRankCtx(o, nn.Solo{}), x, dy}}
	m.parts = []part{{"products", o.flops(), newProducts(layer, m.experts).run}, {"router", 3 * kernel.GemmFlops(o.Tokens, o.Experts, o.Hidden), m.router(layer)},
		{"activation", 0, m.activation(layer)}}
	return m
}

// newRankCtx is a context for one microbatch of one row.
func newRankCtx(o MoEOptions, comm nn.Comm) *nn.Ctx[float32] {
	frames := nn.NewFrames(nil, 1, o.Tokens, 1, 1)
	return &nn.Ctx[float32]{Comm: comm, Arena: &tensor.Arena[float32]{}, B: 1, Frame: frames[0], Frames: frames, Scope: "bench",
		Site: nn.Site{Phase: nn.Forward}, Aux: nn.AuxScale{Gradient: 1, Divisor: 1}}
}

// randomRows are rows of normal numbers.
func randomRows(rng *rand.Rand, rows, cols int, scale float64) tensor.Mat[float32] {
	m := tensor.NewMat[float32](rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(scale * rng.NormFloat64())
	}
	return m
}

// weights are a random linear map that keeps the size of its rows.
func weights(rng *rand.Rand, out, in int) nn.Weights[float32] {
	w := randomRows(rng, out, in, 1/math.Sqrt(float64(in)))
	return nn.Weights[float32]{Out: out, In: in, W: w.Data, G: make([]float32, out*in)}
}

// swiGLU is the experts' activation.
var swiGLU = nn.Activation[float32]{Gated: true}

// newExperts is the layer of one rank of an expert group: width hidden features an expert, a random router.
func newExperts(o MoEOptions, rng *rand.Rand, width, ep int, d moe.Dispatcher) *moe.Layer[float32] {
	l := &moe.Layer[float32]{Place: moe.Place{Experts: o.Experts, EP: ep, ETP: 1}, Dispatcher: d, Act: swiGLU,
		Router: moe.Router[float32]{Weight: weights(rng, o.Experts, o.Hidden), K: o.TopK, PreSoftmax: true, Balancing: []moe.Balancing{{Kind: moe.AuxLoss, Coeff: 0.01}}}}
	for range o.Experts / ep {
		l.Experts = append(l.Experts, moe.Expert[float32]{FC1: weights(rng, swiGLU.Width(width), o.Hidden), FC2: weights(rng, o.Hidden, width)})
	}
	return l
}

// newDense is the layer that does the same products on all rows at once.
func newDense(o MoEOptions, rng *rand.Rand) *nn.MLP[float32] {
	f := o.TopK * o.Width
	return &nn.MLP[float32]{Act: swiGLU, FC1: nn.ColumnLinear[float32]{Weights: weights(rng, swiGLU.Width(f), o.Hidden)},
		FC2: nn.RowLinear[float32]{Weights: weights(rng, o.Hidden, f)}}
}

// run is one forward and backward.
func (r *layerRun) run() {
	r.c.Arena.Reset()
	_, saved := r.layer.Forward(r.c, r.x)
	r.layer.Backward(r.c, saved, r.dy)
}

// router is the router alone, forward and backward.
func (m *moeMeter) router(l *moe.Layer[float32]) func() {
	c, dprob := newRankCtx(m.o, nn.Solo{}), randomRows(rand.New(rand.NewPCG(2, 0)), m.o.Tokens, m.o.TopK, 1)
	return func() {
		c.Arena.Reset()
		_, saved := l.Router.Forward(c, m.experts.x)
		l.Router.Backward(c, saved, dprob.Data)
	}
}

// activation is the activation alone, forward and backward.
func (m *moeMeter) activation(l *moe.Layer[float32]) func() {
	rng, n, f := rand.New(rand.NewPCG(3, 0)), m.o.Tokens*m.o.TopK, m.o.Width
	z, a := randomRows(rng, n, l.Act.Width(f), 1), tensor.NewMat[float32](n, f)
	dz := tensor.NewMat[float32](n, l.Act.Width(f))
	return func() {
		l.Act.Forward(a, z)
		l.Act.Backward(dz, a, z)
	}
}

// measure times everything in turns.
func (m *moeMeter) measure(ctx context.Context, r *MoEResult) error {
	r.Busiest = m.busiest()
	works := append([]part{{"dense", 0, m.dense.run}, {"moe", 0, m.experts.run}}, m.parts...)
	for _, w := range works {
		w.run() // brings memory and caches in
	}
	ms, ratios, peaks := make([][]float64, len(works)), []float64{}, []float64{}
	peak := newPeakMeter(kernel.Active(), 1, repLength, m.o.Now)
	for range m.o.Reps {
		if err := ctx.Err(); err != nil {
			return err
		}
		peaks = append(peaks, peak.flops())
		for i, w := range works {
			ms[i] = append(ms[i], milliseconds(m.o.Now, w.run))
		}
		n := len(ratios)
		ratios = append(ratios, share(ms[1][n], ms[0][n]))
	}
	top := median(peaks)
	r.PeakGFlops, r.DenseMs, r.MoEMs, r.Ratio = top/giga, median(ms[0]), median(ms[1]), median(ratios)
	r.DenseShare, r.MoEShare = share(rate(m.o.flops(), r.DenseMs/1e3), top), share(rate(m.o.flops(), r.MoEMs/1e3), top)
	r.Parts = partsOf(m.parts, ms[2:], r.MoEMs, top)
	return nil
}

func milliseconds(now Clock, f func()) float64 {
	start := now()
	f()
	return float64(now().Sub(start)) / float64(time.Millisecond)
}

// partsOf are the parts' medians and what they leave: rows that are moved, added and scaled, and the plan.
func partsOf(parts []part, ms [][]float64, whole, peak float64) []MoEPart {
	var out []MoEPart
	rest := whole
	for i, p := range parts {
		took := median(ms[i])
		rest -= took
		q := MoEPart{Name: p.name, Ms: took, OfLayer: share(took, whole)}
		if p.flops > 0 {
			q.OfPeak = share(rate(p.flops, took/1e3), peak)
		}
		out = append(out, q)
	}
	return append(out, MoEPart{Name: "rows moved, added, scaled", Ms: rest, OfLayer: share(rest, whole)})
}

// busiest is the rows of the fullest expert over the mean.
func (m *moeMeter) busiest() float64 {
	most, counts := 0, rowsOf(m.experts.layer.(*moe.Layer[float32]), m.experts)
	for _, n := range counts {
		most = max(most, n)
	}
	return share(float64(most*len(counts)), float64(m.o.Tokens*m.o.TopK))
}

// rowsOf is how many rows each expert gets.
func rowsOf(l *moe.Layer[float32], r *layerRun) []int {
	r.c.Arena.Reset()
	route, _ := l.Router.Forward(r.c, r.x)
	counts := make([]int, l.Place.Experts)
	for _, e := range route.Expert {
		counts[e]++
	}
	return counts
}

// products are the matrix products of the layer and nothing else: rows lie by expert already.
type products struct {
	experts                    []moe.Expert[float32]
	counts                     []int
	x, z, a, y, dz, da, dx, dy tensor.Mat[float32]
}

func newProducts(l *moe.Layer[float32], r *layerRun) *products {
	p := &products{experts: l.Experts, counts: rowsOf(l, r)}
	rng, n, h, f := rand.New(rand.NewPCG(4, 0)), 0, r.x.Cols, l.Experts[0].FC2.In
	for _, c := range p.counts {
		n += c
	}
	p.x, p.dy, p.a, p.dz = randomRows(rng, n, h, 1), randomRows(rng, n, h, 1), randomRows(rng, n, f, 1), randomRows(rng, n, l.Act.Width(f), 1)
	p.z, p.y = tensor.NewMat[float32](n, l.Act.Width(f)), tensor.NewMat[float32](n, h)
	p.da, p.dx = tensor.NewMat[float32](n, f), tensor.NewMat[float32](n, h)
	return p
}

func (p *products) run() {
	at := 0
	for e, n := range p.counts {
		ex, rows := p.experts[e], func(m tensor.Mat[float32]) tensor.Mat[float32] { return m.Slice(at, at+n) }
		forward(ex.FC1, rows(p.x), rows(p.z))
		forward(ex.FC2, rows(p.a), rows(p.y))
		backward(ex.FC2, rows(p.a), rows(p.dy), rows(p.da))
		backward(ex.FC1, rows(p.x), rows(p.dz), rows(p.dx))
		at += n
	}
}

func forward(w nn.Weights[float32], x, y tensor.Mat[float32]) {
	kernel.Gemm(kernel.NT, x.Rows, w.Out, w.In, x.Data, x.Cols, w.W, w.In, y.Data, w.Out, false)
}

func backward(w nn.Weights[float32], x, dy, dx tensor.Mat[float32]) {
	w.WeightGrad(dy, x)
	kernel.Gemm(kernel.NN, dy.Rows, w.In, w.Out, dy.Data, dy.Cols, w.W, w.In, dx.Data, w.In, false)
}
