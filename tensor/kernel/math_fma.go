package kernel

import (
	"math"
	"unsafe"

	"phalanx/tensor"
)

// is32 tells whether T is float32. The compiler folds it, so a branch on it costs nothing.
func is32[T tensor.Float]() bool {
	var z T
	return unsafe.Sizeof(z) == 4
}

// mulAdd is a·b + c rounded once, on every CPU and with every compiler setting. The portable form of every kernel
// is written with it, and the vector paths use the hardware's instruction, so that bits agree.
func mulAdd[T tensor.Float](a, b, c T) T {
	if is32[T]() {
		return T(vecFMA32(float32(a), float32(b), float32(c)))
	}
	return T(math.FMA(float64(a), float64(b), float64(c)))
}

// vecFMA32 is the exact fp32 fused multiply-add. The product of two float32 is exact in float64. Their sum with c
// is rounded to float64 and then to float32; rounding twice differs from rounding once only where the first
// result lies on a midpoint of the float32 grid, and those cases go through vecFMA32Odd.
func vecFMA32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	bits := math.Float64bits(s)
	const tiny = 0x3810 << 48 // 2^-126: below it the float32 grid is coarser than 29 dropped bits
	if bits&0x1fffffff != 0x10000000 && bits<<1 >= tiny<<1 {
		return float32(s)
	}
	return vecFMA32Odd(p, float64(c), s)
}

// vecFMA32Odd rounds p + c, of which s is the nearest float64, to odd and then to float32. Rounding to odd keeps
// the information on which side of a midpoint the true sum lies, so that the second rounding is right.
func vecFMA32Odd(p, c, s float64) float32 {
	t := s - p
	e := (p - (s - t)) + (c - t) // s + e is p + c exactly
	bits := math.Float64bits(s)
	if (e > 0 || e < 0) && bits&1 == 0 {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}

// sqrtOf is the correctly rounded square root: through float64 it is exact for float32 too.
func sqrtOf[T tensor.Float](x T) T { return T(math.Sqrt(float64(x))) }
