package kernel

import (
	"unsafe"

	"phalanx/tensor"
)

// SwiGLU is out = silu(gate)·up, silu(x) = x/(1 + exp(−x)) (Shazeer, 2020).
func SwiGLU[T tensor.Float](out, gate, up []T) {
	sameLen(len(out), len(gate))
	sameLen(len(out), len(up))
	if is32[T]() && vecSwiGLU(f32(out), f32(gate), f32(up)) {
		return
	}
	swigluRef(out, gate, up)
}

// SwiGLUGrad overwrites dgate = dout·up·silu'(gate) and dup = dout·silu(gate).
func SwiGLUGrad[T tensor.Float](dgate, dup, dout, gate, up []T) {
	sameLen(len(dgate), len(dup))
	sameLen(len(dgate), len(dout))
	sameLen(len(dgate), len(gate))
	sameLen(len(dgate), len(up))
	if is32[T]() && vecSwiGLUGrad(f32(dgate), f32(dup), f32(dout), f32(gate), f32(up)) {
		return
	}
	swigluGradRef(dgate, dup, dout, gate, up)
}

// SquaredReLU is out = max(x, 0)² (So et al., 2021); NaN stays NaN.
func SquaredReLU[T tensor.Float](out, x []T) {
	sameLen(len(out), len(x))
	if is32[T]() && vecSquaredReLU(f32(out), f32(x)) {
		return
	}
	squaredReLURef(out, x)
}

// SquaredReLUGrad is dx = dout·2·max(x, 0).
func SquaredReLUGrad[T tensor.Float](dx, dout, x []T) {
	sameLen(len(dx), len(dout))
	sameLen(len(dx), len(x))
	if is32[T]() && vecSquaredReLUGrad(f32(dx), f32(dout), f32(x)) {
		return
	}
	squaredReLUGradRef(dx, dout, x)
}

// AdamWStep is the scalars of one step, equal for all elements of a parameter.
type AdamWStep[T tensor.Float] struct {
	LR, Beta1, Beta2, Eps, WeightDecay T
	BiasCorr1, BiasCorr2               T // 1 − β^t
	GradScale                          T // multiplies the gradient: the clip factor, over the loss scale
	// OneMinusBeta1 and OneMinusBeta2 are 1 − β rounded from float64. Zero means 1 − Beta in T; in float32 that
	// is off by 1e-5 for β = 0.999, the rounding of β itself.
	OneMinusBeta1, OneMinusBeta2 T
}

// AdamW is one step on p, m, v with the gradient g (Loshchilov and Hutter, 2019; Megatron's defaults): with
// g' = GradScale·g, m = β1·m + (1−β1)·g', v = β2·v + (1−β2)·g'²,
// p −= lr·( (m/bc1)/(√(v/bc2) + eps) + wd·p ).
func AdamW[T tensor.Float](p, g, m, v []T, h AdamWStep[T]) {
	sameLen(len(p), len(g))
	sameLen(len(p), len(m))
	sameLen(len(p), len(v))
	c := h.constants()
	if is32[T]() && vecAdamW(f32(p), f32(g), f32(m), f32(v), (*adamwConst[float32])(unsafe.Pointer(&c))) {
		return
	}
	adamwRef(p, g, m, v, &c)
}

func (h AdamWStep[T]) constants() adamwConst[T] {
	c := adamwConst[T]{
		gradScale: h.GradScale, beta1: h.Beta1, beta2: h.Beta2, omBeta1: h.OneMinusBeta1, omBeta2: h.OneMinusBeta2,
		inv1: 1 / h.BiasCorr1, inv2: 1 / h.BiasCorr2, eps: h.Eps, wd: h.WeightDecay, minusLR: -h.LR,
	}
	if c.omBeta1 == 0 {
		c.omBeta1 = 1 - h.Beta1
	}
	if c.omBeta2 == 0 {
		c.omBeta2 = 1 - h.Beta2
	}
	return c
}
