package tensor

import "math"

// BFloat16 is the upper half of a float32: 8 bits of exponent, 8 of precision.
type BFloat16 uint16

// RoundBF16 is x rounded to the nearest bfloat16, ties to even. What is too large becomes infinite; NaN stays NaN.
func RoundBF16(x float32) BFloat16 {
	b := math.Float32bits(x)
	if x != x {
		return BFloat16(b>>16 | 0x40) // quiet: the payload may have been in the lower half alone
	}
	return BFloat16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 is the same number.
func (x BFloat16) Float32() float32 { return math.Float32frombits(uint32(x) << 16) }
