package convert

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func bytes32(bits ...uint32) []byte {
	var b []byte
	for _, v := range bits {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// TestEveryBF16: all 65536 bf16 come back through fp32, NaNs with their bits.
func TestEveryBF16(t *testing.T) {
	var all []byte
	for v := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(v))
	}
	wide, back := make([]byte, 2*len(all)), make([]byte, len(all))
	require.NoError(t, convert(wide, "F32", all, "BF16"))
	require.NoError(t, convert(back, "BF16", wide, "F32"))
	require.Equal(t, all, back)
}

// TestEveryFP16: all fp16 in fp32 are sign · fraction · 2^exponent, computed apart.
func TestEveryFP16(t *testing.T) {
	in, out := make([]byte, 2), make([]byte, 4)
	for v := range 1 << 16 {
		binary.LittleEndian.PutUint16(in, uint16(v))
		require.NoError(t, convert(out, "F32", in, "F16"))
		got := float64(math.Float32frombits(binary.LittleEndian.Uint32(out)))
		exp, frac := v>>10&31, float64(v&1023)
		want := math.Ldexp(1024+frac, exp-25)
		switch {
		case exp == 0:
			want = math.Ldexp(frac, -24)
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			require.True(t, math.IsNaN(got), "%#x", v)
			continue
		}
		if v >= 1<<15 {
			want = -want
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(got), "%#x", v)
	}
}

// TestRounding: to the nearest bf16, ties to even, at hand-made points.
func TestRounding(t *testing.T) {
	for in, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0x3f817fff: 0x3f81, 0xbf808001: 0xbf81,
		0x7f800000: 0x7f80, 0xff800000: 0xff80, 0x7fc00000: 0x7fc0, 0x7f800001: 0x7fc0, 0x00008000: 0x0000, 0x00018000: 0x0002, 0x80000000: 0x8000,
	} {
		out := make([]byte, 2)
		require.NoError(t, convert(out, "BF16", bytes32(in), "F32"))
		require.Equal(t, want, binary.LittleEndian.Uint16(out), "%#x", in)
	}
	out := make([]byte, 2)
	require.EqualError(t, convert(out, "BF16", bytes32(0x7f7fffff), "F32"), "element 0 is 3.4028234663852886e+38, which BF16 cannot hold")
	wide := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1e39))
	require.ErrorContains(t, convert(make([]byte, 4), "F32", wide, "F64"), "element 0 is 1e+39, which F32 cannot hold")
}

// TestOneRounding: fp64 to bf16 is the nearest of the two neighbours, ties to even, though the way goes over fp32.
func TestOneRounding(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		low := uint32(rapid.Uint16Range(0, 0x7f7e).Draw(r, "bf16")) << 16
		a, b := float64(math.Float32frombits(low)), float64(math.Float32frombits(low+1<<16))
		if math.IsInf(b, 0) {
			return
		}
		middle := a/2 + b/2
		x := middle
		switch rapid.IntRange(0, 2).Draw(r, "side") {
		case 1:
			x = math.Nextafter(middle, a)
		case 2:
			x = math.Nextafter(middle, b)
		}
		want := uint16(low >> 16)
		if x > middle || x == middle && want&1 == 1 {
			want++
		}
		if rapid.Bool().Draw(r, "negative") {
			x, want = -x, want|0x8000
		}
		out := make([]byte, 2)
		require.NoError(r, convert(out, "BF16", binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)), "F64"))
		require.Equal(r, want, binary.LittleEndian.Uint16(out), "%g", x)
	})
}
