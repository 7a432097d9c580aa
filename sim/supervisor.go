package sim

// Times of supervision, in virtual microseconds.
const (
	missedMax   = 6 * beatEvery // silence after which a process is taken for dead
	graceMax    = 4 * beatEvery // the same, of one that has just been asked for, in addition
	rebirthTime = 3_000         // from the death of a supervisor to the next
	lateMax     = 40_000        // an order that comes late
)

// plane is the control plane: the incarnation of every worker, which is changed by compare-and-swap only, and the
// supervisors. Each of them acts as if it were the leader: safety does not rest on there being one.
type plane struct {
	kv          []uint32 // by worker
	supervisors []*supervisor
	late        bool // orders may be
}

type supervisor struct {
	c     *cluster
	index int
	life  int // deaths so far: an answer to an earlier life is lost
	view  []viewed
}

// viewed is what a supervisor knows of a worker.
type viewed struct {
	inc   uint32
	until int64 // when its silence is too long
	busy  bool  // a swap is on its way
}

func newSupervisor(c *cluster, index int) *supervisor {
	s := &supervisor{c: c, index: index}
	s.born()
	return s
}

// born is a supervisor that knows nothing.
func (s *supervisor) born() {
	s.view = make([]viewed, s.c.o.Procs)
	s.watch(s.life)
}

// peer is the supervisor's number on the network.
func (s *supervisor) peer() int { return s.c.collector() + 1 + s.index }

// watch looks at all workers from time to time.
func (s *supervisor) watch(life int) {
	s.c.after(tickEvery, func() {
		if s.life != life {
			return
		}
		for w := range s.view {
			v := &s.view[w]
			if inc := s.c.kv[w]; inc > v.inc {
				*v = viewed{inc: inc, until: s.c.now + missedMax + graceMax}
			}
			if s.c.now > v.until && s.c.o.Shell != ExitUnheard {
				s.restart(w)
			}
		}
		s.watch(life)
	})
}

// heard takes a sign of life. One of an earlier incarnation says nothing.
func (s *supervisor) heard(w int, inc uint32) {
	v := &s.view[w]
	if inc == v.inc {
		v.until = max(v.until, s.c.now+s.patience())
	}
}

// patience is how long a process may be silent.
func (s *supervisor) patience() int64 {
	if s.c.o.Shell == Impatient {
		return beatEvery / 2
	}
	return missedMax
}

// exited takes the agent's word that a process has ended.
func (s *supervisor) exited(w int, inc uint32) {
	if s.c.o.Shell != ExitUnheard && inc == s.view[w].inc {
		s.restart(w)
	}
}

// suspects is a wrong suspicion.
func (s *supervisor) suspects(w int, inc uint32) { s.exited(w, inc) }

// restart replaces the process of a worker: the incarnation by compare-and-swap, and who wins has it started.
func (s *supervisor) restart(w int) {
	c, v, life := s.c, &s.view[w], s.life
	if v.busy || s.dies() {
		return
	}
	v.busy = true
	from := v.inc
	if c.o.Shell == LocalCount { // by its own count
		v.inc, v.busy = from+1, false
		s.order(w, from+1)
		return
	}
	c.after(1+c.dice.below(planeMax, askPlane, s.peer(), s.peer()), func() {
		won := c.kv[w] == from
		if won {
			c.kv[w]++
			c.note(106, uint64(w), uint64(c.kv[w]))
		}
		c.after(1+c.dice.below(planeMax, askPlane, s.peer(), s.peer()), func() {
			if s.life != life {
				return
			}
			*v = viewed{inc: v.inc, until: v.until}
			if v.inc == from {
				v.inc, v.until = c.kv[w], c.now+missedMax+graceMax
			}
			if won && !s.dies() {
				s.order(w, from+1)
			}
		})
	})
}

// order has the agent of a worker start a process, some time later. One in eight is so late that another supervisor may
// have lost patience.
func (s *supervisor) order(w int, inc uint32) {
	c := s.c
	limit := int64(agentMax)
	if c.late && c.dice.below(8, askPlane, s.peer(), s.peer()) == 0 {
		limit = lateMax
	}
	c.after(1+c.dice.below(limit, askPlane, s.peer(), s.peer()), func() { c.workers[w].start(inc) })
}

// dies is a point at which a supervisor may die; it is started again, and knows nothing.
func (s *supervisor) dies() bool {
	c := s.c
	x, nth := c.dice.throw(askLeader, s.peer(), s.peer())
	if _, ok := c.strikes(Event{Kind: Supervisor, From: s.index, To: s.index, Nth: nth}, x%3 == 0, &c.f.Supervisors); !ok {
		return false
	}
	s.life++
	life := s.life
	c.after(rebirthTime, func() {
		if s.life == life {
			s.born()
		}
	})
	s.view = make([]viewed, c.o.Procs)
	return true
}
