package moe

import (
	"fmt"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Shapes of this file: one row of E logits.

// ScoreFunc turns logits into the scores that experts are chosen by.
type ScoreFunc uint8

// The score functions.
const (
	Softmax ScoreFunc = iota
	Sigmoid
	SqrtSoftplus
)

// ParseScoreFunc reads moe_router_score_function.
func ParseScoreFunc(s string) (ScoreFunc, error) {
	switch s {
	case "", "softmax":
		return Softmax, nil
	case "sigmoid":
		return Sigmoid, nil
	case "sqrtsoftplus":
		return SqrtSoftplus, nil
	}
	return 0, fmt.Errorf("moe: no score function %q", s)
}

// sumFloor keeps the normalisation of scores finite where all of them vanish.
const sumFloor = 1e-20

// score fills dst with f of every logit of a row.
func (f ScoreFunc) score(dst, logits []float64) {
	switch f {
	case Softmax:
		kernel.SoftmaxInto(dst, logits, 1)
	case Sigmoid:
		for i, x := range logits {
			dst[i] = sigmoid(x)
		}
	case SqrtSoftplus:
		for i, x := range logits {
			dst[i] = sqrt(softplus(x))
		}
	}
}

// slope is d score/d logit of the elementwise functions.
func (f ScoreFunc) slope(logit, score float64) float64 {
	if f == Sigmoid {
		return score * (1 - score)
	}
	return sigmoid(logit) / (2 * max(score, 1e-150))
}

func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + kernel.Exp(-x))
	}
	e := kernel.Exp(x)
	return e / (1 + e)
}

// softplus is log(1 + e^x).
func softplus(x float64) float64 {
	if x > 30 {
		return x + kernel.Exp(-x)
	}
	if x < -30 {
		return kernel.Exp(x)
	}
	return kernel.Log(1 + kernel.Exp(x))
}

// topK writes the indices of the len(dst) largest values, largest first, lowest index first among equals, in one pass
// over x, which has at least as many. A NaN comes behind all numbers: it is taken, lowest index first, only where no
// number is left, so that the row still goes somewhere.
func topK[T tensor.Float](dst []int32, x []T) {
	n, least := 0, T(0) // found, and the least of them once dst is full
	for e, v := range x {
		if v != v || n == len(dst) && v <= least {
			continue
		}
		j := n
		if n < len(dst) {
			n++
		} else {
			j--
		}
		for ; j > 0 && v > x[dst[j-1]]; j-- {
			dst[j] = dst[j-1]
		}
		dst[j] = int32(e)
		least = x[dst[n-1]]
	}
	for e := int32(0); n < len(dst); e++ {
		if !taken(dst[:n], e) {
			dst[n] = e
			n++
		}
	}
}

func taken(chosen []int32, e int32) bool {
	for _, t := range chosen {
		if t == e {
			return true
		}
	}
	return false
}

// Groups restricts the choice to the experts of the best groups: N equal groups, of which Top are
// kept; a group's score is the sum of its K/Top largest scores. The zero value restricts nothing.
type Groups struct{ N, Top int }

// limit sets the scores of experts outside the best groups to −Inf.
func (g Groups) limit(scores []float64, k int) {
	if g.N == 0 {
		return
	}
	size := len(scores) / g.N
	each := make([]int32, max(k/g.Top, 1))
	sums := make([]float64, g.N)
	for i := range sums {
		part := scores[i*size : (i+1)*size]
		topK(each, part)
		for _, e := range each {
			sums[i] += part[e]
		}
	}
	best := make([]int32, g.Top)
	topK(best, sums)
	for i := range g.N {
		if taken(best, int32(i)) {
			continue
		}
		for e := range size {
			scores[i*size+e] = negInf
		}
	}
}
