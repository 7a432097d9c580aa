package moe

import "phalanx/nn"

// Replay keeps the choices of routers, or plays those of an earlier run: probabilities are computed anew from the present
// scores. Either function may be nil; ranks call them at the same time. Rows are those of the whole microbatch, position·B +
// b, and −1 for slots that hold nothing, so that one layout plays what another recorded.
type Replay struct {
	Record func(f Forward, rows []int, experts []int32) // experts [N, K] of rows [N]: read, do not keep
	Play   func(f Forward, rows []int, experts []int32) // writes the experts of rows over those that were chosen
}

// Forward names a training forward of a router in a run. A recomputed forward is called like the first one; those of
// evaluations have no name, and choose anew.
type Forward struct {
	Step, Microbatch int    // from 0; the microbatch of the whole step
	Router           string // "layer.0" or "mtp.1"
}

// replay gives the choices away, or puts kept ones in their place and has every row's probabilities computed again.
func (r *Router[T]) replay(c *nn.Ctx[T], s *routerSaved[T], t rowScratch) {
	if r.Replay == nil || c.Site.Phase == nn.Eval {
		return
	}
	f, rows := Forward{c.Site.Step, c.Microbatch, c.Scope}, make([]int, s.logits.Rows)
	for i := range rows {
		rows[i] = wholeRow(c, i)
	}
	if r.Replay.Play != nil {
		r.Replay.Play(f, rows, s.route.Expert)
		for i := range rows {
			r.probabilities(s, i, t)
		}
	}
	if r.Replay.Record != nil && !c.Recompute && (c.SP || c.TPRank() == 0) { // else other tensor-parallel ranks have the same
		r.Replay.Record(f, rows, s.route.Expert)
	}
}
