package model

import (
	"fmt"

	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
)

// probe is what `probe: bias_only` adds: an output bias [V], the only weight that is not zero, and the gradient that
// each loss term alone gives it, which is 1/V − c_v/N for a term whose N valid targets have c_v labels v.
type probe[T tensor.Float] struct {
	bias  *nn.Param[T]
	grads [][]T // by term: LM, then depths; this rank's part of the vocabulary
}

func (r *Rank[T]) declareProbe(b *builder[T]) {
	if !r.env.Scenario.Probe.BiasOnly {
		return
	}
	bias := b.declare(nn.Spec{Name: "probe.output_bias", Shape: []int{r.cfg.PaddedVocabSize}, Shard: b.shard(0)})
	if !b.foreign {
		r.probe.bias = bias
	}
}

// startProbe sets every weight to zero, unless the run goes on.
func (r *Rank[T]) startProbe() {
	if !r.env.Scenario.Probe.BiasOnly {
		return
	}
	for _, p := range r.params.List {
		if r.position.Iteration == 0 {
			clear(p.Data)
		}
	}
	if r.probe.bias == nil {
		return
	}
	for range 1 + len(r.depths) {
		r.probe.grads = append(r.probe.grads, make([]T, len(r.probe.bias.Data)))
	}
}

func (p *probe[T]) reset() {
	for _, g := range p.grads {
		clear(g)
	}
}

// term is the name of a loss term.
func term(k int) string {
	if k == 0 {
		return "lm"
	}
	return fmt.Sprintf("mtp_%d", k)
}

// showProbe adds the terms' gradients up over the ranks, shows each with weight 1, and gives the bias their weighted
// sum as its gradient.
func (r *Rank[T]) showProbe(c nn.Comm, site nn.Site) {
	if r.probe.bias == nil {
		return
	}
	var views []ShardView
	for k, g := range r.probe.grads {
		for i, v := range g {
			if k == 0 || !r.cfg.MTPDetachHeads || r.mut.Has(mutation.HeadNotDetached) {
				r.probe.bias.Grad[i] += v
			}
		}
		whole := append([]T(nil), g...)
		if !r.mut.Has(mutation.DropReduce) {
			for _, axis := range [...]mesh.Axis{mesh.CP, mesh.DP} {
				nn.AllReduceInto(c, axis, nn.TagGradient, site, nn.Sum, whole)
			}
		}
		if k > 0 {
			unit := mtp.Weight(r.cfg.MTPLossScaling, len(r.depths), 1, 1)
			for i := range whole {
				whole[i] /= T(unit)
			}
		}
		spec := r.probe.bias.Spec
		spec.Name = "probe." + term(k) + ".grad_bias"
		views = append(views, r.shardView(&spec, whole))
	}
	if r.env.Shards != nil {
		r.env.Shards("probe", site.Step, views)
	}
}

// probeTable is the table that takes the place of a term's cross entropy on this rank's slots; nil: none. A table of a
// microbatch's rows serves every microbatch, one of a whole step's rows serves each with its own.
func (r *Rank[T]) probeTable(p *pass[T], s step, k int) []float64 {
	rows := r.env.Scenario.Probe.TokenLoss[term(k)]
	if rows == nil {
		return nil
	}
	if len(rows) > p.mb.B {
		first := (s.first + p.c.Site.Microbatch) * p.mb.B
		rows = rows[first : first+p.mb.B]
	}
	whole := make([]float64, 0, p.mb.B*p.mb.S)
	for _, row := range rows {
		whole = append(whole, row[:p.mb.S]...)
	}
	return nn.TakeRows(p.c.Frame, whole, 0)
}
