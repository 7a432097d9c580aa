package tensor_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/tensor"
)

// By hand: bfloat16 has 7 bits behind the point, so that 1 + 2⁻⁷ is the number after 1 and 1 + 2⁻⁸ lies half way.
func TestRoundBF16(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 0}, {1, 1}, {-2.5, -2.5},
		{1 + 1.0/256, 1},                         // a tie goes to the even one
		{1 + 3.0/256, 1 + 4.0/256},               // and up where that is even
		{1 + 1.0/256 + 1.0/(1<<20), 1 + 1.0/128}, // above a tie
		{1 + 1.0/256 - 1.0/(1<<20), 1},           // below it
		{-(1 + 3.0/256), -(1 + 4.0/256)},         // by magnitude
		{257, 256}, {258, 258}, {259, 260},       // whole numbers above 256 come in twos
		{math.MaxFloat32, math.Inf(1)},                              // nearer to 2¹²⁸ than to the largest bfloat16
		{math.Inf(-1), math.Inf(-1)},                                //
		{0x1p-133, 0x1p-133}, {0x1p-135, 0}, {0x1.8p-134, 0x1p-133}, // the smallest is 2⁻¹³³
	} {
		require.Equal(t, c.want, float64(tensor.RoundBF16(float32(c.x)).Float32()), "%v", c.x)
	}
	require.True(t, math.Signbit(float64(tensor.RoundBF16(float32(math.Copysign(0, -1))).Float32())))
	for _, bits := range []uint32{0x7fc00000, 0x7f800001, 0xffffffff} {
		x := tensor.RoundBF16(math.Float32frombits(bits)).Float32()
		require.True(t, x != x, "%08x", bits)
	}
}
