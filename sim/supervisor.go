package sim

import (
	"math"
	"time"

	"phalanx/recovery"
	"phalanx/supervise"
	"phalanx/transport/natslink/plane"
)

// Times of supervision, in virtual microseconds.
const (
	graceMax     = 10 * beatEvery // for the first sign of life
	rebirthTime  = 3_000          // from the death of a supervisor to the next
	lateMax      = 40_000         // an agent that learns late of a record
	lostPatience = 5_000          // after which an answer is missed
	exitRepeat   = 4_000          // an agent tells again what it has seen
)

// control is the control plane: the record of every worker, changed by compare-and-swap only, and the supervisors. Their
// machines are those of package supervise. Each acts as if it were the leader: safety does not rest on there being one.
type control struct {
	records     []kept // by worker
	supervisors []*supervisor
	late        bool // agents may be, and answers be lost
}

// kept is what lies in the bucket.
type kept struct {
	record plane.Record
	rev    plane.Revision
}

// incarnation is the present one of a worker; 0: none yet.
func (c *cluster) incarnation(w int) uint32 { return c.records[w].record.Incarnation }

// ns is virtual time as the machines of supervisors want it.
func ns(now int64) int64 { return int64(1000*time.Second) + now*int64(time.Microsecond) }

type supervisor struct {
	c       *cluster
	index   int
	life    int // deaths so far: an answer to an earlier life is lost
	m       *supervise.Machine
	writing []bool  // by worker
	signs   []int64 // by worker: the last, see Impatient
}

func newSupervisor(c *cluster, index int) *supervisor {
	s := &supervisor{c: c, index: index}
	s.born()
	return s
}

// peer is the supervisor's number on the network.
func (s *supervisor) peer() int { return s.c.collector() + 1 + s.index }

// born is a supervisor that knows nothing.
func (s *supervisor) born() {
	c, interval := s.c, time.Duration(beatEvery)*time.Microsecond
	grace := time.Duration(graceMax) * time.Microsecond
	o := supervise.Options{Name: "supervisor", Interval: interval, GraceMax: grace, GraceMin: grace, HungFirst: time.Hour, HungMin: time.Hour,
		Budget: &recovery.Budget{RankMax: math.MaxInt32, JobMax: math.MaxInt32, Window: int64(time.Second), Backoff: []int64{0}, PoisonMax: math.MaxInt32}}
	for _, w := range c.workers {
		o.Workers = append(o.Workers, w.asWorker())
	}
	s.m, s.writing, s.signs = supervise.NewMachine(o), make([]bool, len(c.workers)), make([]int64, len(c.workers))
	s.m.Lead(uint64(s.life*len(c.supervisors)+s.index+1), ns(c.now), math.MaxInt64)
	s.watch(s.life)
}

func (w *worker) asWorker() supervise.Worker {
	v := supervise.Worker{Host: "host"}
	for _, n := range w.nodes {
		v.Ranks = append(v.Ranks, n.rank)
	}
	return v
}

// watch looks at all records from time to time.
func (s *supervisor) watch(life int) {
	s.c.after(tickEvery, func() {
		if s.life != life {
			return
		}
		for w := range s.writing {
			s.saw(w)
			s.loses(w)
		}
		if s.c.o.Shell == ExitUnheard {
			s.m.Forgive(ns(s.c.now))
		}
		s.act()
		s.watch(life)
	})
}

func (s *supervisor) saw(w int) {
	k := &s.c.records[w]
	s.m.Saw(w, k.record, k.rev, ns(s.c.now))
}

// loses patience with a process whose sign of life is late, see Impatient.
func (s *supervisor) loses(w int) {
	if now := s.c.now; s.c.o.Shell == Impatient && s.signs[w] > 0 && now-s.signs[w] > beatEvery*5/4 {
		s.exited(plane.Exit{Worker: w, Incarnation: s.c.incarnation(w), Host: "host", Code: 1, AtNs: ns(now)})
	}
}

// heard takes a sign of life.
func (s *supervisor) heard(w int, inc uint32) {
	s.signs[w] = s.c.now
	s.m.Heard(plane.Beat{Worker: w, Incarnation: inc}, ns(s.c.now))
}

// exited takes the agent's word that a process has ended.
func (s *supervisor) exited(e plane.Exit) {
	if s.c.o.Shell != ExitUnheard {
		s.m.Exited(e, ns(s.c.now))
		s.act()
	}
}

// act does what the machine wants.
func (s *supervisor) act() {
	life := s.life
	for _, wish := range s.m.Tick(ns(s.c.now)).Mint {
		if s.life == life && !s.writing[wish.Worker] && !s.dies() {
			s.mint(wish)
		}
	}
}

// mint writes a record by compare-and-swap, and looks at what lies there then, whoever wrote it. An answer may be lost.
func (s *supervisor) mint(wish supervise.Wish) {
	c, w, life := s.c, wish.Worker, s.life
	s.writing[w] = true
	c.after(1+c.dice.below(planeMax, askPlane, s.peer(), s.peer()), func() {
		c.swap(wish)
		wait := 1 + c.dice.below(planeMax, askPlane, s.peer(), s.peer())
		if c.late && c.dice.below(8, askPlane, s.peer(), s.peer()) == 0 {
			wait = lostPatience
		}
		c.after(wait, func() {
			if s.life != life || s.dies() {
				return
			}
			s.writing[w] = false
			s.saw(w)
			s.act()
		})
	})
}

// swap writes a record if nobody has written another, and has the agent told.
func (c *cluster) swap(wish supervise.Wish) {
	k, w := &c.records[wish.Worker], c.workers[wish.Worker]
	if k.rev != wish.After && c.o.Shell != NotSwapped {
		return
	}
	if inc := wish.Record.Incarnation; inc != k.record.Incarnation+1 {
		c.fail(breaks(I8, "incarnation %d of worker %d is given in place of incarnation %d", inc, w.index, k.record.Incarnation))
		return
	}
	k.record, k.rev = wish.Record, k.rev+1
	k.record.At = time.Unix(0, ns(c.now))
	c.note(106, uint64(w.index), uint64(k.record.Incarnation))
	w.told(k.record.Incarnation)
}

// dies is a point at which a supervisor may die; it is started again, and knows nothing.
func (s *supervisor) dies() bool {
	c := s.c
	x, nth := c.dice.throw(askLeader, s.peer(), s.peer())
	if _, ok := c.strikes(Event{Kind: Supervisor, From: s.index, To: s.index, Nth: nth}, x%5 == 0, &c.f.Supervisors); !ok {
		return false
	}
	s.life++
	life := s.life
	c.after(rebirthTime, func() {
		if s.life == life {
			s.born()
		}
	})
	return true
}
