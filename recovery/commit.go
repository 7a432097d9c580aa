package recovery

import "slices"

// commit moves the generation to the last step that every rank can read: the maximum of the intersection. The minimum of
// the newest would be a step that some rank has no snapshot of.
func (r *Rank) commit(fx *Effects) {
	gen, ok := r.common()
	if !ok || gen <= r.gen {
		return
	}
	r.gen, r.first, fx.Committed = gen, gen, true
	trim := gen
	if r.o.Planted == TrimEarly {
		trim++
	}
	if r.o.Planted == NeverTrim {
		trim = 0
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

// newest are the last StepsMax of ascending steps, as a copy: commit goes on writing where they lie.
func newest(steps []uint32) []uint32 { return slices.Clone(steps[max(0, len(steps)-StepsMax):]) }

// Tick asks for what programs wait for and has not come for a while. waiting are the edges on which the next message is
// missing. A rank that is done tells it again to those of whom it does not know that they are.
func (r *Rank) Tick(now int64, waiting []Edge) (fx Effects) {
	if !r.ready {
		return fx
	}
	if r.done && r.o.Planted != NeverRepeat {
		r.repeat(now, &fx)
	}
	asked := map[uint16]bool{}
	for _, e := range waiting {
		in := r.in[e]
		if in == nil {
			in = &inbox{}
			r.in[e] = in
		}
		if in.patience == 0 {
			in.asked, in.patience = now, r.rto
		}
		if now-in.asked < in.patience {
			continue
		}
		in.asked, in.patience, in.hasty = now, min(2*in.patience, r.o.PatienceMax), true
		r.requests++
		if !asked[e.Peer] {
			asked[e.Peer] = true
			fx.Control = append(fx.Control, r.needs(int(e.Peer)))
		}
	}
	return fx
}

// repeat tells that this rank is done to those that may not know it.
func (r *Rank) repeat(now int64, fx *Effects) {
	if r.patience == 0 {
		r.asked, r.patience = now, r.o.Patience
	}
	if now-r.asked < r.patience {
		return
	}
	r.asked, r.patience = now, min(2*r.patience, r.o.PatienceMax)
	for p := range r.peers {
		if !r.peers[p].done {
			fx.Control = append(fx.Control, r.control(Done, p))
		}
	}
}

// hasty takes a duplicate. If it is the answer to a request that the message had overtaken, this rank is too impatient: large
// messages on a slow link take their time, and asking for them makes it slower.
func (r *Rank) hasty(in *inbox) {
	if in.hasty {
		in.hasty = false
		r.vain++
		r.rto, r.calm = min(2*r.rto, rtoMax*r.o.Patience, r.o.PatienceMax), 0
	}
}

const (
	rtoMax  = 4  // times the patience that was given: where messages are really lost, waiting costs time
	calmMax = 64 // messages in a row that let a rank be less patient again
)

func (r *Rank) relax() {
	if r.calm++; r.calm >= calmMax {
		r.rto, r.calm = max(r.rto/2, r.o.Patience), 0
	}
}
