package bench

import (
	"fmt"
	"math/rand/v2"

	"phalanx/internal/inproc"
	"phalanx/mesh"
	"phalanx/messages"
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
		bytes, sent, err := sentBy(o, d.kind)
		if err != nil {
			return nil, 0, fmt.Errorf("counting the traffic of dispatcher %s: %w", d.name, err)
		}
		t := Traffic{Dispatcher: d.name, Plan: planned(o, d.kind), Messages: float64(sent) / float64(o.EP)}
		for _, b := range bytes {
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
func sentBy(o MoEOptions, d moe.Dispatcher) (bytes []int, sent int, err error) {
	bytes = make([]int, o.EP)
	count := func(h messages.Header, payload []byte) {
		bytes[h.Src] += len(payload)
		sent++
	}
	err = inproc.Run(mesh.Sizes{TP: 1, CP: 1, DP: o.EP, PP: 1, EP: o.EP}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) { rankLayer(o, rank, d, c).run() }}
	}, inproc.Options{Sent: count})
	return bytes, sent, err
}
