// Package train holds what a step is made of besides the model: the order of microbatches, the learning rate, the
// gradient norm and the optimizer, all pure.
package train

import (
	"math"

	"phalanx/config"
	"phalanx/tensor/kernel"
)

// LR is the learning rate of a run as a function of the step.
type LR struct {
	max, min, init float64
	warmup, end    int
	style          string
	wsdStyle       string
	wsdSteps       int
}

// NewLR reads the optimizer and scheduler sections.
func NewLR(o config.Optimizer, s config.Scheduler, trainIters int) LR {
	lr := LR{max: o.LR, min: o.MinLR, init: s.LRWarmupInit, warmup: s.LRWarmupIters, end: s.LRDecayIters,
		style: s.LRDecayStyle, wsdStyle: s.LRWSDDecayStyle, wsdSteps: s.LRWSDDecayIters}
	if lr.end == 0 {
		lr.end = trainIters
	}
	return lr
}

// At is the rate used for 0-based step i: the one set before it, so the first step of a warm-up has rate init.
func (l LR) At(i int) float64 {
	if l.warmup > 0 && i <= l.warmup {
		return l.init + (l.max-l.init)*float64(i)/float64(l.warmup)
	}
	switch {
	case l.style == "constant" || l.style == "":
		return l.max
	case i > l.end:
		return l.min
	case l.style == "inverse-square-root":
		w := float64(max(l.warmup, 1))
		return math.Max(l.min, l.max*math.Sqrt(w)/math.Sqrt(float64(max(i, 1))))
	}
	ratio := float64(i-l.warmup) / float64(max(l.end-l.warmup, 1))
	switch l.style {
	case "linear":
		return l.min + (1-ratio)*(l.max-l.min)
	case "cosine":
		return l.min + cosineHalf(ratio)*(l.max-l.min)
	}
	return l.wsd(i)
}

// wsd holds the maximum until the last wsdSteps steps, then anneals.
func (l LR) wsd(i int) float64 {
	start := l.end - l.wsdSteps
	if i <= start {
		return l.max
	}
	r := float64(i-start) / float64(max(l.wsdSteps, 1))
	c := 0.0
	switch l.wsdStyle {
	case "linear":
		c = 1 - r
	case "cosine":
		c = cosineHalf(r)
	case "minus_sqrt":
		c = 1 - math.Sqrt(r)
	default: // exponential
		c = 2*kernel.Exp(-r*math.Ln2) - 1
	}
	return l.min + c*(l.max-l.min)
}

// cosineHalf falls from 1 to 0 as r goes from 0 to 1.
func cosineHalf(r float64) float64 {
	_, cos := kernel.SinCos(math.Pi * r)
	return 0.5 * (cos + 1)
}
