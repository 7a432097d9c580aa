package recovery

import "slices"

// commit moves the generation to the last step that every rank can read: the maximum of the intersection. The minimum of
// the newest would be a step that some rank has no snapshot of.
func (r *Rank) commit(fx *Effects) {
	gen, ok := r.common()
	if !ok || gen <= r.gen {
		return
	}
	r.gen, fx.Committed = gen, true
	trim := gen
	if r.o.Planted == TrimEarly {
		trim++
	}
	for _, o := range r.out {
		r.bytes -= o.trim(trim)
	}
	for _, in := range r.in {
		in.trim(gen)
	}
	for i := range r.peers {
		p := &r.peers[i]
		p.durable = slices.DeleteFunc(p.durable, func(s uint32) bool { return s < gen })
	}
}

func (r *Rank) common() (uint32, bool) {
	if r.o.Planted == MinimumOfNewest {
		least := uint32(0)
		for i, p := range r.peers {
			if len(p.durable) == 0 {
				return 0, false
			}
			if newest := p.durable[len(p.durable)-1]; i == 0 || newest < least {
				least = newest
			}
		}
		return least, true
	}
	mine := r.peers[r.o.Rank].durable
	for i := len(mine) - 1; i >= 0; i-- {
		everywhere := !slices.ContainsFunc(r.peers, func(p peer) bool { return !slices.Contains(p.durable, mine[i]) })
		if everywhere {
			return mine[i], true
		}
	}
	return 0, false
}

// Tick asks for what programs wait for and has not come for a while. waiting are the edges on which the next message is
// missing.
func (r *Rank) Tick(now int64, waiting []Edge) (fx Effects) {
	if !r.ready {
		return fx
	}
	asked := map[uint16]bool{}
	for _, e := range waiting {
		in := r.in[e]
		if in == nil {
			in = &inbox{}
			r.in[e] = in
		}
		if in.patience == 0 {
			in.asked, in.patience = now, r.o.Patience
		}
		if now-in.asked < in.patience {
			continue
		}
		in.asked, in.patience = now, min(2*in.patience, r.o.PatienceMax)
		if !asked[e.Peer] {
			asked[e.Peer] = true
			fx.Control = append(fx.Control, r.needs(int(e.Peer)))
		}
	}
	return fx
}
