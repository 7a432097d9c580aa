package kernel

import (
	"math"

	"phalanx/tensor"
)

// Constants of the fp32 exponential. exp(x) = 2^n·exp(r) with n = x/ln 2 rounded to nearest and |r| ≤ ln 2 / 2;
// exp(r) = 1 + r + r²·(expC2 + … + expC6·r⁴), whose relative error is 3e-9 (fitted by the Remez exchange).
const (
	expLog2E float32 = 0x1.715476p+0
	expLn2Hi float32 = 0x1.62e43p-1 // ln 2 in two parts; n·expLn2Hi is exact inside the fused multiply-add
	expLn2Lo float32 = -0x1.05c61p-29
	expMagic float32 = 0x1.8p+23 // adding it rounds to an integer, which then stands in the low bits
	expC2    float32 = 0x1.fffffcp-2
	expC3    float32 = 0x1.555492p-3
	expC4    float32 = 0x1.5558f2p-5
	expC5    float32 = 0x1.123a2p-7
	expC6    float32 = 0x1.6a23dp-10

	// ExpMin32 is the smallest x with exp(x) not below the smallest normal float32. Below it the result is zero
	// and not subnormal: subnormal numbers cost a hundred cycles each and carry no weight in a sum.
	ExpMin32 float32 = -0x1.5d589ep+6
	// ExpMax32 is the largest x with a finite exp(x) in float32.
	ExpMax32 float32 = 0x1.62e42ep+6
)

// Exp is e to the x with an error below 2 units in the last place. NaN gives NaN, overflow +Inf, underflow 0.
// Its float32 form is what the vector kernels compute, step for step.
func Exp[T tensor.Float](x T) T {
	if is32[T]() {
		return T(exp32(float32(x)))
	}
	return T(exp64(float64(x)))
}

func exp32(x float32) float32 {
	if !(x <= ExpMax32) {
		return x + float32(math.Inf(1))
	}
	if x < ExpMin32 {
		return 0
	}
	t := fma32(x, expLog2E, expMagic)
	n := t - expMagic
	r := fma32(n, -expLn2Hi, x)
	r = fma32(n, -expLn2Lo, r)
	p := fma32(expC6, r, expC5)
	p = fma32(p, r, expC4)
	p = fma32(p, r, expC3)
	p = fma32(p, r, expC2)
	p = fma32(p, r, 1)
	p = fma32(p, r, 1)
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}

// Constants of the fp64 exponential and logarithm. ln2Hi64 has 41 bits, so that its product with an exponent is exact.
const (
	log2E64 = 0x1.71547652b82fep+0
	ln2Hi64 = 0x1.62e42fefa3p-1
	ln2Lo64 = 0x1.3de6af278ece6p-42
)

// expTaylor64 is 1/k! for k = 13 … 2: |r| ≤ 0.35 leaves a remainder of 4e-18.
var expTaylor64 = [...]float64{
	1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
	1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
}

func exp64(x float64) float64 {
	switch {
	case !(x <= 709.782712893384):
		return x + math.Inf(1)
	case x < -745.1332191019412:
		return 0
	}
	n := math.Floor(float64(x*log2E64) + 0.5)
	hi := x - float64(n*ln2Hi64)
	r := hi - float64(n*ln2Lo64)
	q := 0.0
	for _, c := range expTaylor64 {
		q = float64(q*r) + c
	}
	p := 1 + (r + float64(float64(r*r)*q))
	half := math.Floor(n / 2) // in two steps, the first exact, so that a subnormal result is rounded once
	return float64(p*pow2(int(half))) * pow2(int(n-half))
}

// pow2 is 2^n for n in the normal range of float64.
func pow2(n int) float64 { return math.Float64frombits(uint64(n+1023) << 52) }

// Log is the natural logarithm with an error below 2 units in the last place: NaN of a negative number, −Inf of
// zero. The float32 form goes through float64 and is almost always the nearest float32.
func Log[T tensor.Float](x T) T { return T(log64(float64(x))) }

// log64 writes x = 2^e·(1+f) with 1+f in [√½, √2) and s = f/(2+f): log(1+f) = 2·(s + s³/3 + s⁵/5 + …).
// With h = f²/2 that is f − (h − s·(h+R)), R = 2·(s²/3 + s⁴/5 + …), where f carries the leading bits exactly.
func log64(x float64) float64 {
	switch {
	case math.IsNaN(x) || x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case math.IsInf(x, 1):
		return x
	}
	bias := 1023
	if x < 0x1p-1022 {
		x *= 0x1p54
		bias += 54
	}
	bits := math.Float64bits(x)
	e := int(bits>>52) - bias
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52)
	if m >= math.Sqrt2 {
		m /= 2
		e++
	}
	f := m - 1
	s := f / (2 + f)
	z := float64(s * s)
	r := 0.0
	for k := 25; k >= 3; k -= 2 {
		r = float64(z*r) + 2/float64(k)
	}
	r = float64(z * r)
	h := float64(float64(f*f) * 0.5)
	n := float64(e)
	low := float64(s*(h+r)) + float64(n*ln2Lo64)
	return float64(n*ln2Hi64) - ((h - low) - f)
}
