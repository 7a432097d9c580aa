package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/recovery"
)

// The keeper where ranks are in several processes: links lose messages, reports go to the collector.

// adopt makes the keeper the one that the link speaks to.
func (k *keeper) adopt(ctx actor.Context) {
	p := k.run.part()
	if p == nil {
		return
	}
	p.Status.change(k.rank, func(s *RankStatus) { s.Step = int(k.committed) })
	k.toll.apart = true
	if p.Incarnation > 1 {
		k.toll.since = time.Now() // the process that died knows better; here it is the time of this life
	}
	k.run.mouths[k.rank].listen()
	self, system := ctx.Self(), ctx.ActorSystem()
	k.timer = time.AfterFunc(tickEvery, func() { system.Root.Send(self, nudge{}) })
}

// apart is what a keeper hears only where ranks are in several processes.
func (k *keeper) apart(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case lost:
		k.do(ctx, k.machine.Lost(m.peer))
	case nudge:
		k.tick(ctx)
	case missing:
		if m.life == k.inc {
			k.missing[m.axis] = m.edges
		}
	case stored:
		if m.life == k.inc {
			k.durable(ctx, m)
		}
	case holding:
		if m.life == k.inc {
			k.holds = &m
			k.reported()
		}
	}
}

// peaked tells how much the log has held.
func (k *keeper) peaked() {
	if k.machine == nil {
		return
	}
	if p := k.machine.Stats().Peak; k.run.held(k.rank, p) {
		k.run.status().change(k.rank, func(s *RankStatus) { s.Log = p })
	}
}

// tick asks peers for what has not come for a while. What groups miss is as old as the last tick, which only makes the
// machine more patient.
func (k *keeper) tick(ctx actor.Context) {
	k.timer.Reset(tickEvery)
	k.peaked()
	k.greet(ctx)
	var waiting []recovery.Edge
	for axis, g := range k.groups {
		if g != nil {
			waiting = append(waiting, k.missing[mesh.Axis(axis)]...)
			ctx.Send(g, askMissing{})
		}
	}
	k.do(ctx, k.machine.Tick(time.Now().UnixNano(), waiting))
}

// bounded ends the run when the log has outgrown what it may have; false if it has.
func (k *keeper) bounded() bool {
	log, limit := k.machine.Stats().LogBytes, k.run.job.Recovery.LogLimit
	if limit == 0 || log <= limit {
		return true
	}
	k.run.failRank(k.failure(&LogError{Bytes: log, Limit: limit, Since: k.machine.Generation()}))
	return false
}

// finish says that the programs are done. The rank goes on serving others.
func (k *keeper) finish(ctx actor.Context, m done) {
	k.done = true
	k.record.Done()
	k.recovered(ctx) // what it has not sent again there was not to send
	k.peaked()
	if k.run.part() == nil || k.machine == nil {
		ctx.Send(ctx.Parent(), m)
		return
	}
	k.run.part().Status.change(k.rank, func(s *RankStatus) { s.Done, s.WaitsFor = true, nil })
	if tell := k.run.part().Tell; tell != nil {
		tell()
	}
	k.send(ctx, note{Done: &doneNote{Ops: m.ops}}.message(k.run.collector(), recovery.AfterAll))
	k.do(ctx, k.machine.Finish())
}

// tellRecovered says that a rank is where it was when it died.
func (k *keeper) tellRecovered(ctx actor.Context, e messages.Restarted) {
	if p := k.run.part(); p != nil {
		e.Incarnation = p.Incarnation
		p.Status.change(k.rank, func(s *RankStatus) { s.Recovered = &e })
		if p.Tell != nil {
			p.Tell()
		}
		return
	}
	ctx.Send(ctx.Parent(), report{k.rank, e})
}
