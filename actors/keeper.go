package actors

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/mesh"
	"phalanx/recording"
	"phalanx/recovery"
	"phalanx/snapshot"
	"phalanx/transport"
)

// keeper is the Keeper actor of a rank in a run with recovery: it stays when the rank dies. It stands between the rank's
// groups and its link with the machine of package recovery, and keeps the snapshots.
type keeper struct {
	run  *run
	rank int
	open bool // the barrier
	told bool // the stage, that the rank is there
	up   bool // the groups of the present life are there
	done bool // its programs: it only serves others

	inc     uint32
	machine *recovery.Rank // of the present life; nil: the rank is dead
	pid     *actor.PID     // the Rank actor of the present life, or of the last one
	groups  []*actor.PID   // of that life, by axis
	gone    bool           // that life has ended altogether
	granted bool           // the supervisor lets the next one begin

	store     Store
	steps     []uint32                  // of the snapshots in store
	due       map[uint32]snapshot.State // local or states of groups are missing
	committed uint32
	every     *atomic.Uint32 // steps between snapshots, of this life

	missing map[mesh.Axis][]recovery.Edge // what programs wait for
	holds   *holding                      // at a boundary, and the gate is to be told what has been reported; nil: it is not
	greeted time.Time                     // the collector, for that
	timer   *time.Timer
	toll    toll
	record  *recording.Rank // nil: nobody wants one
	// Steps that are done when this life is past the last death, which it has come up to; 0: it has not, or there was none.
	passedAt uint32
}

// Receive implements actor.Actor.
func (k *keeper) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		k.inc = k.run.firstLife()
		k.begin(ctx)
		k.adopt(ctx)
	case *actor.Stopping:
		if k.timer != nil {
			k.timer.Stop()
		}
	case ready:
		k.ready(ctx, m)
	case start:
		k.open = true
		if k.up {
			k.start(ctx)
		}
	case *actor.Terminated:
		if m.Who.Equal(k.pid) && k.machine == nil {
			k.gone = true
			k.again(ctx)
		}
	case reborn:
		k.granted = true
		k.again(ctx)
	case died:
		k.died(ctx, m)
	case done:
		k.finish(ctx, m)
	case received:
		k.receive(ctx, m.m)
	default:
		if k.machine != nil {
			k.living(ctx)
		}
	}
}

// living is what a dead rank does not hear.
func (k *keeper) living(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case ask:
		ctx.Send(k.pid, m)
	case control:
		k.toll.heard(m.c)
		fx, err := k.machine.Control(m.c)
		k.settle(ctx, fx, err)
	case lost, nudge, missing, stored, holding:
		k.apart(ctx)
	case outgoing:
		if m.life == k.inc {
			k.send(ctx, m.m)
		}
	case consumed:
		for _, e := range m.edges {
			if m.life == k.inc && k.machine != nil {
				k.do(ctx, k.machine.Read(e))
			}
		}
	case localState:
		if m.life == k.inc {
			s := k.dueAt(m.step)
			s.Local = m.local
			k.keep(ctx, m.step, s)
		}
	case groupState:
		if m.life == k.inc {
			s := k.dueAt(m.step)
			s.Groups[m.axis] = m.state
			k.keep(ctx, m.step, s)
		}
	}
}

// ready notes that the groups of the present life are there. The stage is told of one life, and the life begins once: the
// barrier opens while it is there, or is open when it comes.
func (k *keeper) ready(ctx actor.Context, m ready) {
	if m.life != k.inc || k.machine == nil {
		return
	}
	k.up = true
	switch {
	case k.open:
		k.start(ctx)
	case !k.told:
		k.told = true
		ctx.Send(ctx.Parent(), m)
	}
}

// begin is a new life, from the snapshot of the committed step or from the beginning.
func (k *keeper) begin(ctx actor.Context) {
	s, durable, err := k.recall()
	if err != nil {
		k.run.failRank(k.failure(err))
		return
	}
	k.inc++
	k.recordLife(s)
	k.up = false
	k.gone, k.granted, k.due, k.missing, k.holds = false, false, map[uint32]snapshot.State{}, map[mesh.Axis][]recovery.Edge{}, nil
	durable = append(durable, 0) // step 0 is the beginning, which needs no snapshot
	plan := k.run.job.Recovery
	k.machine = recovery.New(recovery.Options{Rank: k.rank, World: k.run.peers(), Incarnation: k.inc, Collector: k.run.collecting(),
		Every: uint32(plan.Every), LogMax: plan.LogMax}, s.At, k.committed, durable)
	k.every = &atomic.Uint32{}
	k.every.Store(uint32(plan.Every))
	k.toll.newLife()

	name := fmt.Sprintf("life.%d", k.inc)
	l := life{n: k.inc, keeper: ctx.Self(), path: k.run.rankPath(k.rank) + "/" + name, from: s, every: k.every, recorded: k.record != nil}
	k.groups = k.run.groupsOf(l.path)
	w := who{path: l.path, rank: k.rank, part: "shell " + name, life: l}
	pid, err := ctx.SpawnNamed(k.run.props(w, func() actor.Actor { return &rank{run: k.run, rank: k.rank, life: l} }), name)
	if err != nil {
		panic(fmt.Errorf("spawning %s: %w", l.path, err))
	}
	k.pid = pid
}

// start ends recovery: the programs begin, and messages reach the groups. Of a first life there is nothing to tell.
func (k *keeper) start(ctx actor.Context) {
	if k.machine == nil {
		return
	}
	ctx.Send(k.pid, start{})
	fx := k.machine.Start()
	if k.inc == 1 { // of a run of one process: all ranks begin at once
		fx.Control = nil
	}
	k.do(ctx, fx)
}

// again begins the next life, once the last one has ended and the supervisor has agreed.
func (k *keeper) again(ctx actor.Context) {
	if k.machine == nil && k.gone && k.granted && !k.run.isOver() {
		k.begin(ctx)
	}
}

// died ends a life at its failure.
func (k *keeper) died(ctx actor.Context, m died) {
	if m.life != k.inc || k.machine == nil {
		return
	}
	k.record.Flush()
	k.passedAt = 0
	if p := k.run.part(); p != nil {
		p.Die(m.err, m.site())
	}
	k.toll.death(time.Now(), m)
	k.end(ctx)
	ctx.Send(ctx.Parent(), m)
}

func (k *keeper) end(ctx actor.Context) {
	k.peaked()
	k.machine, k.gone, k.granted = nil, false, false
	ctx.Stop(k.pid)
}

// receive takes a message of the link. What comes to a dead rank is sent again when its next life asks.
func (k *keeper) receive(ctx actor.Context, m transport.Message) {
	mine := k.run.own(k.rank, m)
	if k.machine == nil {
		return
	}
	before := k.machine.Stats().Dropped
	fx, err := k.machine.Receive(mine)
	n := k.machine.Stats().Dropped - before
	k.toll.dropped += int(n)
	k.run.dropped.Add(n)
	k.settle(ctx, fx, err)
}

// send gives a message of a group to the machine.
func (k *keeper) send(ctx actor.Context, m transport.Message) {
	fx := k.machine.Send(recovery.Message{Header: m.Header, Payload: m.Payload})
	e := recovery.Edge{Peer: m.Header.Dst, Chan: m.Header.Chan}
	k.record.Sent(m.Header, m.Payload, k.machine.Sent(e)-1)
	if !k.bounded() {
		return
	}
	k.do(ctx, fx)
	if k.machine != nil && !k.toCollector(e) && k.toll.sends(e, k.machine.Sent(e), len(fx.Publish) > 0, k.run.peers()-1) {
		k.recovered(ctx)
		k.passedAt = m.Header.Step + 2 // a peer may lack the last messages of the step before the one of the death
	}
}

// toCollector says that an edge tells nothing of how far the rank was: nobody waits for reports, so they may be behind. Of a rank
// without others there is no other sign.
func (k *keeper) toCollector(e recovery.Edge) bool {
	return k.run.job.Part != nil && int(e.Peer) == k.run.collector() && k.run.job.Sizes.World() > 1
}

// settle carries out what the machine wants, or ends the run.
func (k *keeper) settle(ctx actor.Context, fx recovery.Effects, err error) {
	if err != nil {
		k.run.failRank(k.failure(err))
		return
	}
	k.do(ctx, fx)
}

// do carries out what the machine wants.
func (k *keeper) do(ctx actor.Context, fx recovery.Effects) {
	for _, m := range fx.Deliver {
		k.record.Received(m.Header, m.Payload)
		if g := k.groupOf(m); g != nil {
			k.run.replayed.Add(k.toll.delivered(m))
			ctx.Send(g, received{transport.Message{Header: m.Header, Payload: m.Payload}})
		}
	}
	for _, m := range fx.Publish {
		m.Header.Incarnation = 0 // the link's, which outlives the rank
		if err := k.run.links[k.rank].Send(transport.Message{Header: m.Header, Payload: m.Payload}); err != nil {
			e := k.failure(err)
			e.Part = "link"
			k.run.failRank(e)
			return
		}
	}
	for _, c := range fx.Control {
		err := k.run.talk(k.rank, c, func(c recovery.Control) { ctx.Send(k.run.system.NewLocalPID(k.run.rankPath(c.Dst)), control{c}) })
		if err != nil {
			k.run.failRank(k.failure(err))
			return
		}
	}
	if fx.Every > 0 {
		k.every.Store(fx.Every)
	}
	if fx.Committed && k.passes(ctx, between(BeforeCommit, k.machine.Generation())) {
		k.commit(k.machine.Generation())
	}
	if fx.Jump && k.machine != nil {
		k.committed = max(k.committed, fx.JumpTo)
		k.end(ctx)
		k.granted = true // it is no death
	}
}

// groupOf is the group that a message is for; none ends the run.
func (k *keeper) groupOf(m recovery.Message) *actor.PID {
	axis := int(m.Header.Chan >> 8)
	if axis < len(k.groups) && k.groups[axis] != nil {
		return k.groups[axis]
	}
	k.run.misaddressed(k.rank, m.Header)
	return nil
}

// passes is a point at which the rank may be made to fail; false if it has died.
func (k *keeper) passes(ctx actor.Context, at Passage) (alive bool) {
	if k.done {
		return true
	}
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			k.died(ctx, died{life: k.inc, err: &RankError{Place: k.run.place(k.rank), Part: "keeper at " + at.Point, Cause: panicked(v, stack), Stack: stack}})
		}
	}()
	k.run.hook(k.rank, at)
	return true
}

func (k *keeper) failure(cause error) *RankError {
	return &RankError{Place: k.run.place(k.rank), Part: "recovery", Cause: cause}
}
