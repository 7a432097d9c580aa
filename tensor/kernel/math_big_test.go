package kernel

import (
	"math"
	"math/big"
	"sync"
)

// High-precision references for the tests of this package, each a plain series in 240 bits.

const bigBits = 240

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(bigBits).SetFloat64(x) }

func bigNew() *big.Float { return new(big.Float).SetPrec(bigBits) }

// bigAtanh is Σ s^(2k+1)/(2k+1) for |s| ≤ 1/3.
func bigAtanh(s *big.Float) *big.Float {
	sum, power, square := bigNew(), bigNew().Set(s), bigNew().Mul(s, s)
	for k := 1.0; k < 160; k += 2 {
		sum.Add(sum, bigNew().Quo(power, bigOf(k)))
		power.Mul(power, square)
	}
	return sum
}

// bigLn2 is 2·atanh(1/3).
var bigLn2 = sync.OnceValue(func() *big.Float {
	return bigNew().Mul(bigOf(2), bigAtanh(bigNew().Quo(bigOf(1), bigOf(3))))
})

// bigPi is Machin's 16·atan(1/5) − 4·atan(1/239).
var bigPi = sync.OnceValue(func() *big.Float {
	atan := func(n float64) *big.Float {
		sum, power := bigNew(), bigNew().Quo(bigOf(1), bigOf(n))
		for k := 1.0; k < 220; k += 4 {
			sum.Add(sum, bigNew().Quo(power, bigOf(k)))
			power.Quo(power, bigOf(n*n))
			sum.Sub(sum, bigNew().Quo(power, bigOf(k+2)))
			power.Quo(power, bigOf(n*n))
		}
		return sum
	}
	a, b := bigNew().Mul(bigOf(16), atan(5)), bigNew().Mul(bigOf(4), atan(239))
	return a.Sub(a, b)
})

// bigExp is e to the x: Taylor on x − n·ln 2, then n into the exponent.
func bigExp(x float64) *big.Float {
	n := math.Round(x / math.Ln2)
	r := bigNew().Sub(bigOf(x), bigNew().Mul(bigOf(n), bigLn2()))
	sum, term := bigOf(1), bigOf(1)
	for k := 1.0; k < 50; k++ {
		term.Mul(term, bigNew().Quo(r, bigOf(k)))
		sum.Add(sum, term)
	}
	return sum.SetMantExp(sum, int(n))
}

// bigLog is the natural logarithm of x = m·2^e as 2·atanh((m−1)/(m+1)) + e·ln 2.
func bigLog(x float64) *big.Float {
	f, e := math.Frexp(x)
	s := bigNew().Quo(bigNew().Sub(bigOf(f), bigOf(1)), bigNew().Add(bigOf(f), bigOf(1)))
	y := bigNew().Mul(bigOf(2), bigAtanh(s))
	return y.Add(y, bigNew().Mul(bigOf(float64(e)), bigLn2()))
}

// bigSinCos reduces by multiples of 2π and sums the Taylor series.
func bigSinCos(x float64) (sin, cos *big.Float) {
	turn := bigNew().Mul(bigOf(2), bigPi())
	r := bigNew().Sub(bigOf(x), bigNew().Mul(bigOf(math.Round(x/(2*math.Pi))), turn))
	sin, cos = bigNew(), bigNew()
	term := bigOf(1)
	for k := range 80 {
		to := []*big.Float{cos, sin}[k%2]
		if k%4 < 2 {
			to.Add(to, term)
		} else {
			to.Sub(to, term)
		}
		term.Mul(term, bigNew().Quo(r, bigOf(float64(k+1))))
	}
	return sin, cos
}

// distance is |got − want|.
func distance(got float64, want *big.Float) float64 {
	d, _ := bigNew().Sub(bigOf(got), want).Float64()
	return math.Abs(d)
}

// ulps64 is the error of got in units in the last place of want.
func ulps64(got float64, want *big.Float) float64 {
	w, _ := want.Float64()
	w = math.Abs(w)
	return distance(got, want) / (math.Nextafter(w, math.Inf(1)) - w)
}

// ulps32 is the error of got in units in the last place of a float32.
func ulps32(got float32, want *big.Float) float64 {
	f, _ := want.Float32()
	f = float32(math.Abs(float64(f)))
	return distance(float64(got), want) / float64(math.Nextafter32(f, float32(math.Inf(1)))-f)
}
