package collective

import (
	"fmt"
	"math"
	"unsafe"

	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// combine is the one place where values of different members meet: dst[i] = a[i] ∘ b[i]. dst may be a or b.
func combine(dst, a, b []byte, d tensor.DType, how nn.ReduceKind) {
	switch {
	case d == tensor.F32 && how == nn.Sum:
		kernel.Add(tensor.View[float32](dst), tensor.View[float32](a), tensor.View[float32](b))
	case d == tensor.F64 && how == nn.Sum:
		kernel.Add(tensor.View[float64](dst), tensor.View[float64](a), tensor.View[float64](b))
	case d == tensor.I32 && how == nn.Sum:
		addInts(tensor.View[int32](dst), tensor.View[int32](a), tensor.View[int32](b))
	case d == tensor.I64 && how == nn.Sum:
		addInts(tensor.View[int64](dst), tensor.View[int64](a), tensor.View[int64](b))
	case d == tensor.F32:
		maxFloats(tensor.View[float32](dst), tensor.View[float32](a), tensor.View[float32](b), math.Float32frombits(0x7fc00000))
	case d == tensor.F64:
		maxFloats(tensor.View[float64](dst), tensor.View[float64](a), tensor.View[float64](b), math.Float64frombits(0x7ff8000000000000))
	case d == tensor.I32:
		maxInts(tensor.View[int32](dst), tensor.View[int32](a), tensor.View[int32](b))
	case d == tensor.I64:
		maxInts(tensor.View[int64](dst), tensor.View[int64](a), tensor.View[int64](b))
	case how == nn.Max && (d == tensor.U8 || d == tensor.Bool): // for BOOL, max is or
		maxInts(dst, a, b)
	default:
		panic(fmt.Sprintf("collective: no %s of %s; CheckOp must have refused it", how, d))
	}
}

func addInts[T int32 | int64](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func maxInts[T int32 | int64 | uint8](dst, a, b []T) {
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// maxFloats: a NaN on any member is the one quiet NaN on all; +0 is above −0.
func maxFloats[T tensor.Float](dst, a, b []T, nan T) {
	for i := range dst {
		m := max(a[i], b[i])
		if m != m {
			m = nan
		}
		dst[i] = m
	}
}

// alignedFor says whether bytes may be viewed as elements. A transport may hand over the middle of a buffer.
func alignedFor(d tensor.DType, b []byte) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(&b[0]))%uintptr(d.Size()) == 0
}

// overlap says whether two slices share memory.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	p, q := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a))
}
