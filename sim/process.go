package sim

import (
	"phalanx/messages"
	"phalanx/transport/natslink/plane"
)

// worker is a place for a process, with a block of ranks, over all of the processes that it has had. It is the host's
// agent for them.
type worker struct {
	c       *cluster
	index   int
	nodes   []*node
	all     []*process // that may still do something
	started uint32     // incarnation of the newest
	touched bool       // a fault hit it: it may be replaced
}

func (w *worker) first() int { return w.nodes[0].rank }

// present is the newest process; nil: none, or it is dead.
func (w *worker) present() *process {
	for _, p := range w.all {
		if p.inc == w.started && !p.dead {
			return p
		}
	}
	return nil
}

// process is a worker between two deaths.
type process struct {
	w     *worker
	inc   uint32
	lives []*life // of its ranks
	dead  bool
	apart bool  // it is given up and cannot be reached: it is not killed when the next one begins
	still int64 // until when it stands still
}

// told has the agent look at the record of its worker, some time later: one in eight may be so late that another supervisor
// has lost patience.
func (w *worker) told(inc uint32) {
	c, limit := w.c, int64(agentMax)
	if c.late && c.dice.below(8, askAgent, w.first(), w.first()) == 0 {
		limit = lateMax
	}
	c.after(1+c.dice.below(limit, askAgent, w.first(), w.first()), func() {
		if c.o.Shell != LateStart { // what lies there now, not what it was told of
			inc = c.incarnation(w.index)
		}
		w.start(inc)
	})
}

// exits tells the supervisors that a process has ended, again until its record goes on.
func (w *worker) exits(inc uint32) {
	c, e := w.c, plane.Exit{Worker: w.index, Incarnation: inc, Host: "host", Code: -1, Signal: "KILL", AtNs: ns(w.c.now)}
	var tell func()
	tell = func() {
		if c.incarnation(w.index) > inc {
			return
		}
		for _, s := range c.supervisors {
			c.travel(w.first(), s.peer(), func(damaged bool) {
				if !damaged {
					s.exited(e)
				}
			})
		}
		c.after(exitRepeat, tell)
	}
	c.after(1+c.dice.below(planeMax, askAgent, w.first(), w.first()), tell)
}

// start begins a process of an incarnation, unless there was one or a later one.
func (w *worker) start(inc uint32) {
	c := w.c
	if inc <= w.started && c.o.Shell != LateStart {
		return
	}
	if inc == w.started {
		return
	}
	if inc < w.started {
		c.fail(breaks(I7, "incarnation %d of worker %d is started in place of incarnation %d", inc, w.index, w.started))
		return
	}
	for _, p := range w.all {
		if !p.apart {
			p.kill()
		}
	}
	w.sweep()
	if inc > 1 {
		c.result.Restarts++
	}
	w.started = inc
	p := &process{w: w, inc: inc}
	w.all = append(w.all, p)
	c.note(100, uint64(w.index), uint64(inc))
	if inc > 1 && w.startles(p) {
		return
	}
	for _, n := range w.nodes {
		n.begin(p)
	}
	p.beat()
}

// startles is the point after-restart; true: it died there.
func (w *worker) startles(p *process) bool {
	l := &life{n: w.nodes[0], proc: p}
	return l.dies(between("after-restart", l.n.committed+1))
}

// sweep forgets the dead.
func (w *worker) sweep() {
	alive := w.all[:0]
	for _, p := range w.all {
		if !p.dead {
			alive = append(alive, p)
		}
	}
	clear(w.all[len(alive):])
	w.all = alive
}

// kill ends a process at once.
func (p *process) kill() {
	if p.dead {
		return
	}
	p.dead = true
	p.w.c.gone = append(p.w.c.gone, p.lives...)
}

// lifeOf is the life of a rank in this process; nil: it has none.
func (p *process) lifeOf(rank int) *life {
	for _, l := range p.lives {
		if l.n.rank == rank && !l.over {
			return l
		}
	}
	return nil
}

// number is the incarnation of the next life of a rank: a rank may have several in a process.
func (p *process) number(rank int) uint32 {
	n := p.inc << lifeBits
	for _, l := range p.lives {
		if l.n.rank == rank {
			n++
		}
	}
	return n
}

// lifeBits are for the lives of a rank in one process: it jumps at most once for each generation.
const lifeBits = 8

// when does something in the process: now, when it goes on, or never if it is dead.
func (p *process) when(do func()) {
	c := p.w.c
	if p.dead {
		return
	}
	if p.still > c.now {
		c.after(p.still-c.now, func() { p.when(do) })
		return
	}
	do()
}

// later is when after a delay.
func (p *process) later(delay int64, do func()) { p.w.c.after(delay, func() { p.when(do) }) }

// beat tells the supervisors that the process lives.
func (p *process) beat() {
	c := p.w.c
	p.when(func() {
		for _, s := range c.supervisors {
			c.travel(p.w.first(), c.collector()+1+s.index, func(damaged bool) {
				if !damaged {
					s.heard(p.w.index, p.inc)
				}
			})
		}
		p.later(beatEvery, p.beat)
	})
}

// point is what a rank comes by. step, from 1, is the one it is in; of snapshots the last that is in it, of commits the last
// that is committed, of restarts the first that is computed again.
type point struct {
	hook             string
	step, microbatch int // microbatch −1: of none
}

// inMessage is a point passed with a message.
func inMessage(hook string, h messages.Header) point {
	return point{hook, int(h.Step) + 1, int(h.Microbatch)}
}

// between is a point passed between steps, some of them done.
func between(hook string, step uint32) point { return point{hook, int(step), -1} }

// killed ends a program whose process has died at a point that it passed.
type killed struct{}

// passes is a point of a program.
func (l *life) passes(hook string, step, microbatch int) {
	if l.dies(point{hook, step + 1, microbatch}) {
		panic(killed{})
	}
}

// dies is a point at which the process of a rank may meet a fault; true if it is dead. A process that has been replaced
// meets nothing more: its fault is that it is still there.
func (l *life) dies(at point) bool {
	p, c, rank := l.proc, l.n.c, l.n.rank
	if l.dead() {
		return true
	}
	if p.apart || p != p.w.present() {
		return false
	}
	x, nth := c.dice.throw(askPoint, rank, rank)
	e := Event{Kind: Crash, From: rank, To: rank, Nth: nth, Hook: at.hook}
	switch how := int(x / 1000 % 1000); {
	case how < c.f.ZombieRate:
		e.Kind = Zombie
	case how < c.f.ZombieRate+c.f.StopRate:
		e.Kind, e.Lasts = Stop, 1+int64(x>>32)%max(c.f.StopMax, 1)
	}
	given, budget := int(x%1000) < c.f.CrashRate, &c.f.Crashes
	fixed, ok := l.n.passage(at)
	if ok && fixed.Kind == Full {
		l.n.noRoom++
	} else if ok {
		e.Kind, e.Lasts, given, budget = fixed.Kind, fixed.Lasts, true, nil
	}
	e, ok = c.strikes(e, given, budget)
	if ok {
		p.meets(e)
	}
	return l.dead()
}

// meets is what a fault does to a process.
func (p *process) meets(e Event) {
	c := p.w.c
	p.w.touched = p.w.touched || e.Kind != Slow
	switch e.Kind {
	case Crash:
		p.kill()
		p.w.exits(p.inc)
	case Zombie:
		p.apart = true
		p.w.exits(p.inc) // the agent is wrong
	case Slow:
		if l := p.lifeOf(e.From); l != nil {
			l.slow += e.Lasts
		}
	case Stop:
		p.still = c.now + e.Lasts
		p.apart = e.Lasts%2 == 0 // half of those that stand still cannot be killed either
	}
}

// fenced ends a process that finds, at something that lasts, that it has been replaced; true if so.
func (l *life) fenced() bool {
	p, c := l.proc, l.n.c
	if l.dead() {
		return true
	}
	if p.inc == c.incarnation(p.w.index) && p == p.w.present() {
		c.sink(l)
		return false
	}
	if c.o.Shell == NoFence {
		c.sink(l)
		return false
	}
	p.kill()
	return true
}
