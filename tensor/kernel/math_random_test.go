package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Known answers of Philox4x32-10 as published with Random123 (kat_vectors).
func TestPhiloxKnownAnswers(t *testing.T) {
	const ones = 0xffffffff
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		require.Equal(t, c.want, Philox(c.key, c.ctr))
	}
}

// Quantiles computed with 300 bits by Newton's method on erfc.
func TestNormalFromUniformTable(t *testing.T) {
	for u, want := range map[float64]float64{
		5e-324: -38.467405617144346251, 1e-300: -37.047096299361199237, 1e-50: -14.933337534788488981,
		1e-20: -9.2623400897984075796, 1e-12: -7.0344838253011319326, 1e-10: -6.3613409024040561991,
		1e-05: -4.2648907939228246102, 0.001: -3.0902323061678135354, 0.02: -2.0537489106318230443,
		0.05: -1.644853626951472688, 0.0757: -1.4346039092234388157, 0.08: -1.4050715603096325447,
		0.1: -1.2815515655446004353, 0.25: -0.6744897501960817432, 0.4: -0.25334710313579974132,
		0.499: -0.0025066308995717662317, 0.49999999: -2.5066282733116223143e-8, 0.5: 0,
	} {
		require.InDelta(t, want, NormalFromUniform(u), 1e-10, "u=%g", u)
		if u > 1e-12 {
			require.InDelta(t, -want, NormalFromUniform(1-u), 1e-10+1e-15/u, "u=1-%g", u)
		}
	}
}

// The density turns the error of the distribution function, from erfc, into one of the quantile.
func TestNormalFromUniformInverts(t *testing.T) {
	last := math.Inf(-1)
	for i := 1; i < 20000; i++ {
		u := float64(i) / 20000
		x := NormalFromUniform(u)
		density := math.Exp(-x*x/2) / math.Sqrt(2*math.Pi)
		require.Less(t, math.Abs(0.5*math.Erfc(-x/math.Sqrt2)-u)/density, 1e-10, "u=%v", u)
		require.Greater(t, x, last, "monotone at u=%v", u)
		last = x
	}
}

func TestNormalFromUniformEdges(t *testing.T) {
	require.Equal(t, math.Inf(-1), NormalFromUniform(0))
	require.Equal(t, math.Inf(1), NormalFromUniform(1))
	for _, u := range []float64{-1e-9, 1.000001, math.NaN()} {
		require.True(t, math.IsNaN(NormalFromUniform(u)))
	}
}
