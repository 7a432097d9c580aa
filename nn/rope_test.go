package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/gradcheck"
	"phalanx/nn"
)

// headAt is a head turned at position p.
func headAt(t *testing.T, r nn.Rope, x []float64, p int) []float64 {
	t.Helper()
	out := append([]float64(nil), x...)
	nn.RopeTableOf[float64](r, p+1).Turn(out, p)
	return out
}

// Base 100 and 4 channels turn pairs by p and p/10: the values are cos and sin by hand.
func TestRopeTurnsPairs(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5, 6}
	c1, s1, c2, s2 := math.Cos(2), math.Sin(2), math.Cos(.2), math.Sin(.2)
	for _, c := range []struct {
		name string
		rope nn.Rope
		want []float64
	}{
		{"halves of the first four", nn.Rope{Dim: 4, Base: 100}, []float64{c1 - 3*s1, 2*c2 - 4*s2, 3*c1 + s1, 4*c2 + 2*s2, 5, 6}},
		{"neighbours", nn.Rope{Dim: 4, Base: 100, Interleaved: true}, []float64{c1 - 2*s1, 2*c1 + s1, 3*c2 - 4*s2, 4*c2 + 3*s2, 5, 6}},
		{"two channels", nn.Rope{Dim: 2, Base: 100}, []float64{c1 - 2*s1, 2*c1 + s1, 3, 4, 5, 6}},
	} {
		t.Run(c.name, func(t *testing.T) { require.InDeltaSlice(t, c.want, headAt(t, c.rope, x, 2), 1e-12) })
	}
}

// Llama 3.1's frequencies (base 500000, heads of 128, factor 8) have wavelengths 2π·base^(2i/128): below 2048 they stay,
// above 8192 they are an eighth, between they are mixed by how often they fit in 8192.
func TestLlamaScaling(t *testing.T) {
	for i := range 64 {
		f := math.Pow(500000, -2*float64(i)/128)
		length := 2 * math.Pi / f
		want := f
		switch {
		case length > 8192:
			want = f / 8
		case length > 2048:
			smooth := (8192/length - 1) / 3
			want = (1-smooth)*f/8 + smooth*f
		}
		table := nn.RopeTableOf[float64](nn.Rope{Dim: 128, Base: 500000, Scale: 8}, 2)
		require.InDelta(t, math.Sin(want), table.Sin[64+i], 1e-12, "pair %d", i)
	}
}

// A bias on queries, keys and values is the same as a constant feature of the input with the bias as its weight.
func TestQKVBiasIsAConstantFeature(t *testing.T) {
	const b, s, h, d, hq, hkv = 2, 3, 3, 2, 4, 2
	rig := gradcheck.New(b, s)
	wq, wk, wv, wo := rig.Declare("q", hq*d, h), rig.Declare("k", hkv*d, h), rig.Declare("v", hkv*d, h), rig.Declare("o", h, hq*d)
	rig.Build()
	bare := nn.Attention[float64]{Hq: hq, Hkv: hkv, D: d, Rope: nn.NewRopeTable[float64](s, d, 100)}
	bare.QKV.Weights = nn.WeightsOf((hq+2*hkv)*d, h, wq, wk, wv)
	bare.Out.Weights = nn.WeightsOf(h, hq*d, wo)
	x := rig.Random(b*s, h)
	biased, bias := bare, make([]float64, (hq+2*hkv)*d)
	for r := range x.Rows {
		x.Row(r)[h-1] = 1
	}
	biased.QKV.W = append([]float64(nil), bare.QKV.W...)
	for i := range bias {
		bias[i], biased.QKV.W[i*h+h-1] = biased.QKV.W[i*h+h-1], 0
	}
	biased.QKV.Bias = nn.Bias[float64]{B: bias, G: make([]float64, len(bias))}
	want, _ := bare.Forward(rig.C, x)
	got, _ := biased.Forward(rig.C, x)
	require.InDeltaSlice(t, want.Data, got.Data, 1e-12)
}
