package kernel

import "math"

// fma32 is the correctly rounded float32 a·b + c, the same bits as a hardware FMA, on every GOARCH and GOAMD64.
//
// The product of two float32 has 48 bits and is exact in float64, so s is a·b + c rounded once to 53 bits, whether
// or not the compiler fuses the two operations. Rounding s again to float32 goes wrong only where s sits exactly
// half way between two float32 after having been rounded itself. For results in the normal range that is one
// pattern of the low 29 bits; it and the subnormal range take the slow way. Tiny or huge s fails the range test.
func fma32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	u := math.Float64bits(s)
	const (
		half   = 1 << 28            // the middle between two neighbours
		low    = 1<<29 - 1          // bits that float32 does not have
		normal = (1023 - 126) << 52 // 2^-126, the smallest normal float32
		inf    = 0x7ff << 52
	)
	if u&low == half || u&^(1<<63)-normal >= inf-normal {
		return fma32Slow(a, b, c)
	}
	return float32(s)
}

// fma32Slow rounds the exact sum to odd in float64: when the sum was inexact the last bit is set to one, pointing to
// the true value's side. 53 bits are at least 24+2, so the second rounding then sees every tie and every direction.
func fma32Slow(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	// TwoSum: s + e is exactly p + z.
	t := s - p
	e := (p - (s - t)) + (z - t)
	u := math.Float64bits(s)
	if e != 0 && u&1 == 0 && !math.IsInf(s, 0) && !math.IsNaN(s) {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
	}
	return float32(math.Float64frombits(u))
}
