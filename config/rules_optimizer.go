package config

import (
	"fmt"
	"strings"
)

// optimizer holds the rules between learning rates.
func (c *checker) optimizer() {
	o := &c.s.Optimizer
	c.notAbove("optimizer.min_lr", o.MinLR, "optimizer.lr", o.LR)
	if o.DecoupledLR == nil {
		if o.DecoupledMinLR != nil {
			c.note("optimizer.decoupled_min_lr has no effect without decoupled_lr")
		}
		return
	}
	if o.DecoupledMinLR != nil {
		c.notAbove("optimizer.decoupled_min_lr", *o.DecoupledMinLR, "optimizer.decoupled_lr", *o.DecoupledLR)
	} else {
		c.notAbove("optimizer.min_lr", o.MinLR, "optimizer.decoupled_lr", *o.DecoupledLR)
	}
}

// notAbove reports a value above that of another key of its section.
func (c *checker) notAbove(key string, x float64, limitKey string, limit float64) {
	if x > limit {
		c.fail(key, fmt.Sprintf("%s is above %s %s; nearest legal: %s", number(x), leaf(limitKey), number(limit), number(limit)), limitKey)
	}
}

// leaf is a key without its section.
func leaf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// ddp holds the rules of the gradient reduction.
func (c *checker) ddp() {
	if c.s.DDP.BF16() && c.s.Train.DType == "fp64" {
		c.fail("ddp.grad_reduce_in_fp32", "false rounds gradients to bf16 on their way, which fp64 is not for; nearest legal: true, or dtype fp32", "train.dtype")
	}
	if c.s.DDP.OverlapGradReduce && c.s.Train.SkipNaNMicrobatches {
		c.fail("ddp.overlap_grad_reduce", "true reduces gradients before train.skip_nan_microbatches knows which microbatches count; remove one of the two",
			"train.skip_nan_microbatches")
	}
	c.policy()
}

// policy notes which of two policies about figures that are not finite wins.
func (c *checker) policy() {
	if c.s.DDP.CheckForNaNInGrad && c.s.Train.SkipNaNSteps {
		c.note("ddp.check_for_nan_in_grad ends the run at a gradient that train.skip_nan_steps would skip")
	}
	if c.s.Train.CheckForNaNInLoss && c.s.Train.SkipNaNMicrobatches {
		c.note("train.check_for_nan_in_loss has no effect with skip_nan_microbatches, which drops the microbatch")
	}
}

// scheduler holds the rules of learning rate and weight decay over a run.
func (c *checker) scheduler() {
	s, o := &c.s.Scheduler, &c.s.Optimizer
	if s.LRWarmupInit > o.LR {
		c.fail("scheduler.lr_warmup_init", fmt.Sprintf("%s is above lr %s; nearest legal: %s", number(s.LRWarmupInit), number(o.LR), number(o.LR)), "optimizer.lr")
	}
	c.weightDecay()
	for _, length := range []struct {
		set  bool
		keys []string
	}{
		{s.LRDecaySamples > 0 && s.LRDecayIters > 0, []string{"scheduler.lr_decay_samples", "scheduler.lr_decay_iters"}},
		{s.LRWarmupSamples > 0 && s.LRWarmupIters > 0, []string{"scheduler.lr_warmup_samples", "scheduler.lr_warmup_iters"}},
		{s.LRWarmupFraction != nil && s.LRWarmupIters > 0, []string{"scheduler.lr_warmup_fraction", "scheduler.lr_warmup_iters"}},
		{s.LRWarmupFraction != nil && s.LRWarmupSamples > 0, []string{"scheduler.lr_warmup_fraction", "scheduler.lr_warmup_samples"}},
		{s.LRWSDDecaySamples > 0 && s.LRWSDDecayIters > 0, []string{"scheduler.lr_wsd_decay_samples", "scheduler.lr_wsd_decay_iters"}},
	} {
		if length.set {
			c.fail(length.keys[0], fmt.Sprintf("is given beside %s, which says the same in another unit; remove one of the two", leaf(length.keys[1])), length.keys[1])
		}
	}
	c.warmup()
	c.anneal()
}

// samples are a length in samples, of iterations or samples.
func (c *checker) samples(iters, samples int) int {
	if samples > 0 {
		return samples
	}
	return product(iters, max(c.s.Train.GlobalBatchSize, 1))
}

// warmup holds that the warm-up ends before the decay does.
func (c *checker) warmup() {
	s := &c.s.Scheduler
	const decay, warmup, samples, fraction = "scheduler.lr_decay_iters", "scheduler.lr_warmup_iters", "scheduler.lr_warmup_samples", "scheduler.lr_warmup_fraction"
	end := c.samples(s.LRDecayIters, s.LRDecaySamples)
	switch {
	case s.LRWarmupIters > 0 && s.LRDecaySamples == 0 && s.LRWarmupIters >= s.LRDecayIters:
		c.fail(warmup, fmt.Sprintf("%d is not below lr_decay_iters %d; nearest legal: %d", s.LRWarmupIters, s.LRDecayIters, s.LRDecayIters-1), decay, "train.train_iters")
	case s.LRWarmupIters > 0 && c.samples(s.LRWarmupIters, 0) >= end:
		c.fail(warmup, fmt.Sprintf("%d is not below lr_decay_samples %d in steps of global_batch_size %d", s.LRWarmupIters, s.LRDecaySamples, c.s.Train.GlobalBatchSize),
			"scheduler.lr_decay_samples", "train.global_batch_size")
	case s.LRWarmupSamples > 0 && s.LRWarmupSamples >= end:
		c.fail(samples, fmt.Sprintf("%d is not below the %d samples of the decay; nearest legal: %d", s.LRWarmupSamples, end, max(end-1, 0)),
			decay, "scheduler.lr_decay_samples", "train.train_iters", "train.global_batch_size")
	case s.LRWarmupFraction != nil && *s.LRWarmupFraction == 1 && s.LRDecayStyle != "constant":
		c.fail(fraction, "1 leaves nothing of the decay; expected a number from 0 to below 1")
	}
}

// anneal holds the rules of WSD.
func (c *checker) anneal() {
	s := &c.s.Scheduler
	const style, decay, warmup, wsd, wsdSamples = "scheduler.lr_decay_style", "scheduler.lr_decay_iters", "scheduler.lr_warmup_iters",
		"scheduler.lr_wsd_decay_iters", "scheduler.lr_wsd_decay_samples"
	if s.LRDecayStyle != "WSD" {
		c.noEffect("without lr_decay_style WSD", wsd, wsdSamples, "scheduler.lr_wsd_decay_style")
		return
	}
	end := c.samples(s.LRDecayIters, s.LRDecaySamples)
	before := c.samples(s.LRWarmupIters, s.LRWarmupSamples)
	if s.LRWarmupFraction != nil {
		before = int(*s.LRWarmupFraction * float64(end))
	}
	room := s.LRDecayIters - s.LRWarmupIters
	last := c.samples(s.LRWSDDecayIters, s.LRWSDDecaySamples)
	involved := []string{style, decay, warmup, "scheduler.lr_decay_samples", "scheduler.lr_warmup_samples", "scheduler.lr_warmup_fraction", "train.train_iters"}
	switch {
	case last == 0:
		c.fail(wsd, fmt.Sprintf("required with lr_decay_style WSD; expected a whole number from 1 to %d", max(room, 1)), involved...)
	case s.LRWSDDecayIters > 0 && s.LRDecayIters > 0 && s.LRWarmupSamples == 0 && s.LRWarmupFraction == nil:
		if s.LRWSDDecayIters > room {
			c.fail(wsd, fmt.Sprintf("%d is more than lr_decay_iters - lr_warmup_iters = %d; nearest legal: %d", s.LRWSDDecayIters, room, room), involved...)
		}
	case last > end-before:
		key := wsd
		if s.LRWSDDecaySamples > 0 {
			key = wsdSamples
		}
		c.fail(key, fmt.Sprintf("its %d samples are more than the %d between warm-up and end of the decay", last, max(end-before, 0)), involved...)
	}
}

// weightDecay holds the rules of a weight decay that changes.
func (c *checker) weightDecay() {
	s := &c.s.Scheduler
	const style, start, end = "scheduler.weight_decay_incr_style", "scheduler.start_weight_decay", "scheduler.end_weight_decay"
	if s.WeightDecayIncrStyle == "constant" || s.WeightDecayIncrStyle == "" {
		for _, k := range []struct {
			key   string
			value *float64
		}{{start, s.StartWeightDecay}, {end, s.EndWeightDecay}} {
			if k.value != nil && *k.value != c.s.Optimizer.WeightDecay {
				c.fail(k.key, fmt.Sprintf("found %s, expected weight_decay %s, because weight_decay_incr_style is constant; use linear or cosine",
					number(*k.value), number(c.s.Optimizer.WeightDecay)), style, "optimizer.weight_decay")
			}
		}
		return
	}
	for _, k := range []struct {
		key   string
		value *float64
	}{{start, s.StartWeightDecay}, {end, s.EndWeightDecay}} {
		if k.value == nil {
			c.fail(k.key, fmt.Sprintf("required with weight_decay_incr_style %s", s.WeightDecayIncrStyle), style)
		}
	}
}
