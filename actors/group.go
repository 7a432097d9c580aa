package actors

import (
	"maps"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/transport"
)

// group is the Group actor: one axis of one rank, between its programs and the Link.
type group struct {
	run      *run
	place    collective.Place
	axis     mesh.Axis
	link     transport.Link
	lender   transport.Lender // that wants payloads back which nobody looks at any more; nil: nobody does
	machine  *collective.Group
	programs map[nn.Program]*actor.PID
	broken   bool // after a failure the machine is of no more use
	life     life
}

func newGroup(r *run, rank int, a mesh.Axis, l life) *group {
	place := r.place(rank)
	g := &group{run: r, place: place, axis: a, link: r.links[rank], machine: collective.NewGroup(place, a),
		programs: map[nn.Program]*actor.PID{}, life: l}
	if l.keeper != nil && !l.recorded {
		g.lender, _ = g.link.(transport.Lender)
	}
	g.machine.Restore(l.from.Groups[a])
	return g
}

// Receive implements actor.Actor.
func (g *group) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case begin:
		if g.broken {
			return
		}
		g.programs[m.program] = m.from
		out, completion, err := g.machine.Begin(m.program, m.op)
		g.send(out)
		if completion != nil {
			g.complete(ctx, *completion)
		}
		g.settle(err)
	case received:
		if g.broken {
			return
		}
		g.run.hook(g.place.Rank, inMessage(BeforeApply, m.m.Header))
		out, completions, err := g.machine.Deliver(m.m.Header, m.m.Payload)
		g.send(out)
		for _, c := range completions {
			g.complete(ctx, c)
		}
		g.settle(err)
	case ask:
		ctx.Send(m.to, g.answer(m))
	case askMissing:
		ctx.Send(g.life.keeper, missing{g.life.n, g.axis, g.missing()})
	case askState:
		ctx.Send(g.life.keeper, groupState{g.life.n, m.step, g.axis, g.machine.State()})
	case askCounts:
		ctx.Send(ctx.Parent(), counts{ops: g.machine.Counts(), dropped: g.machine.Dropped()})
	}
}

// send puts messages on the link. They go out also when the group has failed: the peers shall see the mismatch too.
func (g *group) send(out []collective.Outgoing) {
	for _, o := range out {
		o.Header.Run, o.Header.Build = g.run.job.Run, g.run.job.Build
		g.run.hook(g.place.Rank, inMessage(BeforeSend, o.Header))
		if err := g.give(transport.Message{Header: o.Header, Payload: o.Payload}); err != nil {
			g.fail("link", err)
			return
		}
		g.run.hook(g.place.Rank, inMessage(AfterSend, o.Header))
	}
}

// give hands a message to the link, or to the keeper, which does.
func (g *group) give(m transport.Message) error {
	if g.life.keeper == nil {
		return g.link.Send(m)
	}
	g.run.system.Root.Send(g.life.keeper, outgoing{g.life.n, m})
	return nil
}

func (g *group) complete(ctx actor.Context, c collective.Completion) {
	ctx.Send(g.programs[c.Program], completed{c.Op})
}

// settle gives read messages back and reports a failure.
func (g *group) settle(err error) {
	g.release(g.machine.Released())
	if err != nil {
		g.fail("group "+g.axis.String(), err)
	}
}

// release gives read messages back. With recovery the link has its credit already, and where payloads are not the link's the
// sender has them too.
func (g *group) release(read []collective.Incoming) {
	if len(read) == 0 {
		return
	}
	if g.life.keeper != nil {
		edges := make([]recovery.Edge, len(read))
		for i, m := range read {
			edges[i] = recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}
			if g.lender != nil {
				g.lender.Recycle(m.Payload)
			}
		}
		g.run.system.Root.Send(g.life.keeper, consumed{g.life.n, edges})
		return
	}
	for _, m := range read {
		g.link.Consumed(transport.Message{Header: m.Header, Payload: m.Payload})
		if g.run.given {
			g.machine.Recycle(m.Payload)
		}
	}
}

func (g *group) fail(part string, err error) {
	if !g.broken {
		g.broken = true
		g.run.lost(g.life, &RankError{Place: g.place, Part: part, Cause: err})
	}
}

// missing are the edges on which programs wait for a message.
func (g *group) missing() []recovery.Edge {
	var edges []recovery.Edge
	for _, p := range slices.Sorted(maps.Keys(g.programs)) {
		for _, rank := range g.machine.Missing(p) {
			edges = append(edges, recovery.Edge{Peer: uint16(rank), Chan: collective.Channel(g.axis, p)})
		}
	}
	return edges
}

// answer is what every program misses here.
func (g *group) answer(m ask) groupAnswer {
	a := groupAnswer{round: m.round, rank: g.place.Rank, axis: g.axis, received: g.machine.Received(), missing: map[nn.Program][]int{}}
	for p := range g.programs {
		if missing := g.machine.Missing(p); missing != nil {
			a.missing[p] = missing
		}
	}
	return a
}
