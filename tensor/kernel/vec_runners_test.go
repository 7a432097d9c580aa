package kernel

import (
	"math"
	"slices"
)

// rooms hands out slices with guards on both sides, at addresses that are no multiple of a vector.
type rooms [][]float32

const edge = 3

// of is a guarded copy of x.
func (r *rooms) of(x []float32) []float32 {
	fence := slices.Repeat([]float32{-777}, edge)
	room := slices.Concat(fence, x, fence)
	*r = append(*r, room)
	return room[edge : edge+len(x) : edge+len(x)]
}

// out is room for a result of n elements, filled so that an element left out shows.
func (r *rooms) out(n int) []float32 { return r.of(slices.Repeat([]float32{7}, n)) }

// intact tells whether no edge was written.
func (r *rooms) intact() bool {
	for _, room := range *r {
		for i := range edge {
			if room[i] != -777 || room[len(room)-1-i] != -777 {
				return false
			}
		}
	}
	return true
}

// runner calls one kernel on three inputs of equal length and gives everything it wrote.
type runner struct {
	name string
	run  func(r *rooms, a, b, c []float32) [][]float32
}

type results = [][]float32

var runners = slices.Concat(elementwiseRunners, activationRunners, rowRunners)

var elementwiseRunners = []runner{
	{"Add", func(r *rooms, a, b, c []float32) results { o := r.out(len(a)); Add(o, a, b); return results{o} }},
	{"AddInto", func(r *rooms, a, b, c []float32) results { AddInto(a, b); return results{a} }},
	{"Mul", func(r *rooms, a, b, c []float32) results { o := r.out(len(a)); Mul(o, a, b); return results{o} }},
	{"Scale", func(r *rooms, a, b, c []float32) results { Scale(a, 1.7); return results{a} }},
	{"Axpy", func(r *rooms, a, b, c []float32) results { Axpy(a, -0.3, b); return results{a} }},
	{"ExpInto", func(r *rooms, a, b, c []float32) results { o := r.out(len(a)); ExpInto(o, a); return results{o} }},
	{"ExpScaled", func(r *rooms, a, b, c []float32) results {
		o := r.out(len(a))
		ExpScaled(o, a, 0.35, 2.1)
		return results{o}
	}},
	{"RoPE", func(r *rooms, a, b, c []float32) results {
		x := r.of(slices.Concat(a, b))
		RoPE(x, c, a)
		return results{x}
	}},
	{"RoPEGrad", func(r *rooms, a, b, c []float32) results {
		x := r.of(slices.Concat(a, b))
		RoPEGrad(x, c, a)
		return results{x}
	}},
	{"AdamW", func(r *rooms, a, b, c []float32) results {
		m, v := r.of(b), r.of(c)
		for i := range v {
			v[i] = float32(math.Abs(float64(v[i])))
		}
		AdamW(a, b, m, v, AdamWStep[float32]{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1,
			BiasCorr1: 0.19, BiasCorr2: 0.002, GradScale: 0.7})
		return results{a, m, v}
	}},
	{"Transpose", func(r *rooms, a, b, c []float32) results {
		rows := 1 + len(b)%7*5
		cols := len(a) / rows
		o := r.out(rows * cols)
		Transpose(o, a[:rows*cols], rows, cols)
		return results{o}
	}},
}

var activationRunners = []runner{
	{"SwiGLU", func(r *rooms, a, b, c []float32) results { o := r.out(len(a)); SwiGLU(o, a, b); return results{o} }},
	{"SwiGLUGrad", func(r *rooms, a, b, c []float32) results {
		dg, du := r.out(len(a)), r.out(len(a))
		SwiGLUGrad(dg, du, c, a, b)
		return results{dg, du}
	}},
	{"SquaredReLU", func(r *rooms, a, b, c []float32) results {
		o := r.out(len(a))
		SquaredReLU(o, a)
		return results{o}
	}},
	{"SquaredReLUGrad", func(r *rooms, a, b, c []float32) results {
		o := r.out(len(a))
		SquaredReLUGrad(o, b, a)
		return results{o}
	}},
	{"CrossEntropyGrad", func(r *rooms, a, b, c []float32) results {
		CrossEntropyGrad(a, 3.5, 0.25, 0.1)
		return results{a}
	}},
	{"RMSNorm", func(r *rooms, a, b, c []float32) results {
		o := r.out(len(a))
		inv := RMSNorm(o, a, b, 1e-5)
		return results{o, {inv}}
	}},
	{"RMSNormGrad", func(r *rooms, a, b, c []float32) results {
		dx, dgain := r.out(len(a)), r.of(b)
		RMSNormGrad(dx, dgain, c, a, b, 0.6)
		return results{dx, dgain}
	}},
}

var rowRunners = []runner{
	{"Sum", func(r *rooms, a, b, c []float32) results { return results{{Sum(a)}} }},
	{"Dot", func(r *rooms, a, b, c []float32) results { return results{{Dot(a, b)}} }},
	{"SumSquares", func(r *rooms, a, b, c []float32) results {
		s := SumSquares(a)
		bits := math.Float64bits(s)
		if math.IsNaN(s) {
			bits = 1
		}
		return results{{math.Float32frombits(uint32(bits >> 32)), math.Float32frombits(uint32(bits))}}
	}},
	{"Max", func(r *rooms, a, b, c []float32) results { return results{{Max(a)}} }},
	{"MaxIndex", func(r *rooms, a, b, c []float32) results { return results{{float32(MaxIndex(a))}} }},
	{"SumExp", func(r *rooms, a, b, c []float32) results { return results{{SumExp(a, 3)}} }},
	{"SoftmaxInto", func(r *rooms, a, b, c []float32) results {
		o := r.out(len(a))
		max, sum := SoftmaxInto(o, a, 0.7)
		return results{o, {max, sum}}
	}},
	{"SoftmaxIntoNegative", func(r *rooms, a, b, c []float32) results {
		max, sum := SoftmaxInto(a, a, -1.3)
		return results{a, {max, sum}}
	}},
	{"SoftmaxGradRow", func(r *rooms, a, b, c []float32) results {
		o := r.out(len(a))
		SoftmaxGradRow(o, a, b, 0.125)
		return results{o}
	}},
}
