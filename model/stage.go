package model

import (
	"phalanx/config"
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/train"
)

// Names of the values that programs of a rank hand to each other.
const (
	portOrder  = "order"  // stage → depth k: the next pass, in the stage's order
	portInputs = "inputs" // trunk → depth 1 → depth 2 …: mtp.Inputs with its pass
	portHead   = "head"   // depth k → stage: mtp.ToHead
	portRolled = "rolled" // last depth of a chunk → stage: mtp.Inputs for a depth on the next stage
	portGrad   = "grad"   // stage → depth k: gradient of h_k from its loss
	portChain  = "chain"  // depth k → depth k−1, depth 1 → stage: gradient of h_{k−1}
)

// step is what every pass of one optimizer step shares.
type step struct {
	index        int
	microbatches int     // of this data-parallel rank
	first        int     // index of its first microbatch in the whole step
	global       int     // of the whole step
	tokens       []int64 // per-token loss: counted tokens of the whole step, LM then depths; else nil
	// dropped are microbatches of the whole step that count nowhere (train.skip_nan_microbatches).
	dropped map[int]bool
}

// means is the number of microbatches that count.
func (s step) means() float64 { return float64(max(s.global-len(s.dropped), 1)) }

// stage is program 0: it trains for all steps and reports each.
func (r *Rank[T]) stage(c nn.Comm) {
	t := r.env.Scenario.Train
	for i := r.begin(); i < t.TrainIters; i++ {
		r.boundary()
		if r.stops(c, i) {
			break
		}
		r.trainStep(c, i)
		if t.EvalInterval > 0 && r.env.Validation != nil && (i+1)%t.EvalInterval == 0 {
			r.eval(c, i)
		}
		r.advance()
		r.saveDue()
	}
	for k, d := range r.depths {
		if d != nil {
			c.Send(nn.Program(k+1), portOrder, order{end: true})
		}
	}
	r.endReducer(c)
	r.save()
	if r.position.Iteration < t.TrainIters {
		return // it was stopped, at a boundary
	}
	r.boundary()
	r.showShards(c, "weights", t.TrainIters, func(p *nn.Param[T]) []T { return p.Data })
}

// newStep knows which microbatches are this rank's: contiguous runs of the step's, in data-parallel order.
func (r *Rank[T]) newStep(c nn.Comm, i int, dropped map[int]bool) step {
	t := r.env.Scenario.Train
	s := step{index: i, global: t.GlobalBatchSize / t.MicroBatchSize, dropped: dropped}
	s.microbatches = s.global / c.Size(mesh.DP)
	s.first = c.Rank(mesh.DP) * s.microbatches
	if r.cfg.CalculatePerTokenLoss {
		s.tokens = r.countTokens(c, s)
	}
	return s
}

// trainStep is one optimizer step.
func (r *Rank[T]) trainStep(c nn.Comm, i int) {
	rates := r.rates.At(r.adam.Steps())
	done := messages.StepDone{Rank: r.env.Rank, Step: i, LR: rates.LR}
	s := r.newStep(c, i, nil)
	done.Sums = r.passes(c, s)
	if r.env.Scenario.Train.SkipNaNMicrobatches {
		done.Sums = r.withoutNaN(c, &s, done.Sums)
	}
	done.GradNorm, done.Skipped = r.update(c, i, rates)
	r.env.Emit(done)
}

// passes runs every microbatch forward and backward, in the order of the schedule; depths follow the same order.
func (r *Rank[T]) passes(c nn.Comm, s step) messages.Sums {
	var sums messages.Sums
	r.params.ZeroGrads()
	r.probe.reset()
	for _, router := range r.routers {
		router.StartStep(r.mut)
	}
	for _, op := range r.pipeline(s.microbatches).Schedule(c.Rank(mesh.PP)) {
		ch := r.chunks[op.Chunk]
		if s.dropped[s.first+op.Microbatch] {
			if op.Kind == train.ForwardOp && ch.Loss {
				r.noteDropped(c, s, op.Microbatch, &sums)
			}
			continue
		}
		for _, k := range ch.Depths {
			c.Send(nn.Program(k), portOrder, order{op: op})
		}
		switch op.Kind {
		case train.ForwardOp:
			ch.running[op.Microbatch] = r.forward(c, s, ch, op.Microbatch, &sums)
		case train.BackwardOp:
			p := ch.running[op.Microbatch]
			delete(ch.running, op.Microbatch)
			p.last = op.Microbatch == s.microbatches-1
			r.backward(p, ch)
			r.addAux(c, p, &sums)
			r.arenas.give(p.c.Arena)
			if r.mut.Has(mutation.BiasPerMicrobatch) {
				r.moveBiases(c, nn.Site{Step: s.index, Microbatch: op.Microbatch, Phase: nn.Update, Layer: -1})
			}
		}
	}
	return sums
}

// noteDropped counts the samples of a microbatch that counts nowhere else: the data has moved on.
func (r *Rank[T]) noteDropped(c nn.Comm, s step, m int, sums *messages.Sums) {
	if c.Rank(mesh.TP) != 0 || c.Rank(mesh.CP) != 0 {
		return
	}
	mb := r.batch(c, s, m)
	sums.Samples += int64(mb.B)
	if r.mut.Has(mutation.SkippedTokensCounted) {
		sums.LMTokens += mb.Loss.Count()
	}
}

// withoutNaN drops microbatches whose losses are not finite and runs the step again without them, so that they are in
// no sum, no count and no gradient. All ranks decide alike: the flags are combined over the job.
func (r *Rank[T]) withoutNaN(c nn.Comm, s *step, sums messages.Sums) messages.Sums {
	for {
		flags := make([]uint8, s.global)
		for m, bad := range r.notFinite {
			if bad {
				flags[s.first+m] = 1
			}
		}
		site := nn.Site{Step: s.index, Phase: nn.Update, Layer: -1}
		for _, axis := range [...]mesh.Axis{mesh.TP, mesh.CP, mesh.DP, mesh.PP} {
			nn.AllReduceInto(c, axis, nn.TagFlags, site, nn.Max, flags)
		}
		dropped := map[int]bool{}
		for j, f := range flags {
			if f != 0 || s.dropped[j] {
				dropped[j] = true
			}
		}
		if len(dropped) == len(s.dropped) {
			return sums
		}
		if o, ok := r.env.Observer.(interface{ Forget(step int) }); ok {
			o.Forget(s.index)
		}
		*s = r.newStep(c, s.index, dropped)
		sums = r.passes(c, *s)
	}
}

// update reduces gradients, clips and steps; it returns the norm before clipping, and whether the step was skipped: then
// no weight, no moment and no schedule has changed. Expert biases have no gradient and move in any case.
func (r *Rank[T]) update(c nn.Comm, i int, rates train.Rates) (norm float64, skipped bool) {
	site := nn.Site{Step: i, Phase: nn.Update, Layer: -1}
	r.showProbe(c, site)
	r.checkGrads(i, -1)
	r.joinUses(c, site)
	r.pointOf(config.GradReduce, i)
	r.reduceGrads(c, site)
	norms := r.grads.Norms(c, site, r.mut)
	if r.env.Observer != nil {
		r.grads.GatherGrads(c, site)
		r.showShards(c, "grads", i, func(p *nn.Param[T]) []T { return p.Grad })
	}
	if skipped = r.env.Scenario.Train.SkipNaNSteps && !train.Finite(norms); !skipped {
		r.adam.Step(rates, norms, func() { r.pointOf(config.MidOptimizer, i) })
		r.grads.GatherWeights(c, site)
	}
	if !r.mut.Has(mutation.BiasPerMicrobatch) {
		r.moveBiases(c, site)
	}
	return norms[""], skipped
}

// moveBiases moves every expert bias by what its router counted.
func (r *Rank[T]) moveBiases(c nn.Comm, site nn.Site) {
	for _, router := range r.routers {
		if router.Bias != nil {
			router.Bias.Update(c, site)
		}
	}
}

// addAux adds a microbatch's auxiliary losses, averaged over the layers that have them.
func (r *Rank[T]) addAux(c nn.Comm, p *pass[T], sums *messages.Sums) {
	n := r.auxLayers()
	if n == 0 {
		return
	}
	for k, v := range p.aux.Balancing {
		sums.Balancing[k] += v / float64(n)
	}
	sums.ZLoss += p.aux.Z / float64(n)
	sums.Add(messages.Sums{Routers: p.aux.ByRouter})
}

// auxLayers is the number of modules that contribute an auxiliary loss.
func (r *Rank[T]) auxLayers() int {
	n := 0
	for i := range r.layers {
		if r.isMoE(i) {
			n++
		}
	}
	if len(r.depths) > 0 && r.isMoE(len(r.layers)-1) {
		if r.cfg.MTPUseRepeatedLayer {
			return n + 1
		}
		return n + len(r.depths)
	}
	return n
}
