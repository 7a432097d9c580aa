package model

import (
	"fmt"
	"strings"

	"phalanx/config/mutation"
	"phalanx/nn"
)

// Names of the values between stage and reducer.
const (
	portBucket  = "bucket"  // stage → reducer: a bucket whose gradients are complete on this rank
	portReduced = "reduced" // reducer → stage: all buckets of the step are reduced
	portSent    = "sent"    // stage → stage
)

// handed is what the stage tells the reducer.
type handed struct {
	step, bucket int
	last         bool // no bucket: the step's are all there
	end          bool // no bucket: the run ends
}

// overlaps reports whether gradients are reduced by a program of their own while the backward pass goes on.
func (r *Rank[T]) overlaps() bool {
	return r.env.Scenario.DDP.OverlapGradReduce && !r.mut.Has(mutation.DropReduce)
}

// layerOf knows the decoder layers' parameters, if that is asked.
func (r *Rank[T]) layerOf() func(*nn.Spec) int {
	if !r.overlaps() {
		return nil
	}
	return func(s *nn.Spec) int {
		rest, ok := strings.CutPrefix(s.Name, "model.layers.")
		layer := 0
		if !ok {
			return -1
		}
		if _, err := fmt.Sscanf(rest, "%d.", &layer); err != nil || layer >= r.cfg.NumLayers {
			return -1 // an MTP depth: its own program adds to it
		}
		return layer
	}
}

// reducer is the program that adds gradients over ranks, bucket after bucket as the stage hands them over. While it has a
// bucket nobody else touches these gradients. Every rank of a group hands over in the same order, that of the backward pass.
func (r *Rank[T]) reducer(c nn.Comm) {
	for {
		h := c.Recv(0, portBucket).(handed)
		switch {
		case h.end:
			return
		case h.last:
			c.Send(0, portReduced, nil)
		default:
			r.grads.ReduceBucket(c, nn.Site{Step: h.step, Phase: nn.Update, Layer: -1}, r.mut, h.bucket)
		}
	}
}

// layerDone hands over the buckets that are complete when a layer's last backward pass of the step has ended.
func (r *Rank[T]) layerDone(p *pass[T], layer int) {
	if !p.last || !r.overlaps() {
		return
	}
	step := p.c.Site.Step
	r.checkGrads(step, layer)
	ready := r.grads.Ready(layer)
	for _, b := range ready {
		p.c.Comm.Send(nn.Reducer, portBucket, handed{step: step, bucket: b})
	}
	if len(ready) > 0 {
		// What is sent leaves when the program waits for something: here for a word to itself.
		p.c.Comm.Send(0, portSent, nil)
		p.c.Comm.Recv(0, portSent)
	}
}

// reduceGrads completes all gradients, or those that are left, and waits for the others.
func (r *Rank[T]) reduceGrads(c nn.Comm, site nn.Site) {
	if !r.overlaps() {
		r.grads.Reduce(c, site, r.mut)
		return
	}
	for _, b := range r.grads.Ready(-1) {
		c.Send(nn.Reducer, portBucket, handed{step: site.Step, bucket: b})
	}
	c.Send(nn.Reducer, portBucket, handed{last: true})
	c.Recv(nn.Reducer, portReduced)
}

// endReducer ends the reducer's program.
func (r *Rank[T]) endReducer(c nn.Comm) {
	if r.overlaps() {
		c.Send(nn.Reducer, portBucket, handed{end: true})
	}
}
