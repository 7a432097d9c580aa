package model

import (
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

// evalNames is the number of names that validation's microbatches have: what a site can hold. They are used again long
// after they were taken.
const evalNames = 1 << 16

// eval is one validation pass: the LM loss over eval_iters batches that training never sees.
func (r *Rank[T]) eval(c nn.Comm, after int) {
	done := messages.EvalDone{Rank: r.env.Rank, Step: after}
	t := r.env.Scenario.Train
	n := t.GlobalBatchSize / t.MicroBatchSize / c.Size(mesh.DP)
	schedule := r.pipeline(n)
	schedule.ForwardOnly = true
	for i := range t.EvalIters {
		for _, op := range schedule.Schedule(c.Rank(mesh.PP)) {
			mb := r.env.Validation.Microbatch(i, c.Rank(mesh.DP)*n+op.Microbatch)
			q := i*n + op.Microbatch
			r.evalPass(r.newPass(c, after, q%evalNames, mb, nn.Eval), r.chunks[op.Chunk], q, &done.Sums)
		}
	}
	for _, ch := range r.chunks {
		for q := max(0, t.EvalIters*n-r.evalAhead()); ch.next >= 0 && q < t.EvalIters*n; q++ {
			r.evalCredit(c, nn.Get, nn.Site{Step: after, Phase: nn.Eval}, q, ch.index, ch.next)
		}
	}
	r.env.Emit(done)
}

// evalPass runs a chunk forward on the q-th microbatch of a validation, and the LM loss on the last.
func (r *Rank[T]) evalPass(p *pass[T], ch *chunk[T], q int, sums *messages.Sums) {
	defer r.arenas.give(p.c.Arena)
	f := r.trunk(p, ch, false)
	if ch.prev >= 0 {
		r.evalCredit(p.c.Comm, nn.Put, p.c.Site, q, ch.index-1, ch.prev)
	}
	if !ch.Loss {
		if behind := q - r.evalAhead(); behind >= 0 {
			r.evalCredit(p.c.Comm, nn.Get, p.c.Site, behind, ch.index, ch.next)
		}
		r.putFlow(p, ch, f, false)
		return
	}
	head := nn.Head[T]{Table: r.tables.head}
	out := head.Loss(p.c, nn.HeadInput[T]{Hidden: f.heads[0].Hidden, Labels: p.labels, Loss: p.loss})
	if p.c.TPRank() == 0 {
		sums.LMLoss += out.LossSum
		sums.LMTokens += out.Tokens
	}
}

// evalAhead is how many microbatches a chunk may be ahead of the next one in validation, where no backward pass holds it
// back: as many as interleaved chunks take in sequence, so that a rank never waits for what it has yet to do itself.
func (r *Rank[T]) evalAhead() int { return max(r.layout.PP, r.cfg.MicrobatchGroup) }

// evalCredit says, or waits for, that chunk+1 has taken what chunk sent of microbatch q.
func (r *Rank[T]) evalCredit(c nn.Comm, kind nn.OpKind, site nn.Site, q, chunk, stage int) {
	site.Microbatch, site.Depth, site.Layer = q%evalNames, 0, chunk
	op := &nn.Op{Axis: mesh.PP, Kind: kind, DType: tensor.U8, Tag: nn.TagCredit, Site: site}
	part := []nn.Part{{Member: stage}}
	if kind == nn.Put {
		op.To = part
	} else {
		op.From = part
	}
	c.Do(op)
}
