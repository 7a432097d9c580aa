package nn

import (
	"math"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Rope says how rotary positions turn a head: its first Dim features, in pairs, by p · Base^(−2i/Dim) at position p.
// Features behind Dim stay as they are.
type Rope struct {
	Dim  int // even
	Base float64
	// Interleaved pairs neighbours (2i, 2i+1) instead of the halves (i, i + Dim/2).
	Interleaved bool
	// Scale is Llama 3's: it divides the frequencies of long waves; 0: none.
	Scale float64
}

// What Llama 3 was trained on, and where its scaling begins and ends (Megatron-Core's constants, which no key sets).
const (
	llamaContext = 8192.0
	llamaLow     = 1.0
	llamaHigh    = 4.0
)

// freq is the angle of pair i at position 1.
func (r Rope) freq(i int) float64 {
	f := kernel.Exp(-math.Abs(2*float64(i)/float64(r.Dim)) * kernel.Log(r.Base))
	if r.Scale == 0 {
		return f
	}
	waves := llamaContext * f / (2 * math.Pi) // in the context of the training
	smooth := min(1, max(0, (waves-llamaLow)/(llamaHigh-llamaLow)))
	return float64((1-smooth)*f/r.Scale) + float64(smooth*f)
}

// RopeTable holds cos and sin of every position's angles: [S, Dim/2].
type RopeTable[T tensor.Float] struct {
	Half        int
	Interleaved bool
	Cos, Sin    []T
}

// NewRopeTable makes the angles of positions [0, seq) for heads that turn whole, in halves.
func NewRopeTable[T tensor.Float](seq, d int, base float64) *RopeTable[T] {
	return RopeTableOf[T](Rope{Dim: d, Base: base}, seq)
}

// RopeTableOf makes the angles of positions [0, seq). Slots inserted for context parallelism need angles too: see
// RopeLength.
func RopeTableOf[T tensor.Float](r Rope, seq int) *RopeTable[T] {
	half := r.Dim / 2
	t := &RopeTable[T]{Half: half, Interleaved: r.Interleaved, Cos: make([]T, seq*half), Sin: make([]T, seq*half)}
	for i := range half {
		freq := r.freq(i)
		for p := range seq {
			sin, cos := kernel.SinCos(float64(p) * freq)
			t.Cos[p*half+i], t.Sin[p*half+i] = T(cos), T(sin)
		}
	}
	return t
}

func (t *RopeTable[T]) at(p int) (cos, sin []T) {
	return t.Cos[p*t.Half : (p+1)*t.Half], t.Sin[p*t.Half : (p+1)*t.Half]
}

// rotate turns one head at position p, in place. A nil table turns nothing.
func (t *RopeTable[T]) rotate(x []T, p int) {
	if t == nil {
		return
	}
	cos, sin := t.at(p)
	if t.Interleaved {
		turnPairs(x, cos, sin, 1)
		return
	}
	kernel.RoPE(x[:2*t.Half], cos, sin)
}

// unrotate is the transpose of rotate.
func (t *RopeTable[T]) unrotate(dx []T, p int) {
	if t == nil {
		return
	}
	cos, sin := t.at(p)
	if t.Interleaved {
		turnPairs(dx, cos, sin, -1)
		return
	}
	kernel.RoPEGrad(dx[:2*t.Half], cos, sin)
}

// turnPairs turns neighbours (x[2i], x[2i+1]) by the angles, or back with sign −1. Products are rounded before they
// are added, so that every processor gives the same bits.
func turnPairs[T tensor.Float](x, cos, sin []T, sign T) {
	for i, c := range cos {
		s := sign * sin[i]
		a, b := x[2*i], x[2*i+1]
		x[2*i] = T(a*c) - T(b*s)
		x[2*i+1] = T(b*c) + T(a*s)
	}
}

// RopeLength is the number of positions that need angles: a document may fill the row, or (with the planted bug that
// counts positions through the row) end it, and is padded to a multiple of 2·CP.
func RopeLength(seq, cp int) int {
	if cp == 1 {
		return seq
	}
	return seq + 2*cp - 1
}
