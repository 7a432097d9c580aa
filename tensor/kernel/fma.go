package kernel

import "math"

// fma32 is the correctly rounded float32 a·b + c, the same bits as a hardware FMA, on every GOARCH and GOAMD64.
//
// The product of two float32 has 48 bits and is exact in float64, so s is a·b + c rounded once to 53 bits, whether
// or not the compiler fuses the two operations. Rounding s again to float32 goes wrong only where s lies exactly
// half way between two float32 after having been rounded itself. For results in the normal range, and for those that
// overflow, that is one pattern of the low 29 bits; below, the grid of float32 is coarser and every s is suspect.
func fma32(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	u := math.Float64bits(s)
	if u&fmaLow != fmaHalf && u&^fmaSign >= fmaNormal {
		return float32(s)
	}
	return float32(roundToOdd(p, z, s))
}

const (
	fmaSign   = 1 << 63
	fmaLow    = 1<<29 - 1          // bits that float32 does not have
	fmaHalf   = 1 << 28            // the middle between two neighbours
	fmaNormal = (1023 - 126) << 52 // 2^-126, the smallest normal float32
	fmaHigh   = (1023 + 127) << 52 // 2^127, from which a float32 may round to infinity
)

// fmaRow is acc[j] = fma32(x, row[j], acc[j]) on float32 values held as float64. In the middle of the range it rounds
// to float32 in integers, because Go's conversions wait for each other.
func fmaRow(acc *[16]float64, x float64, row *[16]float64) {
	for j, y := range row {
		u := math.Float64bits(x*y + acc[j])
		if u&fmaLow == fmaHalf || u&^fmaSign-fmaNormal >= fmaHigh-fmaNormal {
			acc[j] = float64(fma32(float32(x), float32(y), float32(acc[j])))
			continue
		}
		acc[j] = math.Float64frombits((u + fmaHalf) &^ fmaLow)
	}
}

// roundToOdd is the exact p + z, of which s is the nearest float64, rounded to odd: when s is inexact, the one of the
// two neighbours of the exact sum whose last bit is one. It tells on which side of a tie the sum lies, and 53 bits
// are at least 24+2, so that rounding once more, to float32, is right. NaN and infinite s stay as they are.
func roundToOdd(p, z, s float64) float64 {
	t := s - p
	e := (p - (s - t)) + (z - t) // TwoSum: s + e is exactly p + z; NaN if s is not finite
	u := math.Float64bits(s)
	if (e > 0 || e < 0) && u&1 == 0 {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
	}
	return math.Float64frombits(u)
}
