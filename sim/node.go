package sim

import (
	"fmt"
	"maps"
	"slices"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/recovery"
)

// node is a rank over all of its lives: its disk, and what the supervisor knows.
type node struct {
	c         *cluster
	rank      int
	inc       uint32
	disk      map[uint32]snapshot   // by step
	committed uint32                // the generation that is written down
	life      *life                 // nil: dead
	zombies   []*life               // earlier lives that were given up and go on
	reports   map[int]messages.Sums // by step: figures of a step are kept by its name
	final     string
	// sent is the checksum of every message that some life has sent: another life must send the same.
	sent map[recovery.Edge][]fingerprint
}

// snapshot is what a disk holds of a step.
type snapshot struct {
	local  []byte
	groups map[mesh.Axis]collective.GroupState
	at     recovery.State
}

// life is a rank between two deaths.
type life struct {
	n        *node
	inc      uint32
	place    collective.Place
	routines []*collective.Routine // by program; nil: not on this rank
	pending  []collective.Request
	ports    map[port][]any
	groups   map[mesh.Axis]*collective.Group
	m        *recovery.Rank
	ready    []wake
	step     uint32
	began    uint32
	busy     bool // a turn is planned
	done     bool
	dead     bool
	applied  map[recovery.Edge]uint64
	due      *snapshot // taken in this turn, to be written
}

type port struct {
	to, from nn.Program
	name     string
}

type wake struct {
	program nn.Program
	reply   any
}

// kill ends a life at once.
func (n *node) kill() {
	for _, l := range append(n.zombies, n.life) {
		if l != nil && !l.dead {
			l.dead = true
			l.unwind()
		}
	}
	n.life, n.zombies = nil, nil
}

// crash kills a rank at a point where it may die; true if it did. The supervisor starts it again. A rank that is given up
// wrongly goes on as a zombie.
func (l *life) crash(hook string) bool {
	c := l.n.c
	if l.dead {
		return true
	}
	if c.o.Faults.Crashes == 0 || l.n.life != l || !c.chance(c.o.Faults.CrashRate) {
		return false
	}
	c.o.Faults.Crashes--
	c.result.Crashes++
	c.note("%d crash %d at %s", c.now, l.n.rank, hook)
	c.last = c.now
	// The program that is running cannot be unwound from within its own turn.
	n := l.n
	n.life = nil
	c.after(1+int64(c.rng.IntN(restartMax)), n.begin)
	if c.chance(c.o.Faults.ZombieRate) {
		c.result.Zombies++
		n.zombies = append(n.zombies, l)
		return false
	}
	l.dead = true
	c.after(0, l.unwind)
	return true
}

// fenced ends a life that finds, at something durable, that it has been replaced; true if so.
func (l *life) fenced() bool {
	if l.inc == l.n.inc && l.n.life == l {
		return false
	}
	if l.n.c.o.Shell == NoFence {
		l.n.c.fail(fmt.Errorf("life %d of rank %d writes to its disk beside life %d", l.inc, l.n.rank, l.n.inc))
	}
	l.dead = true
	l.n.c.after(0, l.unwind)
	return true
}

// sums are the rank's figures over all steps.
func (n *node) sums() messages.Sums {
	var all messages.Sums
	for _, step := range slices.Sorted(maps.Keys(n.reports)) {
		all.Add(n.reports[step])
	}
	return all
}

func (l *life) unwind() {
	for _, r := range l.routines {
		if r != nil {
			r.Stop()
		}
	}
}

// begin is a new life, from the snapshot of the committed generation or from the beginning.
func (n *node) begin() {
	if n.life != nil {
		return
	}
	n.inc++
	s, ok := n.disk[n.committed]
	if !ok && n.committed > 0 {
		n.c.fail(fmt.Errorf("generation %d is committed and rank %d has no snapshot of it", n.committed, n.rank))
		return
	}
	l := &life{n: n, inc: n.inc, place: collective.Place{Rank: n.rank, Sizes: n.c.job.sizes}, ports: map[port][]any{},
		groups: map[mesh.Axis]*collective.Group{}, step: n.committed, began: n.committed, applied: maps.Clone(s.at.Need)}
	if l.applied == nil {
		l.applied = map[recovery.Edge]uint64{}
	}
	for _, a := range mesh.Axes() {
		if l.place.Sizes.Of(a) > 1 {
			l.groups[a] = collective.NewGroup(l.place, a)
			l.groups[a].Restore(s.groups[a])
		}
	}
	programs, err := model.Programs(l.env(s.local))
	if err != nil {
		n.c.fail(err)
		return
	}
	l.pending = make([]collective.Request, len(programs))
	for p, code := range programs {
		if code == nil {
			l.routines = append(l.routines, nil)
			continue
		}
		l.routines = append(l.routines, collective.NewRoutine(l.place, nn.Program(p), code))
		l.ready = append(l.ready, wake{nn.Program(p), nil})
	}
	l.m = recovery.New(recovery.Options{Rank: n.rank, World: len(n.c.nodes), Incarnation: n.inc, Window: 16, Patience: patience, PatienceMax: 16 * patience,
		Planted: n.c.o.Planted}, s.at, n.committed, append(slices.Sorted(maps.Keys(n.disk)), 0))
	n.life = l
	n.c.note("%d begin %d life %d at %d", n.c.now, n.rank, n.inc, n.committed)
	if !l.crash("after-restart") {
		n.c.after(1+int64(n.c.rng.IntN(startMax)), l.start)
	}
}

// start ends recovery: programs may go on, and messages are applied.
func (l *life) start() {
	if l.dead {
		return
	}
	l.do(l.m.Start())
	l.plan()
	l.tick()
}

// env is the world of the rank's programs.
func (l *life) env(local []byte) model.Env {
	n := l.n
	return model.Env{Scenario: n.c.job.scenario, Rank: n.rank, Train: n.c.job.source, Local: local,
		Emit: func(e messages.Event) {
			if done, ok := e.(messages.StepDone); ok {
				n.report(done)
			}
		},
		Boundary: func(step int, local func() []byte) {
			l.step = uint32(step)
			last := step == n.c.job.scenario.Train.TrainIters
			if uint32(step) == l.began && !last || step%n.c.o.Every != 0 && !last {
				return
			}
			s := &snapshot{local: local(), groups: map[mesh.Axis]collective.GroupState{}, at: l.m.Boundary(uint32(step))}
			for a, g := range l.groups {
				s.groups[a] = g.State()
			}
			l.due = s
		}}
}

// plan makes the life take a turn, if it can.
func (l *life) plan() {
	if l.dead || l.busy || len(l.ready) == 0 {
		return
	}
	l.busy = true
	l.n.c.after(1+int64(l.n.c.rng.IntN(turnMax)), func() {
		l.busy = false
		if !l.dead {
			l.turn()
			l.plan()
		}
	})
}

// tick looks at what has been waited for too long.
func (l *life) tick() {
	l.n.c.after(tickEvery, func() {
		if l.dead {
			return
		}
		if l.n.c.o.Shell != NeverAsk {
			l.do(l.m.Tick(l.n.c.now, l.waiting()))
		}
		l.tick()
	})
}

// waiting are the edges on which programs miss a message.
func (l *life) waiting() []recovery.Edge {
	var list []recovery.Edge
	for p, q := range l.pending {
		op, ok := q.(collective.Collective)
		if !ok {
			continue
		}
		for _, r := range l.groups[op.Op.Axis].Missing(nn.Program(p)) {
			list = append(list, recovery.Edge{Peer: uint16(r), Chan: collective.Channel(op.Op.Axis, nn.Program(p))})
		}
	}
	return list
}

// report keeps a step's figures by the step: a life that computes it again says the same.
func (n *node) report(done messages.StepDone) {
	sums := done.Sums
	if before, twice := n.reports[done.Step]; twice && n.c.o.Shell == DoubleCount {
		sums.Add(before)
	}
	n.reports[done.Step] = sums
}
