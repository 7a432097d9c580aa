package moe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

const (
	hidden  = 5
	experts = 4
	ffn     = 3
)

// newLayer is a small mixture of experts on a rig.
func newLayer(r *gradcheck.Rig, k int, pre bool, aux, z float64) *moe.Layer[float64] {
	l := &moe.Layer[float64]{Act: nn.Activation[float64]{Gated: true}}
	gate := r.Declare("gate", experts, hidden)
	var w1, w2 []*nn.Param[float64]
	for e := range experts {
		w1 = append(w1, r.Declare("w1."+string(rune('a'+e)), 2*ffn, hidden))
		w2 = append(w2, r.Declare("w2."+string(rune('a'+e)), hidden, ffn))
	}
	r.Build()
	l.Router = moe.Router[float64]{Weight: nn.WeightsOf(experts, hidden, gate), K: k, PreSoftmax: pre, ZCoeff: z,
		Balancing: []moe.Balancing{{Kind: moe.AuxLoss, Coeff: aux}}}
	l.Place = moe.Place{Experts: experts, EP: 1, ETP: 1}
	for e := range experts {
		l.Experts = append(l.Experts, moe.Expert[float64]{FC1: nn.WeightsOf(2*ffn, hidden, w1[e]), FC2: nn.WeightsOf(hidden, ffn, w2[e])})
	}
	return l
}

// The gradient of Σ probe·y + scale·(aux + z) against finite differences, with padding rows in between.
func moeGrad(t *testing.T, k int, pre bool, pad *nn.PadMask) {
	r := gradcheck.New(2, 3)
	r.C.SetPad(pad)
	r.C.Aux = nn.AuxScale{Gradient: 0.5, Divisor: 2}
	const aux, z = 0.3, 0.2
	l := newLayer(r, k, pre, aux, z)
	x := r.Random(6, hidden)
	probe := r.Random(6, hidden)
	loss := func() float64 {
		r.C.Arena.Reset()
		r.C.Sums = &nn.AuxSums{}
		y, _ := l.Forward(r.C, x)
		sum := 0.5 * (aux*r.C.Sums.Balancing[0] + z*r.C.Sums.Z)
		for i, v := range y.Data {
			sum += v * probe.Data[i]
		}
		return sum
	}
	_, saved := l.Forward(r.C, x)
	r.Params.ZeroGrads()
	dx := append([]float64(nil), l.Backward(r.C, saved, probe).Data...)
	gradcheck.Near(t, "input", loss, x.Data, dx)
	for _, p := range r.Params.List {
		gradcheck.Near(t, p.Name, loss, p.Data, append([]float64(nil), p.Grad...))
	}
}

func TestMoEGrad(t *testing.T)           { moeGrad(t, 2, false, nil) }
func TestMoEPreSoftmaxGrad(t *testing.T) { moeGrad(t, 2, true, nil) }
func TestMoETopOnePreSoftmaxGrad(t *testing.T) {
	moeGrad(t, 1, true, nil)
}
func TestMoEPaddedGrad(t *testing.T) {
	moeGrad(t, 2, false, &nn.PadMask{B: 2, S: 3, Pad: []bool{false, false, true, false, true, true}})
}

// routed runs the router alone on given logits: hidden features are the logits, the weight is the identity.
func routed(t *testing.T, logits [][]float64, pad []bool, k int) (*nn.AuxSums, *seen) {
	t.Helper()
	e := len(logits[0])
	r := gradcheck.New(1, len(logits))
	gate := r.Declare("gate", e, e)
	r.Build()
	clear(gate.Data)
	for i := range e {
		gate.Data[i*e+i] = 1
	}
	r.C.SetPad(&nn.PadMask{B: 1, S: len(logits), Pad: pad})
	r.C.Sums = &nn.AuxSums{}
	s := &seen{}
	r.C.Obs = s
	x := tensor.NewMat[float64](len(logits), e)
	for i, l := range logits {
		copy(x.Row(i), l)
	}
	router := moe.Router[float64]{Weight: nn.WeightsOf(e, e, gate), K: k, PreSoftmax: true, ZCoeff: 1,
		Balancing: []moe.Balancing{{Kind: moe.AuxLoss, Coeff: 1}}}
	_, saved := router.Forward(r.C, x)
	r.Params.ZeroGrads()
	router.Backward(r.C, saved, make([]float64, len(logits)*k))
	s.grad = gate.Grad
	return r.C.Sums, s
}

type seen struct {
	obs  []nn.Observation
	grad []float64
}

func (s *seen) Wants(string, int) bool   { return true }
func (s *seen) Observe(o nn.Observation) { s.obs = append(s.obs, o) }
func (s *seen) get(t *testing.T, name string) []float64 {
	t.Helper()
	for _, o := range s.obs {
		if o.Name == "test."+name {
			return o.Values
		}
	}
	require.Fail(t, "not observed", name)
	return nil
}

// b1 is the scenario of NVIDIA/Megatron-LM#1984: five valid rows with logit 2 on expert t mod 4, then padding with
// logit 5 on expert 0. The expected numbers are derived by hand.
func b1(pads int) (logits [][]float64, pad []bool) {
	for i := range 5 + pads {
		row := make([]float64, 4)
		if i < 5 {
			row[i%4] = 2
		} else {
			row[0] = 5
		}
		logits, pad = append(logits, row), append(pad, i >= 5)
	}
	return logits, pad
}

func TestPaddingDoesNotCount(t *testing.T) {
	sums, s := routed(t, first(b1(3)), second(b1(3)), 1)
	require.Equal(t, []float64{2, 1, 1, 1}, s.get(t, "router.tokens_per_expert"))
	require.InDelta(t, 1.073798, sums.Balancing[0], 1e-6)
	require.InDelta(t, 5.479124, sums.Z, 1e-6)
	// More padding changes no bit.
	more, m := routed(t, first(b1(9)), second(b1(9)), 1)
	require.Equal(t, *sums, *more)
	require.Equal(t, s.grad, m.grad)
}

func TestAllPaddingIsZero(t *testing.T) {
	logits, pad := b1(3)
	for i := range pad {
		pad[i] = true
	}
	sums, s := routed(t, logits, pad, 1)
	require.Equal(t, nn.AuxSums{}, *sums)
	require.Equal(t, make([]float64, 16), s.grad)
	require.Equal(t, []float64{0}, s.get(t, "router.valid_tokens"))
}

func TestTiesGoToTheLowestIndex(t *testing.T) {
	_, s := routed(t, [][]float64{{1, 3, 3, 3}}, []bool{false}, 2)
	require.Equal(t, []float64{0, 1, 1, 0}, s.get(t, "router.routing_map"))
}

func first(a [][]float64, _ []bool) [][]float64 { return a }
func second(_ [][]float64, b []bool) []bool     { return b }
