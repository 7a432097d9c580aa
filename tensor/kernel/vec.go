package kernel

import (
	"fmt"
	"unsafe"

	"phalanx/tensor"
)

// Every function of the vec files takes slices of equal length unless said otherwise; length 0 is fine. An output
// may be the same slice as an input, but not overlap it in part. float32 runs on the active path, float64 in Go.

// f32 views a slice as float32; only to be called where is32[T]() holds.
func f32[T tensor.Float](x []T) []float32 { return *(*[]float32)(unsafe.Pointer(&x)) }

// acc32 views lanes as float32; only to be called where is32[T]() holds.
func acc32[T tensor.Float](acc *[Lanes]T) *[Lanes]float32 {
	return (*[Lanes]float32)(unsafe.Pointer(acc))
}

// sameLen stops the program where two lengths that must agree do not.
func sameLen(a, b int) {
	if a != b {
		panicLen(a, b)
	}
}

func panicLen(a, b int) {
	panic(fmt.Sprintf("kernel: slices of %d and %d elements, want equal lengths", a, b))
}

// Add is dst = a + b.
func Add[T tensor.Float](dst, a, b []T) {
	sameLen(len(dst), len(a))
	sameLen(len(dst), len(b))
	if is32[T]() && vecAdd(f32(dst), f32(a), f32(b)) {
		return
	}
	addRef(dst, a, b)
}

// AddInto is dst += src.
func AddInto[T tensor.Float](dst, src []T) { Add(dst, dst, src) }

// Mul is dst = a·b, element by element.
func Mul[T tensor.Float](dst, a, b []T) {
	sameLen(len(dst), len(a))
	sameLen(len(dst), len(b))
	if is32[T]() && vecMul(f32(dst), f32(a), f32(b)) {
		return
	}
	mulRef(dst, a, b)
}

// Scale is x *= s.
func Scale[T tensor.Float](x []T, s T) {
	if is32[T]() && vecScale(f32(x), float32(s)) {
		return
	}
	scaleRef(x, s)
}

// Axpy is y += a·x, fused.
func Axpy[T tensor.Float](y []T, a T, x []T) {
	sameLen(len(y), len(x))
	if is32[T]() && vecAxpy(f32(y), float32(a), f32(x)) {
		return
	}
	axpyRef(y, a, x)
}

// ExpInto is dst = exp(src), each element as Exp gives it.
func ExpInto[T tensor.Float](dst, src []T) {
	sameLen(len(dst), len(src))
	if is32[T]() && vecExp(f32(dst), f32(src)) {
		return
	}
	expRef(dst, src)
}

// ExpScaled is dst = exp(scale·src − shift), the product rounded before the difference. With shift the log-sum-exp
// of a row it recomputes attention's probabilities.
func ExpScaled[T tensor.Float](dst, src []T, scale, shift T) {
	sameLen(len(dst), len(src))
	if is32[T]() && vecExpScaled(f32(dst), f32(src), float32(scale), float32(shift)) {
		return
	}
	expScaledRef(dst, src, scale, shift)
}

// RoPE rotates one head x [d] in place by angles given as cos, sin [d/2]: with x1, x2 the halves of x,
// y1 = x1·cos − x2·sin and y2 = x2·cos + x1·sin.
func RoPE[T tensor.Float](x, cos, sin []T) {
	x1, x2 := ropeHalves(x, cos, sin)
	if is32[T]() && vecRoPE(f32(x1), f32(x2), f32(cos), f32(sin)) {
		return
	}
	ropeRef(x1, x2, cos, sin)
}

// RoPEGrad is the transpose of RoPE, a rotation by the negative angle.
func RoPEGrad[T tensor.Float](x, cos, sin []T) {
	x1, x2 := ropeHalves(x, cos, sin)
	if is32[T]() && vecRoPEGrad(f32(x1), f32(x2), f32(cos), f32(sin)) {
		return
	}
	ropeGradRef(x1, x2, cos, sin)
}

func ropeHalves[T tensor.Float](x, cos, sin []T) (x1, x2 []T) {
	sameLen(len(x), 2*len(cos))
	sameLen(len(cos), len(sin))
	return x[:len(cos)], x[len(cos):]
}

// Transpose is dst [cols×rows] = transpose of src [rows×cols]. The two must not overlap.
func Transpose[T tensor.Float](dst, src []T, rows, cols int) {
	sameLen(len(src), rows*cols)
	sameLen(len(dst), rows*cols)
	if is32[T]() && vecTranspose(f32(dst), f32(src), rows, cols) {
		return
	}
	transposeRef(dst, src, rows, cols)
}
