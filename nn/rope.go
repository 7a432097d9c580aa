package nn

import (
	"math"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// RopeTable holds cos and sin of every position's angles: [S, D/2], angle(p, i) = p · base^(−2i/D).
type RopeTable[T tensor.Float] struct {
	Half     int
	Cos, Sin []T
}

// NewRopeTable makes the angles of positions [0, seq) for heads of dimension d. Slots inserted for context
// parallelism need angles too: see RopeLength.
func NewRopeTable[T tensor.Float](seq, d int, base float64) *RopeTable[T] {
	half := d / 2
	t := &RopeTable[T]{Half: half, Cos: make([]T, seq*half), Sin: make([]T, seq*half)}
	for i := range half {
		freq := kernel.Exp(-math.Abs(2*float64(i)/float64(d)) * kernel.Log(base))
		for p := range seq {
			sin, cos := kernel.SinCos(float64(p) * freq)
			t.Cos[p*half+i], t.Sin[p*half+i] = T(cos), T(sin)
		}
	}
	return t
}

// rotate turns one head at position p, in place.
func (t *RopeTable[T]) rotate(x []T, p int) {
	kernel.RoPE(x, t.Cos[p*t.Half:(p+1)*t.Half], t.Sin[p*t.Half:(p+1)*t.Half])
}

// unrotate is the transpose of rotate.
func (t *RopeTable[T]) unrotate(dx []T, p int) {
	kernel.RoPEGrad(dx, t.Cos[p*t.Half:(p+1)*t.Half], t.Sin[p*t.Half:(p+1)*t.Half])
}

// RopeLength is the number of positions that need angles: a document may fill the row, or (with the planted bug that
// counts positions through the row) end it, and is padded to a multiple of 2·CP.
func RopeLength(seq, cp int) int {
	if cp == 1 {
		return seq
	}
	return seq + 2*cp - 1
}
