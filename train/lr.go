package train

import (
	"math"

	"phalanx/config"
	"phalanx/tensor/kernel"
)

// Scheduler gives learning rates and weight decay as functions of the number of successful updates: Megatron's
// OptimizerParamScheduler. It counts in samples, a global batch for each update; a skipped step does not count.
type Scheduler struct {
	o              config.Optimizer
	s              config.Scheduler
	batch          float64
	warmup         float64 // samples; a fraction of the decay need not be whole
	end            float64 // samples at which the decay ends
	anneal         float64 // samples of WSD's last part
	decayEnd       float64 // samples at which weight decay has risen
	startWD, endWD float64
}

// NewScheduler reads the optimizer and scheduler sections.
func NewScheduler(o config.Optimizer, s config.Scheduler, t config.Train) Scheduler {
	batch := float64(max(t.GlobalBatchSize, 1))
	samples := func(iters, samples int) float64 {
		if samples > 0 {
			return float64(samples)
		}
		return float64(iters) * batch
	}
	x := Scheduler{o: o, s: s, batch: batch, end: samples(s.LRDecayIters, s.LRDecaySamples), warmup: samples(s.LRWarmupIters, s.LRWarmupSamples),
		anneal: samples(s.LRWSDDecayIters, s.LRWSDDecaySamples), decayEnd: samples(t.TrainIters, 0), startWD: o.WeightDecay, endWD: o.WeightDecay}
	if x.end == 0 {
		x.end = samples(t.TrainIters, 0)
	}
	if f := s.LRWarmupFraction; f != nil {
		x.warmup = *f * x.end
	}
	if s.StartWeightDecay != nil && s.EndWeightDecay != nil {
		x.startWD, x.endWD = *s.StartWeightDecay, *s.EndWeightDecay
	}
	return x
}

// Rates are what one update multiplies with.
type Rates struct {
	LR          float64
	DecoupledLR float64 // of the embedding and the output layer
	WeightDecay float64
}

// At is what the update after the first n uses: the rates set before it, so the first update of a warm-up has rate
// lr_warmup_init.
func (x Scheduler) At(n int) Rates {
	samples := float64(n) * x.batch
	r := Rates{LR: x.lr(samples, x.o.LR, x.o.MinLR), WeightDecay: x.weightDecay(samples)}
	r.DecoupledLR = r.LR
	if x.o.DecoupledLR != nil {
		low := x.o.MinLR
		if x.o.DecoupledMinLR != nil {
			low = *x.o.DecoupledMinLR
		}
		r.DecoupledLR = x.lr(samples, *x.o.DecoupledLR, low)
	}
	return r
}

// lr is the rate after n samples between a greatest and a least one.
func (x Scheduler) lr(n, most, least float64) float64 {
	style, init := x.s.LRDecayStyle, x.s.LRWarmupInit
	if x.warmup > 0 && n <= x.warmup {
		return init + (most-init)*n/x.warmup
	}
	switch {
	case style == "constant" || style == "":
		return most
	case n > x.end:
		return least
	case style == "inverse-square-root":
		return math.Max(least, most*math.Sqrt(math.Max(x.warmup, 1))/math.Sqrt(math.Max(n, 1)))
	}
	return least + x.share(n)*(most-least)
}

// share is how much of the difference between the greatest and the least rate is left after n samples.
func (x Scheduler) share(n float64) float64 {
	if x.s.LRDecayStyle == "WSD" {
		return x.annealed(n)
	}
	ratio := 0.0 // at the end of a warm-up that is as long as the decay
	if x.end > x.warmup {
		ratio = (n - x.warmup) / (x.end - x.warmup)
	}
	if x.s.LRDecayStyle == "linear" {
		return 1 - ratio
	}
	return cosineHalf(ratio)
}

// annealed is 1 until the last part of WSD, then falls to 0.
func (x Scheduler) annealed(n float64) float64 {
	start := x.end - x.anneal
	if n <= start {
		return 1
	}
	r := (n - start) / x.anneal
	switch x.s.LRWSDDecayStyle {
	case "linear":
		return 1 - r
	case "cosine":
		return cosineHalf(r)
	case "minus_sqrt":
		return 1 - math.Sqrt(r)
	}
	return 2*kernel.Exp(-r*math.Ln2) - 1 // exponential
}

// weightDecay rises or falls from start to end over the run.
func (x Scheduler) weightDecay(n float64) float64 {
	if n > x.decayEnd || x.startWD == x.endWD {
		return x.endWD
	}
	ratio := n / x.decayEnd
	if x.s.WeightDecayIncrStyle == "cosine" {
		ratio = cosineHalf(1 - ratio)
	}
	return x.startWD + ratio*(x.endWD-x.startWD)
}

// cosineHalf falls from 1 to 0 as r goes from 0 to 1.
func cosineHalf(r float64) float64 {
	_, cos := kernel.SinCos(math.Pi * r)
	return 0.5 * (cos + 1)
}
