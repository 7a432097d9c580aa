package moe_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

const (
	rowsB, rowsS   = 2, 3
	gradientWeight = 0.5 // of the auxiliary losses in the objective
	divisor        = 2   // depths that share the layer
)

// objective is Σ probe·y + weight·(Σ coeff·balancing + coeff·z) of one forward.
func objective(r *gradcheck.Rig, l *moe.Layer[float64], x, probe tensor.Mat[float64]) (float64, any) {
	r.C.Sums = &nn.AuxSums{}
	y, saved := l.Forward(r.C, x)
	sum := l.Router.ZCoeff * r.C.Sums.Z
	for _, b := range l.Router.Balancing {
		sum += b.Coeff * r.C.Sums.Balancing[b.Kind]
	}
	sum *= gradientWeight
	for i, v := range y.Data {
		sum += v * probe.Data[i]
	}
	return sum, saved
}

// checkGradients compares the gradients of all weights and rows of several microbatches of one step with central
// differences of the sum of their objectives.
func checkGradients(t *testing.T, m mixture, pads ...*nn.PadMask) {
	t.Helper()
	r := gradcheck.New(rowsB, rowsS)
	r.C.Aux, r.C.Site.Phase = nn.AuxScale{Gradient: gradientWeight, Divisor: divisor}, nn.Forward
	l := m.on(r)
	xs, probes := make([]tensor.Mat[float64], len(pads)), make([]tensor.Mat[float64], len(pads))
	for i := range pads {
		xs[i], probes[i] = r.Random(rowsB*rowsS, hidden), r.Random(rowsB*rowsS, hidden)
	}
	forward := func(i int) (float64, any) {
		r.C.Site.Microbatch, r.C.Microbatch = i, i
		r.C.SetPad(pads[i])
		return objective(r, l, xs[i], probes[i])
	}
	loss := func() float64 {
		r.C.Arena.Reset()
		l.Router.StartStep(0)
		sum := 0.0
		for i := range pads {
			v, _ := forward(i)
			sum += v
		}
		return sum
	}
	r.Params.ZeroGrads()
	l.Router.StartStep(0)
	var dxs [][]float64
	for i := range pads {
		_, saved := forward(i)
		dxs = append(dxs, append([]float64(nil), l.Backward(r.C, saved, probes[i]).Data...))
	}
	for i := range pads {
		gradcheck.Near(t, fmt.Sprintf("input of microbatch %d", i), loss, xs[i].Data, dxs[i])
	}
	for _, p := range r.Params.List {
		gradcheck.Near(t, p.Name, loss, p.Data, append([]float64(nil), p.Grad...))
	}
}

func somePadding() *nn.PadMask {
	return &nn.PadMask{B: rowsB, S: rowsS, Pad: []bool{false, false, true, false, true, true}}
}

// allButOneRow leaves one row of the batch without a token.
func allButOneRow() *nn.PadMask {
	return &nn.PadMask{B: rowsB, S: rowsS, Pad: []bool{false, false, false, true, true, true}}
}

// tilted is an expert bias that changes choices: the checks below say so.
func tilted(e int) *moe.Bias[float64] {
	b := moe.NewBias[float64]("bias", e, 0.001)
	b.Use(0)
	for i := range b.Values {
		b.Values[i] = 0.3 * float64(i%3)
	}
	return b
}

func aux(kind moe.BalancingKind, coeff float64) []moe.Balancing {
	return []moe.Balancing{{Kind: kind, Coeff: coeff}}
}

// routers are routers that differ in one thing, by name.
func routers() map[string]mixture {
	all := map[string]mixture{}
	add := func(name string, e int, r moe.Router[float64]) { all[name] = mixture{e: e, router: r} }
	for name, f := range map[string]moe.ScoreFunc{"softmax": moe.Softmax, "sigmoid": moe.Sigmoid, "sqrtsoftplus": moe.SqrtSoftplus} {
		for _, k := range []int{1, 2} {
			pre := f == moe.Softmax && k == 1
			at := fmt.Sprintf("%s k=%d ", name, k)
			add(at, 4, moe.Router[float64]{K: k, Score: f, PreSoftmax: pre})
			add(at+"scaled", 4, moe.Router[float64]{K: k, Score: f, PreSoftmax: pre, Scaling: 2.5})
			add(at+"all losses", 4, moe.Router[float64]{K: k, Score: f, PreSoftmax: pre, ZCoeff: 0.2, Balancing: []moe.Balancing{
				{Kind: moe.AuxLoss, Coeff: 0.3}, {Kind: moe.SeqAuxLoss, Coeff: 0.7}, {Kind: moe.GlobalAuxLoss, Coeff: 0.11}}})
			if f != moe.Softmax {
				add(at+"bias", 4, moe.Router[float64]{K: k, Score: f, Bias: tilted(4)})
			}
			add(at+"groups", 6, moe.Router[float64]{K: k, Score: f, PreSoftmax: pre, Groups: moe.Groups{N: 3, Top: 1}})
		}
		add(name+" two groups", 8, moe.Router[float64]{K: 4, Score: f, Groups: moe.Groups{N: 4, Top: 2}, Balancing: aux(moe.AuxLoss, 0.3)})
	}
	add("softmax k=2 pre scaled", 4, moe.Router[float64]{K: 2, PreSoftmax: true, Scaling: 0.4})
	add("sigmoid groups bias", 6, moe.Router[float64]{K: 2, Score: moe.Sigmoid, Groups: moe.Groups{N: 3, Top: 2}, Bias: tilted(6), Scaling: 2.5})
	for name, b := range map[string]moe.Balancing{
		"aux": {Kind: moe.AuxLoss}, "seq_aux": {Kind: moe.SeqAuxLoss}, "seq_aux per row": {Kind: moe.SeqAuxLoss, PerRow: true}, "global_aux": {Kind: moe.GlobalAuxLoss},
	} {
		b.Coeff = 0.6
		add(name, 4, moe.Router[float64]{K: 2, Balancing: []moe.Balancing{b}})
	}
	add("z", 4, moe.Router[float64]{K: 2, ZCoeff: 0.4})
	add("jitter", 4, moe.Router[float64]{K: 2, Jitter: 0.3, Seed: 7, ZCoeff: 0.1, Balancing: aux(moe.AuxLoss, 0.3)})
	add("capacity by probability", 4, moe.Router[float64]{K: 2, PreSoftmax: true, Capacity: moe.Capacity{Factor: 0.7}, Balancing: aux(moe.AuxLoss, 0.3)})
	add("capacity by position", 4, moe.Router[float64]{K: 2, Score: moe.Sigmoid, Capacity: moe.Capacity{Factor: 0.7, ByPosition: true}, Balancing: aux(moe.SeqAuxLoss, 0.3)})
	return all
}

func each(t *testing.T, all map[string]mixture, check func(*testing.T, mixture)) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { check(t, all[name]) })
	}
}

// I19: what is attached to the graph is the gradient of what is reported, for every router.
func TestI19_RouterGradients(t *testing.T) {
	each(t, routers(), func(t *testing.T, m mixture) { checkGradients(t, m, somePadding()) })
}

func TestI19_RouterGradientsWithoutMask(t *testing.T) {
	each(t, routers(), func(t *testing.T, m mixture) { checkGradients(t, m, nil) })
}

// The running mean of global balancing is a constant of the gradient: two microbatches of one step, one of them with a
// row of padding alone.
func TestI19_GradientsOverMicrobatches(t *testing.T) {
	for _, kind := range []moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss} {
		for _, perRow := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, perRow), func(t *testing.T) {
				checkGradients(t, mixture{e: 4, router: moe.Router[float64]{K: 2, Score: moe.Sigmoid, Balancing: []moe.Balancing{{Kind: kind, Coeff: 0.8, PerRow: perRow}}}},
					somePadding(), allButOneRow())
			})
		}
	}
}

func TestI19_ExpertGradients(t *testing.T) {
	r := moe.Router[float64]{K: 2, Balancing: aux(moe.AuxLoss, 0.3)}
	each(t, map[string]mixture{
		"squared ReLU":         {e: 4, router: r, squared: true},
		"shared":               {e: 4, router: r, shared: true},
		"shared and gated":     {e: 4, router: r, shared: true, gate: true},
		"shared squared ReLU":  {e: 4, router: r, shared: true, gate: true, squared: true},
		"padding dropped":      {e: 4, router: r, drop: true},
		"more than there are":  {e: 11, router: r},
		"one expert":           {e: 1, router: moe.Router[float64]{K: 1, Score: moe.Sigmoid}},
		"every expert":         {e: 3, router: moe.Router[float64]{K: 3}},
		"dropped and shared":   {e: 4, router: r, drop: true, shared: true, gate: true},
		"dropped and capacity": {e: 4, router: moe.Router[float64]{K: 2, PreSoftmax: true, Capacity: moe.Capacity{Factor: 0.7}}, drop: true},
	}, func(t *testing.T, m mixture) { checkGradients(t, m, somePadding()) })
}

// The cases above mean something: bias, groups and capacity do change what is executed on this rig, and jitter the
// output.
func TestGradientCasesBite(t *testing.T) {
	run := func(m mixture) ([]float64, counted) {
		r := gradcheck.New(rowsB, rowsS)
		r.C.Site.Phase = nn.Forward
		l, seen := m.on(r), counted{}
		r.C.Obs = seen
		y, _ := l.Forward(r.C, r.Random(rowsB*rowsS, hidden))
		return append([]float64(nil), y.Data...), seen
	}
	all := routers()
	for with, without := range map[string]func(*mixture){
		"sigmoid k=1 bias": func(m *mixture) { m.router.Bias = nil }, "sqrtsoftplus k=2 bias": func(m *mixture) { m.router.Bias = nil },
		"sigmoid groups bias": func(m *mixture) { m.router.Bias = nil }, "sigmoid two groups": func(m *mixture) { m.router.Groups = moe.Groups{} },
		"capacity by probability": func(m *mixture) { m.router.Capacity = moe.Capacity{} },
		"capacity by position":    func(m *mixture) { m.router.Capacity.ByPosition = false },
	} {
		a, b := all[with], all[with]
		require.NotZero(t, a.e, with)
		without(&b)
		_, x := run(a)
		_, y := run(b)
		require.NotEqual(t, x["test.router.routing_map"], y["test.router.routing_map"], with)
	}
	a, b := all["jitter"], all["jitter"]
	b.router.Jitter = 0
	x, _ := run(a)
	y, _ := run(b)
	require.NotEqual(t, x, y)
}
