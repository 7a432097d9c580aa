package sim

import (
	"maps"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/recovery"
)

// life is a rank in one process.
type life struct {
	n       *node
	proc    *process
	over    bool // it jumped: the process goes on with another
	rank    *collective.Rank
	m       *recovery.Rank
	ready   []nn.Program
	step    uint32
	began   uint32
	logFrom uint32 // the log has messages from this step on: those that are computed again after a commit are kept too
	busy    bool   // a turn is planned
	done    bool
	applied map[recovery.Edge]uint64
	due     []snapshot         // to be written, in order
	mail    []recovery.Message // delivered, and not yet given to its group
	handing bool
	writing bool
	slow    int64 // that its next turn takes longer
}

func (l *life) o() *Options { return &l.n.c.o }

func (l *life) dead() bool { return l.over || l.proc.dead }

// newLife is a rank at a snapshot.
func (n *node) newLife(p *process, s snapshot) (*life, error) {
	l := &life{n: n, proc: p, step: n.committed, began: n.committed, logFrom: n.committed, applied: maps.Clone(s.at.Need)}
	if l.applied == nil {
		l.applied = map[recovery.Edge]uint64{}
	}
	l.m = recovery.New(n.c.options(n.rank, p.number(n.rank)), s.at, n.committed, n.durable())
	programs, err := model.Programs(l.env(s.local))
	if err != nil {
		return nil, err
	}
	l.rank = collective.NewRank(collective.Place{Rank: n.rank, Sizes: n.c.job.sizes}, programs)
	if l.o().Shell != FreshNumbers {
		l.rank.Restore(s.groups)
	}
	l.ready = l.rank.Programs()
	return l, nil
}

// start ends recovery: programs may go on, and messages are applied.
func (l *life) start() {
	if l.dead() {
		return
	}
	l.do(l.m.Start())
	l.plan()
	l.tick()
}

// env is the world of the rank's programs.
func (l *life) env(local []byte) model.Env {
	return model.Env{Scenario: l.n.c.job.scenario, Rank: l.n.rank, Train: l.n.c.job.source, Local: local,
		Emit: func(e messages.Event) {
			if done, ok := e.(messages.StepDone); ok {
				l.report(done.Step, report{Done: &done})
			}
		},
		Boundary: l.boundary, Point: l.passes}
}

// report sends something to the collector, as a message like any other. It is numbered before the state at the next step
// is taken.
func (l *life) report(step int, r report) {
	b, c := messages.CBOR(r), l.n.c
	l.n.told[step] = int64(len(b))
	h := messages.Header{Kind: messages.Data, Src: uint16(l.n.rank), Dst: uint16(c.collector()), Chan: reports, Step: uint32(step), Len: uint32(len(b))}
	h.Seal(b)
	if l.o().Shell == DoubleCount { // beside the numbers: a step that is computed again is told again
		c.travel(l.n.rank, c.collector(), func(bool) { c.ledger.take(h, b) })
		return
	}
	fx := l.m.Send(recovery.Message{Header: h, Payload: b})
	c.carry(l.n.rank, &fx)
}

// boundary is the beginning of a step, or the end of the last.
func (l *life) boundary(step int, local func() []byte) {
	if uint32(step) < l.step {
		l.n.c.fail(breaks(I7, "rank %d went back from step %d to %d within a life", l.n.rank, l.step, step))
	}
	l.step = uint32(step)
	l.n.c.watchLog(l)
	l.n.c.servers(step)
	last := step == l.n.c.job.Steps()
	due := l.m.Due(l.step) && l.step != l.began
	if !last && !due {
		return
	}
	state := local()
	l.remember(state)
	if last {
		l.report(step, report{Final: l.final(state)})
	}
	if due {
		l.due = append(l.due, l.snapshot(state))
		l.supersede()
	}
}

// snapshot is the rank now, at the beginning of its step.
func (l *life) snapshot(local []byte) snapshot {
	return snapshot{local: local, groups: l.rank.State(), at: l.m.Boundary(l.step)}
}

// plan makes the life take a turn, if it can.
func (l *life) plan() {
	if l.dead() || l.busy || len(l.ready) == 0 {
		return
	}
	l.busy = true
	time := 1 + l.n.c.turnTime(l.n.rank) + l.slow
	l.slow = 0
	l.proc.later(time, func() {
		l.busy = false
		if !l.dead() {
			l.turn()
			l.plan()
		}
	})
}

// turnTime is how long a turn of a rank takes.
func (c *cluster) turnTime(rank int) int64 {
	if c.o.Shell == Unrepeatable {
		for t := range map[int64]bool{1: true, 2: true} { // the order of a map
			return t
		}
	}
	return c.dice.below(turnMax, askTurn, rank, rank)
}

// tick looks at what has been waited for too long.
func (l *life) tick() {
	l.proc.later(tickEvery, func() {
		if l.dead() {
			return
		}
		if !l.n.c.f.Silent && l.o().Shell != NeverAsk {
			l.do(l.m.Tick(l.n.c.now, l.waiting()))
		}
		l.tick()
	})
}

// waiting are the edges on which programs miss a message.
func (l *life) waiting() []recovery.Edge {
	var list []recovery.Edge
	for w := range l.rank.Waits() {
		list = append(list, recovery.Edge{Peer: uint16(w.Peer), Chan: w.Chan()})
	}
	return list
}
