package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/nn"
	"phalanx/tensor"
)

func TestNormGrad(t *testing.T) {
	for _, layerNorm := range []bool{false, true} {
		for _, zeroCentered := range []bool{false, true} {
			r := gradcheck.New(2, 3)
			n := nn.Norm[float64]{Gain: r.Declare("gain", 8), Eps: 1e-5, ZeroCentered: zeroCentered}
			if layerNorm {
				n.Bias = r.Declare("bias", 8)
			}
			r.Build()
			r.Check(t, r.Random(6, 8), func(x tensor.Mat[float64]) (tensor.Mat[float64], func(tensor.Mat[float64]) tensor.Mat[float64]) {
				y, s := n.Forward(r.C, x)
				return y, func(dy tensor.Mat[float64]) tensor.Mat[float64] { return n.Backward(r.C, s, dy) }
			})
		}
	}
}

// The row 1, 2, 3, 6 has mean 3, deviations −2, −1, 0, 3 and variance 14/4; its root mean square is √(50/4).
func TestNormsByHand(t *testing.T) {
	r := gradcheck.New(1, 1)
	gain, bias := r.Declare("gain", 4), r.Declare("bias", 4)
	r.Build()
	copy(gain.Data, []float64{1, 2, 0, -1})
	copy(bias.Data, []float64{0, 10, 20, 30})
	x := tensor.Mat[float64]{Rows: 1, Cols: 4, Data: []float64{1, 2, 3, 6}}
	sd, rms := math.Sqrt(14.0/4), math.Sqrt(50.0/4)
	for _, c := range []struct {
		norm nn.Norm[float64]
		want []float64
	}{
		{nn.Norm[float64]{Gain: gain}, []float64{1 / rms, 4 / rms, 0, -6 / rms}},
		{nn.Norm[float64]{Gain: gain, ZeroCentered: true}, []float64{2 / rms, 6 / rms, 3 / rms, 0}},
		{nn.Norm[float64]{Gain: gain, Bias: bias}, []float64{-2 / sd, 10 - 2/sd, 20, 30 - 3/sd}},
		{nn.Norm[float64]{Gain: gain, Bias: bias, ZeroCentered: true}, []float64{-4 / sd, 10 - 3/sd, 20, 30}},
	} {
		got, _ := c.norm.Forward(r.C, x)
		require.InDeltaSlice(t, c.want, got.Data, 1e-12)
		require.Equal(t, []float64{1, 2, 3, 6}, x.Data, "the input is not changed")
	}
}

func ffnGrad(t *testing.T, gated, biases bool) {
	r := gradcheck.New(2, 3)
	act := nn.Activation[float64]{Gated: gated}
	const h, f = 6, 5
	w1, w2 := r.Declare("w1", act.Width(f), h), r.Declare("w2", h, f)
	b1, b2 := r.Declare("b1", act.Width(f)), r.Declare("b2", h)
	r.Build()
	m := nn.MLP[float64]{Act: act, FC1: nn.ColumnLinear[float64]{Weights: nn.WeightsOf(act.Width(f), h, w1)},
		FC2: nn.RowLinear[float64]{Weights: nn.WeightsOf(h, f, w2)}}
	if biases {
		m.FC1.Bias, m.FC2.Bias = nn.BiasOf(b1), nn.BiasOf(b2)
	}
	r.Check(t, r.Random(6, h), func(x tensor.Mat[float64]) (tensor.Mat[float64], func(tensor.Mat[float64]) tensor.Mat[float64]) {
		y, s := m.Forward(r.C, x)
		return y, func(dy tensor.Mat[float64]) tensor.Mat[float64] { return m.Backward(r.C, s, dy) }
	})
}

func TestSwiGLUMLPGrad(t *testing.T)      { ffnGrad(t, true, false) }
func TestSquaredReLUMLPGrad(t *testing.T) { ffnGrad(t, false, false) }
func TestMLPBiasGrad(t *testing.T)        { ffnGrad(t, true, true) }

// turned are heads that RoPE turns whole, in halves.
func turned(d int) *nn.Rope { return &nn.Rope{Dim: d, Base: 10000} }

func attnGrad(t *testing.T, b, s, hq, hkv int, headNorms, biases bool, rope *nn.Rope, change ...func(*nn.Attention[float64])) {
	r := gradcheck.New(b, s)
	const h, d = 6, 4
	wq, wk, wv, wo := r.Declare("q", hq*d, h), r.Declare("k", hkv*d, h), r.Declare("v", hkv*d, h), r.Declare("o", h, hq*d)
	a := nn.Attention[float64]{Hq: hq, Hkv: hkv, D: d}
	if rope != nil {
		a.Rope = nn.RopeTableOf[float64](*rope, s)
	}
	bias := []*nn.Param[float64]{r.Declare("bq", hq*d), r.Declare("bk", hkv*d), r.Declare("bv", hkv*d)}
	if headNorms {
		a.QNorm = &nn.Norm[float64]{Gain: r.Declare("qn", d), Eps: 1e-5}
		a.KNorm = &nn.Norm[float64]{Gain: r.Declare("kn", d), Eps: 1e-5}
	}
	r.Build()
	a.QKV = nn.ColumnLinear[float64]{Weights: nn.WeightsOf((hq+2*hkv)*d, h, wq, wk, wv)}
	a.Out = nn.RowLinear[float64]{Weights: nn.WeightsOf(h, hq*d, wo)}
	if biases {
		a.QKV.Bias = nn.BiasOf(bias...)
	}
	for _, f := range change {
		f(&a)
	}
	r.Check(t, r.Random(b*s, h), func(x tensor.Mat[float64]) (tensor.Mat[float64], func(tensor.Mat[float64]) tensor.Mat[float64]) {
		y, saved := a.Forward(r.C, x)
		return y, func(dy tensor.Mat[float64]) tensor.Mat[float64] { return a.Backward(r.C, saved, dy) }
	})
}

func TestAttentionGrad(t *testing.T)          { attnGrad(t, 2, 3, 2, 1, false, false, turned(4)) }
func TestAttentionHeadNormsGrad(t *testing.T) { attnGrad(t, 2, 3, 4, 2, true, false, turned(4)) }
func TestAttentionBiasGrad(t *testing.T)      { attnGrad(t, 2, 3, 4, 2, true, true, turned(4)) }
func TestAttentionHalfTurnedGrad(t *testing.T) {
	attnGrad(t, 2, 3, 2, 1, false, true, turned(2))
}
func TestAttentionNeighboursTurnedGrad(t *testing.T) {
	attnGrad(t, 2, 3, 2, 1, true, false, &nn.Rope{Dim: 4, Base: 100, Interleaved: true, Scale: 8})
}
func TestAttentionWithoutPositionsGrad(t *testing.T) { attnGrad(t, 2, 3, 2, 1, false, true, nil) }
func TestAttentionDropoutGrad(t *testing.T) {
	attnGrad(t, 2, 5, 4, 2, false, false, turned(4), func(a *nn.Attention[float64]) { a.Dropout = nn.Dropout{Rate: 0.4, Seed: 3} })
}
func TestAttentionLongerThanATile(t *testing.T) {
	if testing.Short() {
		t.Skip("long sequence")
	}
	attnGrad(t, 1, 70, 1, 1, false, false, turned(4))
}

func TestHeadGrad(t *testing.T)         { headGrad(t, 0) }
func TestSmoothedHeadGrad(t *testing.T) { headGrad(t, nn.Smoothing(0.1, 7)) }

func headGrad(t *testing.T, smoothing float64) {
	r := gradcheck.New(2, 3)
	const h, v = 5, 7
	w := r.Declare("head", v, h)
	r.Build()
	labels := []int32{1, 2, 3, 4, 5, 6}
	mask := &nn.LossMask{B: 2, S: 3, Weight: []float32{1, 1, 0, 1, 0, 1}}
	x := r.Random(6, h)
	head := nn.Head[float64]{Table: w, Grad: w.Grad, Smoothing: smoothing}
	in := nn.HeadInput[float64]{Hidden: x, Labels: labels, Loss: mask, Weight: 0.25, Grad: true}
	loss := func() float64 {
		r.C.Arena.Reset()
		return head.Loss(r.C, nn.HeadInput[float64]{Hidden: x, Labels: labels, Loss: mask}).LossSum * 0.25
	}
	r.Params.ZeroGrads()
	out := head.Loss(r.C, in)
	require.EqualValues(t, 4, out.Tokens)
	dx := append([]float64(nil), out.DHidden.Data...)
	gradcheck.Near(t, "hidden", loss, x.Data, dx)
	gradcheck.Near(t, "table", loss, w.Data, append([]float64(nil), w.Grad...))
}

// The head works in chunks of rows; a long input must give what its rows give one by one.
func TestHeadChunksAgreeWithRows(t *testing.T) {
	const rows, h, v = 600, 4, 6
	r := gradcheck.New(1, rows)
	w := r.Declare("head", v, h)
	r.Build()
	x := r.Random(rows, h)
	labels := make([]int32, rows)
	for i := range labels {
		labels[i] = int32(i % v)
	}
	got := (&nn.Head[float64]{Table: w}).Loss(r.C, nn.HeadInput[float64]{Hidden: x, Labels: labels, Loss: &nn.LossMask{B: 1, S: rows, AllOnes: true}})
	want := 0.0
	for i := range rows {
		one := gradcheck.New(1, 1)
		want += (&nn.Head[float64]{Table: w}).Loss(one.C, nn.HeadInput[float64]{Hidden: x.Slice(i, i+1), Labels: labels[i : i+1],
			Loss: &nn.LossMask{B: 1, S: 1, AllOnes: true}}).LossSum
	}
	require.InDelta(t, want, got.LossSum, 1e-9*want)
}
