package supervise

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"phalanx/recovery"
	"phalanx/transport/natslink/plane"
)

const ms = int64(time.Millisecond)

// faults of a world, each off in half of the seeds.
type faults struct {
	kills, stops, hangs float64 // per worker and second
	lostBeat, lostExit  float64
	lostAnswer          float64 // of a write that was made
	outages             float64 // per second: nothing is written or heard for a while
	crashes             float64 // of a supervisor, per second
	twoLeaders          float64 // chance of each supervisor to lead, beside the one
	slowAnswer          int64
}

// world is supervisors, agents, workers and a bucket on virtual time.
type world struct {
	rng     *rand.Rand
	now     int64
	events  events
	order   int
	f       faults
	options Options

	bucket  []kept
	rev     plane.Revision
	outage  int64 // until
	supers  []*super
	workers []*worker

	quiet    bool
	minted   map[string]int // how often an incarnation was written
	deaths   [][]int64      // by worker, of restarts
	failures []error
	verdict  *plane.Verdict
	killed   int
	alarms   map[Alarm]bool
}

type kept struct {
	r   plane.Record
	rev plane.Revision
}

type super struct {
	m       *Machine
	writing map[int]bool
	life    int
	leads   bool
}

// worker is a process and its agent.
type worker struct {
	n           int
	incarnation uint32
	state       state
	progress    uint64
	exit        *plane.Exit // to be told until the record goes on
}

type state uint8

const (
	absent state = iota
	running
	stopped
	hung
)

type event struct {
	at    int64
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { o := *e; x := o[len(o)-1]; *e = o[:len(o)-1]; return x }

func newWorld(seed uint64, supers, workers int, b *recovery.Budget) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), now: 1000 * int64(time.Second), minted: map[string]int{}, alarms: map[Alarm]bool{}}
	on := func(v float64) float64 {
		if w.rng.IntN(2) == 0 {
			return 0
		}
		return v * w.rng.Float64()
	}
	w.f = faults{kills: on(0.3), stops: on(0.1), hangs: on(0.1), lostBeat: on(0.1), lostExit: on(0.7), lostAnswer: on(0.6), outages: on(0.05),
		crashes: on(0.2), twoLeaders: on(1), slowAnswer: int64(on(4000))}
	o := Options{Budget: b, HungFirst: 20 * time.Second}
	for i := range workers {
		o.Workers = append(o.Workers, Worker{Ranks: []int{2 * i, 2*i + 1}, Host: "h"})
		w.workers = append(w.workers, &worker{n: i})
	}
	o.Name = "x"
	w.options, _ = o.complete()
	w.options.HungMin = 2 * time.Second
	w.bucket, w.deaths = make([]kept, workers), make([][]int64, workers)
	for i := range supers {
		s := &super{}
		w.supers = append(w.supers, s)
		w.reborn(s)
		w.repeat(50*ms, func() { w.tick(s) })
		w.repeat(1000*ms, func() { w.look(s) })
		_ = i
	}
	for _, p := range w.workers {
		w.repeat(100*ms, func() { w.beat(p) })
		w.repeat(200*ms, func() { w.tellExit(p) })
		w.repeat(50*ms, func() { w.agent(p) })
	}
	w.repeat(100*ms, w.harm)
	w.repeat(500*ms, w.elect)
	return w
}

func (w *world) after(d int64, do func()) {
	w.order++
	heap.Push(&w.events, event{w.now + d, w.order, do})
}

func (w *world) repeat(d int64, do func()) {
	w.after(w.rng.Int64N(d), func() { do(); w.repeatFrom(d, do) })
}

func (w *world) repeatFrom(d int64, do func()) { w.after(d, func() { do(); w.repeatFrom(d, do) }) }

// run goes on for some virtual time.
func (w *world) run(d int64) {
	for until := w.now + d; len(w.events) > 0 && w.events[0].at <= until && len(w.failures) == 0; {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

func (w *world) chance(p float64) bool { return !w.quiet && w.rng.Float64() < p }

func (w *world) fail(format string, args ...any) {
	w.failures = append(w.failures, fmt.Errorf(format, args...))
}

// reborn is a supervisor that knows nothing.
func (w *world) reborn(s *super) {
	s.life++
	o := w.options
	o.Name = fmt.Sprintf("s%p/%d", s, s.life)
	s.m, s.writing = NewMachine(o), map[int]bool{}
	w.look(s)
}

// look reads all records, each with its own delay.
func (w *world) look(s *super) {
	for n := range w.workers {
		w.read(s, n)
	}
}

func (w *world) read(s *super, n int) {
	life, k := s.life, w.bucket[n]
	w.after(w.rng.Int64N(20*ms), func() {
		if s.life == life && w.now >= w.outage {
			s.m.Saw(n, k.r, k.rev, w.now)
		}
	})
}

// elect makes one supervisor leader and, by chance, others beside it, or nobody.
func (w *world) elect() {
	if w.chance(0.3) {
		return
	}
	one := w.rng.IntN(len(w.supers))
	for i, s := range w.supers {
		if i == one && !w.chance(0.2) || w.chance(w.f.twoLeaders) {
			s.m.Lead(uint64(w.now), w.now, w.now+700*ms)
		}
	}
}

// tick asks a supervisor what to do and does it, slowly.
func (w *world) tick(s *super) {
	if w.chance(w.f.crashes / 20) {
		w.reborn(s)
		return
	}
	out := s.m.Tick(w.now)
	for _, a := range out.Alarms {
		w.alarms[a] = true
	}
	if out.Verdict != nil && w.verdict == nil {
		w.verdict = out.Verdict
		for _, o := range w.supers {
			o.m.EndRun()
		}
	}
	for _, x := range out.Mint {
		if !s.writing[x.Worker] {
			w.write(s, x)
		}
	}
}

// write is a compare-and-swap whose answer may come late or never.
func (w *world) write(s *super, x Wish) {
	s.writing[x.Worker] = true
	life := s.life
	delay := func() int64 {
		if w.quiet {
			return 1 + w.rng.Int64N(5*ms)
		}
		return 1 + w.rng.Int64N(5*ms+w.f.slowAnswer*ms)
	}
	w.after(delay(), func() {
		if w.now >= w.outage && w.bucket[x.Worker].rev == x.After {
			w.put(x)
		}
		w.after(delay(), func() {
			if s.life != life {
				return
			}
			delete(s.writing, x.Worker)
			if !w.chance(w.f.lostAnswer) {
				w.read(s, x.Worker)
			}
		})
	})
}

// put writes a record, and checks that it may be written.
func (w *world) put(x Wish) {
	was := w.bucket[x.Worker].r
	w.rev++
	x.Record.At = time.Unix(0, w.now)
	w.bucket[x.Worker] = kept{x.Record, w.rev}
	key := fmt.Sprintf("%d.%d", x.Worker, x.Record.Incarnation)
	if w.minted[key]++; w.minted[key] > 1 || x.Record.Incarnation != was.Incarnation+1 {
		w.fail("worker %d: %v was followed by %v", x.Worker, was, x.Record)
	}
	if x.Record.Cause != plane.Begun {
		if total := x.Record.Split().Total(); total < 0 || x.Record.SignNs+int64(total) != w.now {
			w.fail("worker %d: %v after the last sign was told as %v", x.Worker, time.Duration(w.now-x.Record.SignNs), x.Record.Split())
		}
		w.deaths[x.Worker] = append(w.deaths[x.Worker], x.Record.SignNs)
	}
	for _, s := range w.supers {
		if !w.chance(0.2) {
			w.read(s, x.Worker)
		}
	}
}

// agent makes the process what the record says.
func (w *world) agent(p *worker) {
	r := w.bucket[p.n].r
	if w.now < w.outage || r.Incarnation <= p.incarnation {
		return
	}
	p.incarnation, p.state, p.exit, p.progress = r.Incarnation, absent, nil, 0
	inc := r.Incarnation
	w.after(w.rng.Int64N(2000*ms), func() { // start-up
		if p.incarnation == inc && p.exit == nil {
			p.state = running
		}
	})
}

// beat is heard by each supervisor for itself.
func (w *world) beat(p *worker) {
	if p.state != running && p.state != hung || w.now < w.outage {
		return
	}
	b := plane.Beat{Worker: p.n, Incarnation: p.incarnation}
	blocked := w.blocker(p)
	if p.state == running && blocked == nil {
		p.progress++
	}
	for i := range 2 {
		r := plane.RankBeat{Rank: 2*p.n + i, Step: uint32(w.now / (500 * ms)), Progress: p.progress, Op: "op"}
		if p.state == hung || blocked != nil {
			r.Step = uint32(p.progress)
		}
		if p.state == running && blocked != nil {
			r.WaitsFor = []int{2 * blocked.n}
		}
		b.Ranks = append(b.Ranks, r)
	}
	for _, s := range w.supers {
		if !w.chance(w.f.lostBeat) {
			life := s.life
			w.after(w.rng.Int64N(30*ms), func() {
				if s.life == life {
					s.m.Heard(b, w.now)
				}
			})
		}
	}
}

// blocker is the lowest worker that does not compute: all others wait for it.
func (w *world) blocker(p *worker) *worker {
	for _, o := range w.workers {
		if o != p && o.state != running {
			return o
		}
	}
	return nil
}

func (w *world) tellExit(p *worker) {
	if p.exit == nil || w.now < w.outage {
		return
	}
	e := *p.exit
	for _, s := range w.supers {
		for range 1 + w.rng.IntN(2) {
			if w.chance(w.f.lostExit) {
				continue
			}
			life := s.life
			w.after(w.rng.Int64N(300*ms), func() {
				if s.life == life {
					s.m.Exited(e, w.now)
				}
			})
		}
	}
}

// harm kills, stops and hangs workers, and takes the servers away.
func (w *world) harm() {
	if w.chance(w.f.outages / 10) {
		w.outage = w.now + w.rng.Int64N(8000*ms)
		for _, s := range w.supers {
			s.m.Forgive(w.outage + 600*ms)
		}
	}
	for _, p := range w.workers {
		switch {
		case p.incarnation == 0 || p.exit != nil:
		case w.chance(w.f.kills / 10):
			w.killed++
			p.state, p.exit = absent, &plane.Exit{Worker: p.n, Incarnation: p.incarnation, Code: -1, Signal: "SIGKILL", AtNs: w.now}
		case p.state == running && w.chance(w.f.stops/10):
			p.state = stopped
		case p.state == running && w.chance(w.f.hangs/10):
			p.state = hung
		}
	}
}

// settled says whether every worker lives as its record says.
func (w *world) settled() error {
	var errs []error
	for _, p := range w.workers {
		if p.state != running || p.incarnation != w.bucket[p.n].r.Incarnation {
			errs = append(errs, fmt.Errorf("worker %d is in state %d of incarnation %d, its record says %v", p.n, p.state, p.incarnation, w.bucket[p.n].r))
		}
	}
	return errors.Join(errs...)
}
