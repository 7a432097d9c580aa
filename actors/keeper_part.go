package actors

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/snapshot"
)

// The keeper where ranks are in several processes: snapshots are on disk, links lose messages, reports go to the collector.

// recall is the snapshot that a life begins with, and the steps of all there are.
func (k *keeper) recall() (snapshot.State, []uint32, error) {
	if k.run.part() == nil {
		s, ok := k.saved[k.committed]
		if !ok && k.committed > 0 {
			return s, nil, fmt.Errorf("found no snapshot of step %d, which is committed", k.committed)
		}
		return s, slices.Sorted(maps.Keys(k.saved)), nil
	}
	sections, err := k.stored()
	if err != nil || sections == nil {
		return snapshot.State{}, slices.Clone(k.steps), err
	}
	s, err := snapshot.StateOf(sections)
	return s, slices.Clone(k.steps), err
}

// stored is what the disk has of the committed step; nil: it is the beginning.
func (k *keeper) stored() (sections [][]byte, err error) {
	if k.store != nil {
		return k.store.Sections(k.committed)
	}
	if k.store, err = k.run.part().Stores(k.rank); err != nil {
		return nil, err
	}
	k.committed, sections, k.steps, err = k.store.Begin()
	return sections, err
}

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
	}
}

// tick asks peers for what has not come for a while. What groups miss is as old as the last tick, which only makes the
// machine more patient.
func (k *keeper) tick(ctx actor.Context) {
	k.timer.Reset(tickEvery)
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

// write gives a snapshot to the disk.
func (k *keeper) write(ctx actor.Context, step uint32, s snapshot.State) {
	self, system, life := ctx.Self(), ctx.ActorSystem(), k.inc
	k.store.Save(step, s.Sections(), func(err error) { system.Root.Send(self, stored{life, step, err}) })
}

// durable takes the disk's answer. Without a snapshot training goes on, and the log grows.
func (k *keeper) durable(ctx actor.Context, m stored) {
	if m.err != nil {
		k.run.log.Warn("snapshot not written", zap.Int("rank", k.rank), zap.Uint32("step", m.step), zap.Error(m.err))
		k.run.part().Status.alarm(fmt.Sprintf("rank %d: the snapshot of step %d is not written: %v", k.rank, m.step, m.err))
		return
	}
	k.steps = append(k.steps, m.step)
	if k.passes(ctx, between(AfterSnapshot, m.step)) {
		k.do(ctx, k.machine.Saved(m.step))
	}
}

// commit notes that all ranks can go back to a step.
func (k *keeper) commit(step uint32) {
	k.committed = step
	if k.store == nil {
		maps.DeleteFunc(k.saved, func(s uint32, _ snapshot.State) bool { return s < step })
		return
	}
	k.steps = slices.DeleteFunc(k.steps, func(s uint32) bool { return s < step })
	if err := k.store.Commit(step); err != nil {
		k.run.part().Status.alarm(fmt.Sprintf("rank %d: older snapshots stay on disk: %v", k.rank, err))
	}
}

// finish says that the programs are done. The rank goes on serving others.
func (k *keeper) finish(ctx actor.Context, m done) {
	k.done = true
	k.record.Done()
	k.recovered(ctx) // what it has not sent again there was not to send
	if k.run.part() == nil || k.machine == nil {
		ctx.Send(ctx.Parent(), m)
		return
	}
	k.run.part().Status.change(k.rank, func(s *RankStatus) { s.Done, s.WaitsFor = true, nil })
	k.send(ctx, note{Done: &doneNote{Ops: m.ops}}.message(k.run.collector(), math.MaxUint32)) // behind the last step
	k.do(ctx, k.machine.Finish())
}

// tellRecovered says that a rank is where it was when it died.
func (k *keeper) tellRecovered(ctx actor.Context, e messages.Restarted) {
	if p := k.run.part(); p != nil {
		e.Incarnation = p.Incarnation
		p.Status.change(k.rank, func(s *RankStatus) { s.Recovered = &e })
		return
	}
	ctx.Send(ctx.Parent(), report{k.rank, e})
}
