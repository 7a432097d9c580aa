package run

import (
	"math"
	"time"

	"phalanx/config"
	"phalanx/transport"
	"phalanx/transport/faulty"
)

// wire harms what the links of a process send, as the scenario says; nil: it says nothing. met is called when an entry has found
// its first message.
func wire(list []config.Injected, incarnation uint32, met func(i int)) transport.Wire {
	var rules []faulty.Rule
	for i := range list {
		if f := &list[i]; f.OfLink() {
			r := linkRule(f)
			r.Met = func() { met(i) }
			rules = append(rules, r)
		}
	}
	if rules == nil {
		return nil
	}
	return faulty.NewWire(rules, incarnation)
}

// linkRule is an entry as the wire knows it: steps are printed from 1 and sent from 0.
func linkRule(f *config.Injected) faulty.Rule {
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	rank := func(r *int) int {
		if r == nil {
			return faulty.Any
		}
		return *r
	}
	r := faulty.Rule{From: rank(f.Link.From), To: rank(f.Link.To), Last: math.MaxUint32, Seed: f.Seed,
		Drop: f.Drop, Duplicate: f.Duplicate, Reorder: f.Reorder, Corrupt: f.Corrupt, Delay: ms(f.Delay), Partition: ms(f.Partition)}
	if w := f.During.Steps; w != nil {
		r.First, r.Last = uint32(w[0]-1), uint32(w[1]-1)
	}
	return r
}
