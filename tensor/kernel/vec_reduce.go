package kernel

import (
	"math"

	"phalanx/tensor"
)

// Sum is Σ x in the 16-lane tree.
func Sum[T tensor.Float](x []T) T {
	var acc [Lanes]T
	if !is32[T]() || !vecSum(acc32(&acc), f32(x)) {
		sumLanes(&acc, x)
	}
	return foldSum(&acc)
}

// Dot is Σ x·y in the 16-lane tree, each step fused.
func Dot[T tensor.Float](x, y []T) T {
	sameLen(len(x), len(y))
	var acc [Lanes]T
	if !is32[T]() || !vecDot(acc32(&acc), f32(x), f32(y)) {
		dotLanes(&acc, x, y)
	}
	return foldSum(&acc)
}

// SumSquares is Σ x² in 16 lanes of float64: gradient norms add millions of elements.
func SumSquares[T tensor.Float](x []T) float64 {
	var acc [Lanes]float64
	if !is32[T]() || !vecSumSquares(&acc, f32(x)) {
		sumSquaresLanes(&acc, x)
	}
	return foldSum(&acc)
}

// Max is the largest element, −Inf if there is none. NaN is passed over: where it matters, the sum that follows
// is NaN.
func Max[T tensor.Float](x []T) T { return maxScaled(x, 1) }

// maxScaled is the largest scale·x.
func maxScaled[T tensor.Float](x []T, scale T) T {
	acc := lowest[T]()
	if !is32[T]() || !vecMax(acc32(&acc), f32(x), float32(scale)) {
		maxLanes(&acc, x, scale)
	}
	return foldMax(&acc)
}

// MaxIndex is the lowest index of an element equal to Max(x). It is 0 if all are NaN and −1 if there is none.
func MaxIndex[T tensor.Float](x []T) int {
	if len(x) == 0 {
		return -1
	}
	m := Max(x)
	for i, v := range x {
		if v == m {
			return i
		}
	}
	return 0
}

// SumExp is Σ exp(x − max) in the 16-lane tree. It is one tile of a log-sum-exp over the vocabulary.
func SumExp[T tensor.Float](x []T, max T) T {
	var acc [Lanes]T
	if !is32[T]() || !vecSumExp(acc32(&acc), f32(x), float32(max)) {
		sumExpLanes(&acc, x, max)
	}
	return foldSum(&acc)
}

// SoftmaxInto is dst = exp(scale·src − max)·(1/sum) for one row, with max the largest scale·src and sum the sum
// of the exponentials; max + log(sum) is the row's log-sum-exp. Elements of −Inf (masked) become exactly 0, but
// a row of nothing else is NaN.
func SoftmaxInto[T tensor.Float](dst, src []T, scale T) (max, sum T) {
	sameLen(len(dst), len(src))
	max = maxScaled(src, scale)
	var acc [Lanes]T
	if !is32[T]() || !vecSoftmax(acc32(&acc), f32(dst), f32(src), float32(scale), float32(max)) {
		softmaxLanes(&acc, dst, src, scale, max)
	}
	sum = foldSum(&acc)
	Scale(dst, 1/sum)
	return max, sum
}

// SoftmaxGradRow is the gradient of one row p = softmax(scale·s) with respect to s, given dp:
// ds = scale·p·(dp − Σ p·dp).
func SoftmaxGradRow[T tensor.Float](ds, p, dp []T, scale T) {
	sameLen(len(ds), len(p))
	c := Dot(p, dp)
	if is32[T]() && vecSoftmaxGrad(f32(ds), f32(p), f32(dp), float32(scale), float32(c)) {
		return
	}
	softmaxGradRef(ds, p, dp, scale, c)
}

// CrossEntropyGrad replaces logits by weight·inv·exp(l − max), where inv is 1 over the sum of exponentials: the
// gradient of weight·loss but for the −weight at the label.
func CrossEntropyGrad[T tensor.Float](logits []T, max, inv, weight T) {
	k := T(weight * inv)
	if is32[T]() && vecCrossEntropyGrad(f32(logits), float32(max), float32(k)) {
		return
	}
	crossEntropyGradRef(logits, max, k)
}

// RMSNorm is one row of y = x·inv·gain with inv = 1/√(mean(x²) + eps), which it returns for the backward pass.
// The mean is over the 16-lane tree of fused products (Zhang and Sennrich, 2019).
func RMSNorm[T tensor.Float](y, x, gain []T, eps T) (invRMS T) {
	sameLen(len(y), len(x))
	sameLen(len(y), len(gain))
	mean := Dot(x, x) / T(max(len(x), 1))
	inv := 1 / T(math.Sqrt(float64(mean+eps)))
	if is32[T]() && vecRMSNorm(f32(y), f32(x), f32(gain), float32(inv)) {
		return inv
	}
	rmsNormRef(y, x, gain, inv)
	return inv
}

// RMSNormGrad is the gradient of one row. With x̂ = x·invRMS: dgain += dy·x̂ and
// dx = invRMS·(dy·gain − x̂·mean(dy·gain·x̂)). dx is overwritten and may be dy; dgain is accumulated.
func RMSNormGrad[T tensor.Float](dx, dgain, dy, x, gain []T, invRMS T) {
	sameLen(len(dx), len(dgain))
	sameLen(len(dx), len(dy))
	sameLen(len(dx), len(x))
	sameLen(len(dx), len(gain))
	var acc [Lanes]T
	if !is32[T]() || !vecRMSNormGradSum(acc32(&acc), f32(dy), f32(x), f32(gain), float32(invRMS)) {
		rmsNormGradLanes(&acc, dy, x, gain, invRMS)
	}
	c := foldSum(&acc) / T(max(len(x), 1))
	if is32[T]() && vecRMSNormGrad(f32(dx), f32(dgain), f32(dy), f32(x), f32(gain), float32(invRMS), float32(c)) {
		return
	}
	rmsNormGradRef(dx, dgain, dy, x, gain, invRMS, c)
}
