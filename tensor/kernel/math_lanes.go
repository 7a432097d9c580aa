package kernel

import (
	"math"

	"phalanx/tensor"
)

// Lanes is the width of every reduction: element i goes to lane i mod Lanes. A vector of AVX-512 is 16 float32.
const Lanes = 16

// This file is the definition of the reductions. Each adds a slice into 16 lanes; a long slice may be cut at
// multiples of 16 without a change of bits, because the lanes are handed on.

func sumLanes[T tensor.Float](acc *[Lanes]T, x []T) {
	for i, v := range x {
		acc[i%Lanes] += v
	}
}

func dotLanes[T tensor.Float](acc *[Lanes]T, x, y []T) {
	for i, v := range x {
		acc[i%Lanes] = mulAdd(v, y[i], acc[i%Lanes])
	}
}

// sumSquaresLanes adds in float64, where the square of a float32 is exact.
func sumSquaresLanes[T tensor.Float](acc *[Lanes]float64, x []T) {
	for i, v := range x {
		acc[i%Lanes] = mulAdd(float64(v), float64(v), acc[i%Lanes])
	}
}

// maxLanes keeps the largest scale·x; a NaN is never larger.
func maxLanes[T tensor.Float](acc *[Lanes]T, x []T, scale T) {
	for i, v := range x {
		if z := T(scale * v); z > acc[i%Lanes] {
			acc[i%Lanes] = z
		}
	}
}

func sumExpLanes[T tensor.Float](acc *[Lanes]T, x []T, max T) {
	for i, v := range x {
		acc[i%Lanes] += Exp(v - max)
	}
}

// softmaxLanes writes exp(scale·src − max) to dst and adds it.
func softmaxLanes[T tensor.Float](acc *[Lanes]T, dst, src []T, scale, max T) {
	for i, v := range src {
		e := expScaledOf(v, scale, max)
		dst[i] = e
		acc[i%Lanes] += e
	}
}

// rmsNormGradLanes adds (dy·gain)·(x·inv).
func rmsNormGradLanes[T tensor.Float](acc *[Lanes]T, dy, x, gain []T, inv T) {
	for i, v := range x {
		acc[i%Lanes] = mulAdd(T(dy[i]*gain[i]), T(v*inv), acc[i%Lanes])
	}
}

// foldSum adds the lanes 16→8→4→2→1.
func foldSum[T tensor.Float](acc *[Lanes]T) T {
	for w := Lanes / 2; w > 0; w /= 2 {
		for i := range w {
			acc[i] += acc[i+w]
		}
	}
	return acc[0]
}

// foldMax is the largest lane; of +0 and −0 the one in the lower lane wins.
func foldMax[T tensor.Float](acc *[Lanes]T) T {
	for w := Lanes / 2; w > 0; w /= 2 {
		for i := range w {
			if acc[i+w] > acc[i] {
				acc[i] = acc[i+w]
			}
		}
	}
	return acc[0]
}

// lowest is 16 lanes of −Inf.
func lowest[T tensor.Float]() (acc [Lanes]T) {
	for i := range acc {
		acc[i] = T(math.Inf(-1))
	}
	return acc
}
