package kernel

import (
	"fmt"
	"math"
)

// π/2 in three parts of 33, 33 and 53 bits: a multiple below 2^20 of the first two is exact.
const (
	piHalf1   = 0x1.921fb544p+0
	piHalf2   = 0x1.0b4611a6p-34
	piHalf3   = 0x1.3198a2e037073p-69
	twoOverPi = 0x1.45f306dc9c883p-1
)

// sinTaylor and cosTaylor are ±1/k! of the odd and even terms, highest first; |r| ≤ π/4 leaves 1e-19.
var (
	sinTaylor = [...]float64{
		1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
		1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6,
	}
	cosTaylor = [...]float64{
		-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
		1.0 / 40320, -1.0 / 720, 1.0 / 24,
	}
)

// SinCos is the sine and cosine of x with an absolute error below 1e-15 for |x| < 2^20, far beyond the positions
// of a rotary table. It exists because the math package may use other instructions on another CPU.
func SinCos(x float64) (sin, cos float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return math.NaN(), math.NaN()
	}
	if math.Abs(x) >= 1<<20 {
		panic(fmt.Sprintf("kernel: SinCos(%g): |x| must be below 2^20, the range its reduction is exact in", x))
	}
	n := math.Floor(float64(x*twoOverPi) + 0.5)
	r := x - float64(n*piHalf1)
	r -= float64(n * piHalf2)
	r -= float64(n * piHalf3)
	s, c := sinCosReduced(r)
	switch int(n) & 3 {
	case 1:
		return c, -s
	case 2:
		return -s, -c
	case 3:
		return -c, s
	}
	return s, c
}

// sinCosReduced is the sine and cosine of |r| ≤ π/4.
func sinCosReduced(r float64) (sin, cos float64) {
	z := float64(r * r)
	for _, c := range sinTaylor {
		sin = float64(sin*z) + c
	}
	sin = r + float64(float64(sin*z)*r)
	for _, c := range cosTaylor {
		cos = float64(cos*z) + c
	}
	cos = 1 - (float64(z*0.5) - float64(float64(cos*z)*z))
	return sin, cos
}
