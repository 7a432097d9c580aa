package bench

import (
	"fmt"
	"math/rand/v2"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/moe"
	"phalanx/nn"
)

// Traffic is what one dispatcher sends in a forward and a backward.
type Traffic struct {
	Dispatcher string  `json:"dispatcher"`
	Bytes      float64 `json:"bytes"`     // of a rank, in the mean, all messages of the expert group
	BytesMax   float64 `json:"bytes_max"` // of the rank that sends most
	Plan       float64 `json:"plan"`      // of a rank, in the mean: rows and probabilities that its items need, there and back, twice
	OverPlan   float64 `json:"over_plan"` // Bytes ÷ Plan: what telling each other the plan adds
	OverLeast  float64 `json:"over_least"`
	Messages   float64 `json:"messages"` // of a rank, in the mean
}

var dispatchers = []struct {
	name string
	kind moe.Dispatcher
}{{"alltoall", moe.AllToAll}, {"allgather", moe.AllGather}, {"flex", moe.Flex}}

// traffic runs a layer of experts over EP ranks, each with rows of its own, and counts. Experts have one hidden feature:
// what is sent does not depend on their width.
func traffic(o MoEOptions) ([]Traffic, float64, error) {
	var out []Traffic
	least := planned(o, moe.Flex)
	for _, d := range dispatchers {
		sent, messages, err := sentBy(o, d.kind)
		if err != nil {
			return nil, 0, fmt.Errorf("counting the traffic of dispatcher %s: %w", d.name, err)
		}
		t := Traffic{Dispatcher: d.name, Plan: planned(o, d.kind), Messages: float64(messages) / float64(o.EP)}
		for _, b := range sent {
			t.Bytes += float64(b) / float64(o.EP)
			t.BytesMax = max(t.BytesMax, float64(b))
		}
		t.OverPlan, t.OverLeast = share(t.Bytes, t.Plan), share(t.Bytes, least)
		out = append(out, t)
	}
	return out, least, nil
}

// rankLayer is a rank's layer and rows: routers are alike, rows are not.
func rankLayer(o MoEOptions, rank int, d moe.Dispatcher, comm nn.Comm) *layerRun {
	l := newExperts(o, rand.New(rand.NewPCG(1, 0)), 1, o.EP, d)
	rng := rand.New(rand.NewPCG(5, uint64(rank)))
	return &layerRun{l, newRankCtx(o, comm), randomRows(rng, o.Tokens, o.Hidden, 1), randomRows(rng, o.Tokens, o.Hidden, 1)}
}

// planned is the payload that a dispatcher's items need, a rank in the mean: per item a row to the experts and back,
// forward and backward; per entry a probability there and its gradient back.
func planned(o MoEOptions, d moe.Dispatcher) float64 {
	bytes := 0
	for rank := range o.EP {
		r := rankLayer(o, rank, d, nn.Solo{})
		route, _ := r.layer.(*moe.Layer[float32]).Router.Forward(r.c, r.x)
		for dst := range o.EP {
			if dst != rank {
				items, entries := itemsOf(o, d, route, dst)
				bytes += 4 * (4*items*o.Hidden + 2*entries)
			}
		}
	}
	return float64(bytes) / float64(o.EP)
}

// itemsOf is how many rows a dispatcher sends to a rank, and for how many of their experts.
func itemsOf(o MoEOptions, d moe.Dispatcher, route moe.Routing[float32], dst int) (items, entries int) {
	for row := range o.Tokens {
		n := 0
		for _, e := range route.Expert[row*o.TopK : (row+1)*o.TopK] {
			if int(e)/(o.Experts/o.EP) == dst {
				n++
			}
		}
		entries += n
		if n > 0 {
			items++
		}
	}
	switch d {
	case moe.AllToAll:
		items = entries
	case moe.AllGather:
		items = o.Tokens
	}
	return items, entries
}

// sentBy runs the layer on every rank and counts what each sends.
func sentBy(o MoEOptions, d moe.Dispatcher) (bytes []int, messages int, err error) {
	bytes = make([]int, o.EP)
	sizes := mesh.Sizes{TP: 1, CP: 1, DP: o.EP, PP: 1, EP: o.EP}
	err = lockstep(sizes, func(rank int, comm nn.Comm) { rankLayer(o, rank, d, comm).run() }, func(m collective.Outgoing) {
		bytes[m.Header.Src] += len(m.Payload)
		messages++
	})
	return bytes, messages, err
}

// lockstep runs one program on every rank, all in this goroutine; sent is shown every message. All programs do the same
// operations on the expert group, one after another.
func lockstep(sizes mesh.Sizes, program func(rank int, comm nn.Comm), sent func(collective.Outgoing)) error {
	n := sizes.World()
	groups, routines := make([]*collective.Group, n), make([]*collective.Routine, n)
	for rank := range n {
		place := collective.Place{Rank: rank, Sizes: sizes}
		groups[rank] = collective.NewGroup(place, mesh.EP)
		routines[rank] = collective.NewRoutine(place, 0, func(c nn.Comm) { program(rank, c) })
		defer routines[rank].Stop()
	}
	for {
		var mail []collective.Outgoing
		ended := 0
		for rank, r := range routines {
			switch q := r.Resume(nil).(type) {
			case collective.Collective:
				out, _, err := groups[rank].Begin(0, q.Op)
				if err != nil {
					return err
				}
				mail = append(mail, out...)
			case collective.Done:
				ended++
			default:
				return fmt.Errorf("rank %d %s", rank, q)
			}
		}
		if ended == n {
			return nil
		}
		if err := deliver(groups, mail, sent); err != nil {
			return err
		}
	}
}

// deliver carries messages, and those that they give rise to, until an operation is complete everywhere.
func deliver(groups []*collective.Group, mail []collective.Outgoing, sent func(collective.Outgoing)) error {
	for len(mail) > 0 {
		m := mail[0]
		mail = mail[1:]
		sent(m)
		g := groups[m.Header.Dst]
		out, _, err := g.Deliver(m.Header, m.Payload)
		if err != nil {
			return err
		}
		mail = append(mail, out...)
		for _, read := range g.Released() {
			g.Recycle(read.Payload)
		}
	}
	return nil
}
