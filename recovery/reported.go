package recovery

import "maps"

// What a rank of several processes must know before it ends early: whether the collector has reports of steps that this life is not
// to make. A report has the number of its place, so a life that ends must not give that number to another.

// Reported says whether the collector has more of this rank than this life has sent. It is known once the collector has answered
// this life, for by then it takes nothing from the lives before.
func (r *Rank) Reported() (ahead, known bool) {
	for ch, n := range r.has {
		ahead = ahead || n > r.Sent(Edge{uint16(r.o.Collector), ch})
	}
	return ahead, r.has != nil
}

// Greet asks the collector again what it has: the greeting of this life, or the answer, may have been lost.
func (r *Rank) Greet() (fx Effects) {
	if r.ready && r.o.Collector > 0 {
		fx.Control = append(fx.Control, r.control(Hello, r.o.Collector))
	}
	return fx
}

// collected notes what the collector has, if it has heard of this life.
func (r *Rank) collected(c Control) {
	if r.collects(uint16(c.Src)) && c.Of == r.o.Incarnation {
		r.has = maps.Clone(c.Numbers)
		if r.has == nil {
			r.has = map[uint16]uint64{}
		}
	}
}

// forget throws away what the collector has kept out of order of an earlier life of a rank. The new life sends it again, or ends
// before it.
func (r *Rank) forget(src int) {
	if r.o.Collector == 0 || r.o.Collector != r.o.Rank {
		return
	}
	for e, in := range r.in {
		if int(e.Peer) == src {
			clear(in.kept)
		}
	}
}
