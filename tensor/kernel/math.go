package kernel

import "phalanx/tensor"

// This file is the definition of the elementwise kernels: which steps are fused multiply-adds (mulAdd), which are
// a product rounded before a sum (T(a*b) + c), and in which order. The vector paths follow it step by step.
// All slices of a call have equal length unless said otherwise; an output may be the same slice as an input.

func addRef[T tensor.Float](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func mulRef[T tensor.Float](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func scaleRef[T tensor.Float](x []T, s T) {
	for i := range x {
		x[i] *= s
	}
}

func axpyRef[T tensor.Float](y []T, a T, x []T) {
	for i := range y {
		y[i] = mulAdd(a, x[i], y[i])
	}
}

func expRef[T tensor.Float](dst, src []T) {
	for i := range dst {
		dst[i] = Exp(src[i])
	}
}

// expScaledOf is exp(scale·x − shift), the product rounded first: for the largest scale·x the exponent is exactly 0.
func expScaledOf[T tensor.Float](x, scale, shift T) T {
	z := T(scale * x)
	return Exp(z - shift)
}

func expScaledRef[T tensor.Float](dst, src []T, scale, shift T) {
	for i := range dst {
		dst[i] = expScaledOf(src[i], scale, shift)
	}
}

// crossEntropyGradRef: k is weight·inv.
func crossEntropyGradRef[T tensor.Float](logits []T, max, k T) {
	for i, l := range logits {
		logits[i] = Exp(l-max) * k
	}
}

// rmsNormRef: y = (x·inv)·gain.
func rmsNormRef[T tensor.Float](y, x, gain []T, inv T) {
	for i := range y {
		y[i] = T(x[i]*inv) * gain[i]
	}
}

// rmsNormGradRef: with x̂ = x·inv and g = dy·gain, dgain += dy·x̂ and dx = inv·(g − x̂·c), c = mean(g·x̂).
func rmsNormGradRef[T tensor.Float](dx, dgain, dy, x, gain []T, inv, c T) {
	for i := range dx {
		xh, g := T(x[i]*inv), T(dy[i]*gain[i])
		dgain[i] = mulAdd(dy[i], xh, dgain[i])
		dx[i] = mulAdd(-xh, c, g) * inv
	}
}

// sigmoidOf is 1/(1 + exp(−x)).
func sigmoidOf[T tensor.Float](x T) T { return 1 / (1 + Exp(-x)) }

func swigluRef[T tensor.Float](out, gate, up []T) {
	for i, g := range gate {
		out[i] = T(g*sigmoidOf(g)) * up[i]
	}
}

// swigluGradRef: silu'(g) = s·(1 + g·(1−s)) with s = sigmoid(g).
func swigluGradRef[T tensor.Float](dgate, dup, dout, gate, up []T) {
	for i, g := range gate {
		s, d := sigmoidOf(g), dout[i]
		slope := mulAdd(g, 1-s, 1)
		a := T(d * up[i])
		dup[i] = d * T(g*s)
		dgate[i] = T(a*s) * slope
	}
}

// rectify is x above zero, else 0; NaN stays NaN.
func rectify[T tensor.Float](x T) T {
	if 0 > x {
		return 0
	}
	return x
}

func squaredReLURef[T tensor.Float](out, x []T) {
	for i := range out {
		r := rectify(x[i])
		out[i] = r * r
	}
}

func squaredReLUGradRef[T tensor.Float](dx, dout, x []T) {
	for i := range dx {
		r := rectify(x[i])
		dx[i] = dout[i] * (r + r)
	}
}

// softmaxGradRef: ds = (scale·p)·(dp − c) with c = Σ p·dp.
func softmaxGradRef[T tensor.Float](ds, p, dp []T, scale, c T) {
	for i := range ds {
		ds[i] = T(scale*p[i]) * (dp[i] - c)
	}
}

// ropeRef rotates the pairs (x1[i], x2[i]).
func ropeRef[T tensor.Float](x1, x2, cos, sin []T) {
	for i := range x1 {
		a, b := x1[i], x2[i]
		x1[i] = mulAdd(a, cos[i], -T(b*sin[i]))
		x2[i] = mulAdd(b, cos[i], T(a*sin[i]))
	}
}

// ropeGradRef rotates back.
func ropeGradRef[T tensor.Float](x1, x2, cos, sin []T) {
	for i := range x1 {
		a, b := x1[i], x2[i]
		x1[i] = mulAdd(a, cos[i], T(b*sin[i]))
		x2[i] = mulAdd(b, cos[i], -T(a*sin[i]))
	}
}

// adamwConst is what one AdamW step multiplies with, in the order in which the assembly reads it.
type adamwConst[T tensor.Float] struct {
	gradScale, beta1, omBeta1, beta2, omBeta2, inv1, inv2, eps, wd, minusLR T
}

// adamwRef: the bias corrections are multiplied as reciprocals, which leaves one division and one root an element.
func adamwRef[T tensor.Float](p, g, m, v []T, c *adamwConst[T]) {
	for i := range p {
		d := T(g[i] * c.gradScale)
		mi := mulAdd(c.beta1, m[i], T(c.omBeta1*d))
		vi := mulAdd(c.beta2, v[i], T(T(c.omBeta2*d)*d))
		m[i], v[i] = mi, vi
		root := sqrtOf(T(vi*c.inv2)) + c.eps
		step := T(mi*c.inv1) / root
		p[i] = mulAdd(c.minusLR, mulAdd(c.wd, p[i], step), p[i])
	}
}

// transposeRef moves 16×16 tiles, so that both sides stay within a few cache lines.
func transposeRef[T tensor.Float](dst, src []T, rows, cols int) {
	const tile = 16
	for r0 := 0; r0 < rows; r0 += tile {
		r1 := min(r0+tile, rows)
		for c0 := 0; c0 < cols; c0 += tile {
			for c := c0; c < min(c0+tile, cols); c++ {
				out := dst[c*rows+r0 : c*rows+r1]
				for r := range out {
					out[r] = src[(r0+r)*cols+c]
				}
			}
		}
	}
}
