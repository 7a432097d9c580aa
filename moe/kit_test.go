package moe_test

import (
	"fmt"
	"math"

	"phalanx/internal/gradcheck"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

// mixture is a small mixture of experts on one rank: what differs between tests.
type mixture struct {
	e            int                 // experts
	router       moe.Router[float64] // without its weight
	shared, gate bool                // shared expert, and its gate
	squared      bool                // squared ReLU instead of SwiGLU
	drop         bool                // DropPadding
}

// on builds the mixture on a rig: hidden features in, ffn hidden features of an expert, 2·ffn of the shared one.
func (m mixture) on(r *gradcheck.Rig) *moe.Layer[float64] {
	act := nn.Activation[float64]{Gated: !m.squared}
	l := &moe.Layer[float64]{Router: m.router, Place: moe.Place{Experts: m.e, EP: 1, ETP: 1}, Act: act, DropPadding: m.drop}
	gate := r.Declare("gate", m.e, hidden)
	var w1, w2 []*nn.Param[float64]
	for e := range m.e {
		w1 = append(w1, r.Declare(fmt.Sprintf("w1.%d", e), act.Width(ffn), hidden))
		w2 = append(w2, r.Declare(fmt.Sprintf("w2.%d", e), hidden, ffn))
	}
	s1, s2 := r.Declare("shared.w1", act.Width(2*ffn), hidden), r.Declare("shared.w2", hidden, 2*ffn)
	sg := r.Declare("shared.gate", 1, hidden)
	r.Build()
	l.Router.Weight = nn.WeightsOf(m.e, hidden, gate)
	for e := range m.e {
		l.Experts = append(l.Experts, moe.Expert[float64]{FC1: nn.WeightsOf(act.Width(ffn), hidden, w1[e]), FC2: nn.WeightsOf(hidden, ffn, w2[e])})
	}
	if m.shared {
		l.Shared = &moe.Shared[float64]{MLP: &nn.MLP[float64]{Act: act, FC1: nn.ColumnLinear[float64]{Weights: nn.WeightsOf(act.Width(2*ffn), hidden, s1)},
			FC2: nn.RowLinear[float64]{Weights: nn.WeightsOf(hidden, 2*ffn, s2)}}}
	}
	if m.gate {
		g := nn.WeightsOf(1, hidden, sg)
		l.Shared.Gate = &g
	}
	return l
}

// batch is rows of logits, [b][s][e], and which of them are padding: nil for none.
type batch struct {
	logits [][][]float64
	pad    []bool // [b, s]
}

func (b batch) experts() int { return len(b.logits[0][0]) }

// one is a microbatch of one row.
func one(pad []bool, logits ...[]float64) batch { return batch{[][][]float64{logits}, pad} }

// logs are rows of probabilities as logits: their softmax is what is given.
func logs(rows ...[]float64) [][]float64 {
	out := make([][]float64, len(rows))
	for i, r := range rows {
		for _, p := range r {
			out[i] = append(out[i], math.Log(p))
		}
	}
	return out
}

// odds are scores as logits of a sigmoid.
func odds(scores ...float64) []float64 {
	var out []float64
	for _, p := range scores {
		out = append(out, math.Log(p/(1-p)))
	}
	return out
}

// outcome is what a router did with a batch.
type outcome[T tensor.Float] struct {
	route moe.Routing[T]
	sums  nn.AuxSums
	seen  counted
	grad  []T // of the router's weight, the gradient of every probability being zero
}

// rig is a router on one rank: its weight is the identity, so that its logits are its rows.
type rig[T tensor.Float] struct {
	router *moe.Router[T]
	params *nn.Params[T]
	c      *nn.Ctx[T]
}

// onLogits is a rig for e experts.
func onLogits[T tensor.Float](e int, r moe.Router[T]) *rig[T] {
	params := &nn.Params[T]{}
	gate := params.Declare(nn.Spec{Name: "gate", Shape: []int{e, e}, Shard: nn.Unsharded})
	params.Build()
	for i := range e {
		gate.Data[i*e+i] = 1
	}
	r.Weight = nn.WeightsOf(e, e, gate)
	return &rig[T]{router: &r, params: params, c: &nn.Ctx[T]{Comm: nn.Solo{}, Arena: &tensor.Arena[T]{}, Scope: "test",
		Site: nn.Site{Phase: nn.Forward}, Aux: nn.AuxScale{Gradient: 1, Divisor: 1}}}
}

// run is one microbatch, forward and backward.
func (g *rig[T]) run(x batch) outcome[T] {
	out, backward := g.forward(x)
	g.params.ZeroGrads()
	backward(make([]T, len(out.route.Expert)))
	out.grad = append([]T(nil), g.params.List[0].Grad...)
	return out
}

// forward is one microbatch forward, and how to go back from gradients of its probabilities.
func (g *rig[T]) forward(x batch) (outcome[T], func(dprob []T)) {
	b, s, e := len(x.logits), len(x.logits[0]), x.experts()
	c := g.c
	c.B, c.Frames = b, nn.NewFrames(nil, b, s, 1, 1)
	c.Frame = c.Frames[0]
	c.SetPad(nil)
	if x.pad != nil {
		c.SetPad(&nn.PadMask{B: b, S: s, Pad: x.pad})
	}
	out := outcome[T]{seen: counted{}}
	c.Obs, c.Sums = out.seen, &nn.AuxSums{}
	rows := tensor.NewMat[T](b*s, e)
	for i, row := range x.logits {
		for j, logits := range row {
			for f, v := range logits {
				rows.Row(j*b + i)[f] = T(v)
			}
		}
	}
	c.Arena.Reset()
	route, state := g.router.Forward(c, rows)
	out.route, out.sums = route, *c.Sums
	return out, func(dprob []T) { g.router.Backward(c, state, dprob) }
}

// tape is a recording: the choices of every forward, by row of the whole microbatch.
type tape map[moe.Forward][]int32

func (p tape) recorder(k int) *moe.Replay {
	return &moe.Replay{Record: func(f moe.Forward, rows []int, experts []int32) {
		for i, row := range rows {
			for len(p[f]) < (row+1)*k {
				p[f] = append(p[f], -1)
			}
			if row >= 0 {
				copy(p[f][row*k:], experts[i*k:(i+1)*k])
			}
		}
	}}
}

func (p tape) player(k int) *moe.Replay {
	return &moe.Replay{Play: func(f moe.Forward, rows []int, experts []int32) {
		for i, row := range rows {
			if row >= 0 {
				copy(experts[i*k:(i+1)*k], p[f][row*k:])
			}
		}
	}}
}

// get is an observed quantity.
func (o outcome[T]) get(name string) []float64 { return o.seen["test."+name] }
