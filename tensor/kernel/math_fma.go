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
		return T(fma32(float32(a), float32(b), float32(c)))
	}
	return T(math.FMA(float64(a), float64(b), float64(c)))
}

// sqrtOf is the correctly rounded square root: through float64 it is exact for float32 too.
func sqrtOf[T tensor.Float](x T) T { return T(math.Sqrt(float64(x))) }
