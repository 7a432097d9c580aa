package kernel

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oracleFMA is a·b + c by exact arithmetic and one rounding. The exact sum of a product (2^-298 … 2^256) and a
// float32 has fewer than 640 bits.
func oracleFMA(a, b, c float32) float32 {
	x, y, z := float64(a), float64(b), float64(c)
	if bad := x*y + z; math.IsNaN(bad) || math.IsInf(bad, 0) {
		return float32(bad) // an operand is NaN or infinite: no finite operands overflow float64
	}
	exact := func(v float64) *big.Float { return new(big.Float).SetPrec(640).SetFloat64(v) }
	sum := exact(x)
	sum.Mul(sum, exact(y))
	sum.Add(sum, exact(z)) // the sign of an exact zero is that of IEEE 754
	got, _ := sum.Float32()
	return got
}

func requireFMA(t require.TestingT, a, b, c float32) {
	got, want := fma32(a, b, c), oracleFMA(a, b, c)
	if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
		require.FailNow(t, "wrong", "fma32(%x, %x, %x) = %x, want %x", a, b, c, got, want)
	}
}

// requireHardwareFMA compares with what a product of size 1 gives on every path.
func requireHardwareFMA(t require.TestingT, a, b, c float32) {
	want := canonical([]float32{fma32(a, b, c)})
	eachPath(func(p Path) {
		got := []float32{c}
		Gemm(NN, 1, 1, 1, []float32{a}, 1, []float32{b}, 1, got, 1, true)
		require.Equal(t, want, canonical(got), "fma(%x, %x, %x) on %s", a, b, c, p)
	})
}

// TestFMAKnownValues: cases in which two roundings differ from one, with results known by hand.
func TestFMAKnownValues(t *testing.T) {
	const one, tiny, most = float32(1), float32(math.SmallestNonzeroFloat32), float32(math.MaxFloat32)
	inf, minusZero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	below, above := float32(1-0x1p-23), float32(1+0x1p-23)
	for _, c := range []struct {
		name          string
		a, b, c, want float32
	}{
		{"tie to even, down", 0x1p-24, one, one, one},
		{"tie to even, up", 0x1p-24, one, above, 1 + 0x1p-22},
		{"a hair below the tie", 0x1p-24 * below, above, above, above}, // 2^-24·(1 − 2^-46)
		{"a hair above the tie", 0x1p-24 * above, above, one, above},
		{"negative, a hair below", -0x1p-24 * below, above, -above, -above},
		{"subnormal tie to even", tiny, 0.5, tiny, 2 * tiny}, // 1.5 units: 2 is even
		{"subnormal tie to zero", tiny, 0.5, 0, 0},
		{"subnormal above the tie", tiny, 0.5 + 0x1p-24, 0, tiny},
		{"subnormal below the tie", tiny, 0.5 - 0x1p-25, 0, 0},
		{"underflow keeps the sign", -tiny, 0x1p-100, 0, minusZero},
		{"far below a power of two", -0x1p-100, 0x1p-49, one, one},
		{"largest finite, tie to infinity", 0x1p103, one, most, inf},
		{"largest finite, below the tie", 0x1p103 * below, above, most, most},
		{"overflow of the product alone", most, 2, -most, most},
		{"overflow", -most, 2, 0, -inf},
		{"exact cancellation is +0", 3, 5, -15, 0},
		{"−0 + −0", minusZero, 1, minusZero, minusZero},
		{"+0 + −0", 0, 1, minusZero, 0},
		{"infinity", inf, -1, most, -inf},
	} {
		require.Equal(t, math.Float32bits(c.want), math.Float32bits(fma32(c.a, c.b, c.c)), "%s: got %x", c.name, fma32(c.a, c.b, c.c))
		requireFMA(t, c.a, c.b, c.c)
		requireHardwareFMA(t, c.a, c.b, c.c)
	}
	for _, x := range [][3]float32{{inf, 0, 1}, {inf, 1, -inf}, {float32(math.NaN()), 1, 1}, {1, 1, float32(math.NaN())}} {
		require.True(t, math.IsNaN(float64(fma32(x[0], x[1], x[2]))), x)
	}
}

// TestFMAAnyBits draws the three operands as raw bits.
func TestFMAAnyBits(t *testing.T) {
	r := newRand(1)
	for range 200_000 {
		bits := r.Uint64()
		requireFMA(t, math.Float32frombits(uint32(bits)), math.Float32frombits(uint32(bits>>32)), math.Float32frombits(r.Uint32()))
	}
}

// TestFMANearTies puts c within a few units of a tie or of cancelling the product: c is the float32 nearest to −a·b, or
// the product's exponent is 20 … 60 below c's, and the fractions are zeros, ones and next to them.
func TestFMANearTies(t *testing.T) {
	r := newRand(2)
	fractions := []uint32{0, 1, 2, 3, 1<<22 - 1, 1 << 22, 1<<22 + 1, 1<<23 - 3, 1<<23 - 2, 1<<23 - 1, 0x555555, 0x2aaaaa, 1 << 11, 1 << 12}
	number := func(exponent int) float32 {
		x := math.Float32frombits(127<<23 | fractions[r.IntN(len(fractions))])
		if r.IntN(2) == 0 {
			x = -x
		}
		return float32(math.Ldexp(float64(x), exponent))
	}
	for range 300_000 {
		ea := r.IntN(200) - 120
		eb := max(-126, min(127, r.IntN(200)-100))
		a, b := number(ea), number(eb)
		requireFMA(t, a, b, number(ea+eb+20+r.IntN(41)))
		c := math.Float32bits(-float32(float64(a) * float64(b)))
		requireFMA(t, a, b, math.Float32frombits(c+uint32(r.IntN(5))-2))
	}
}

// TestFMASubnormals has results around the smallest normal number, the smallest subnormal, and half of it.
func TestFMASubnormals(t *testing.T) {
	r := newRand(3)
	for range 200_000 {
		ea := -r.IntN(126)
		a := float32(math.Ldexp(r.Float64()+1, ea))
		b := float32(math.Ldexp(r.Float64()+1, max(-149, -150+r.IntN(27)-ea)))
		if r.IntN(2) == 0 {
			a, b = float32(math.Ldexp(1, ea)), float32(math.Ldexp(float64(1+r.IntN(64)), max(-149, -155+r.IntN(30)-ea)))
		}
		c := math.Float32frombits(r.Uint32N(1<<uint(1+r.IntN(25))) | r.Uint32()&(1<<31))
		requireFMA(t, a, b, c)
	}
}

// TestFMAOverflow has results around the largest finite number and the tie to infinity.
func TestFMAOverflow(t *testing.T) {
	r := newRand(4)
	for range 50_000 {
		c := math.Float32frombits(0x7f7fffff - r.Uint32N(4))
		a := math.Float32frombits(127<<23 | r.Uint32N(3) | r.Uint32()&(1<<31))
		b := float32(math.Ldexp(1+float64(r.IntN(3)-1)*0x1p-23, 100+r.IntN(6)))
		requireFMA(t, a, b, c)
		requireFMA(t, a, -b, -c)
	}
}

// TestFMAIsTheHardwares compares with the instruction, where there is one.
func TestFMAIsTheHardwares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := func(name string) float32 { return math.Float32frombits(rapid.Uint32().Draw(rt, name)) }
		a, b, c := bits("a"), bits("b"), bits("c")
		requireFMA(rt, a, b, c)
		requireHardwareFMA(rt, a, b, c)
	})
}
