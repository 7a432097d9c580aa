package supervise

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/recovery"
	"phalanx/transport/natslink/plane"
)

// Worker is a process that hosts ranks, and the host whose agent runs it.
type Worker struct {
	Ranks []int
	Host  string
}

// String names it by its ranks, which is what a user knows.
func (w Worker) String() string {
	if len(w.Ranks) == 1 {
		return fmt.Sprintf("rank %d", w.Ranks[0])
	}
	return "ranks " + strings.Trim(fmt.Sprint(w.Ranks), "[]")
}

// who names it as one that dies: a process of several ranks dies once for all of them.
func (w Worker) who() string {
	if len(w.Ranks) == 1 {
		return w.String()
	}
	return "the process of " + w.String()
}

// Machine decides which workers to replace. It has no clock and does nothing: it is told what was seen and at which time,
// and says what to write. It takes a step only when it sees a record, its own or another's, so it never matters
// which answers are late, lost or given twice.
//
// Times are nanoseconds since 1970 by a clock that does not jump.
type Machine struct {
	name    string
	workers []Worker
	budget  *recovery.Budget
	watch   *recovery.Detector
	every   int64 // between heartbeats
	seats   []seat

	term   uint64
	led    int64 // when it became leader
	until  int64 // when it is no longer one, unless told otherwise
	tick   int64 // the last one
	ticked bool
	over   bool // there is a verdict, or nothing more to watch

	alarms []Alarm // not yet told
}

// seat is a worker as this supervisor knows it.
type seat struct {
	looked  bool           // at the bucket
	best    plane.Record   // of the highest incarnation ever seen
	rev     plane.Revision // of what lies in the bucket; 0: nothing
	lies    uint32         // incarnation that lies there
	beats   bool           // best has given a sign
	sign    int64          // its last one
	where   map[int]place  // by rank
	ended   bool           // of its own will
	fall    *fall          // why best must be replaced; nil: it lives
	alarmed uint32         // the last incarnation of a false alarm
}

// place is where a rank was last seen.
type place struct {
	step     uint32
	op       string
	progress uint64
}

// fall is the end of a life, or a suspicion of it.
type fall struct {
	cause     plane.Cause
	text      string
	site      string // certain, or ""
	rank      int    // a hung one
	sign      int64  // last sign of life, or exit
	decided   int64
	judged    bool
	until     int64 // not to be replaced before
	wait      int64
	suspected bool
	final     bool // it would fail again
	code      int  // and the run ends with this
}

// Wish is a record that should be written in place of a revision.
type Wish struct {
	Worker int
	Record plane.Record
	After  plane.Revision
}

// Alarm is a suspicion that was wrong.
type Alarm struct {
	Worker      int
	Incarnation uint32
}

// Out is what a machine wants done.
type Out struct {
	Mint    []Wish
	Verdict *plane.Verdict // the run has ended
	Done    bool           // all workers have ended of their own will
	Alarms  []Alarm        // to be counted
}

// NewMachine watches workers of which nothing is known yet.
func NewMachine(o Options) *Machine {
	d := recovery.DetectorOptions{Interval: int64(o.Interval), GraceMax: int64(o.GraceMax), GraceMin: int64(o.GraceMin),
		HungFirst: int64(o.HungFirst), HungMin: int64(o.HungMin)}
	for _, w := range o.Workers {
		d.Workers = append(d.Workers, w.Ranks)
	}
	b := *o.Budget
	b.Together = max(b.Together, together)
	b.Whom = func(worker int) string { return o.Workers[worker].who() }
	return &Machine{name: o.Name, workers: o.Workers, budget: &b, watch: recovery.NewDetector(d), every: int64(o.Interval), seats: make([]seat, len(o.Workers))}
}

// together is how far apart deaths of one host with one cause may be: agents and heartbeats do not tell them at once.
const together = 500_000_000

// Lead says that this supervisor has the lease of a term until a time.
func (m *Machine) Lead(term uint64, now, until int64) {
	if term != m.term || now >= m.until {
		m.led = now
	}
	m.term, m.until = term, until
}

// Follow says that it has not.
func (m *Machine) Follow() { m.until = 0 }

// Forgive says that nobody could be heard until a time.
func (m *Machine) Forgive(now int64) { m.watch.Forgive(now) }

// Saw takes what lies in the bucket for a worker; revision 0 is nothing.
func (m *Machine) Saw(worker int, r plane.Record, rev plane.Revision, now int64) {
	s := &m.seats[worker]
	s.looked, s.rev, s.lies = true, rev, r.Incarnation
	if rev == 0 || r.Incarnation <= s.best.Incarnation {
		return
	}
	*s = seat{looked: true, best: r, rev: rev, lies: r.Incarnation, where: map[int]place{}, alarmed: s.alarmed}
	m.watch.Begin(worker, r.Incarnation, min(r.At.UnixNano(), now), now)
}

// Heard takes a heartbeat.
func (m *Machine) Heard(b plane.Beat, now int64) {
	if b.Worker < 0 || b.Worker >= len(m.seats) {
		return
	}
	s := &m.seats[b.Worker]
	switch {
	case b.Incarnation+1 == s.best.Incarnation:
		if s.best.Cause == plane.Silent && s.best.At.UnixNano() < now {
			m.alarm(b.Worker, b.Incarnation)
		}
		return
	case b.Incarnation != s.best.Incarnation || b.Incarnation == 0:
		return
	}
	m.watch.Heard(watched(b), now)
	s.beats, s.sign = true, now
	m.withdraw(b, s)
	for _, r := range b.Ranks {
		s.where[r.Rank] = place{r.Step, r.Op, r.Progress}
	}
}

// watched is a heartbeat as the detector takes it.
func watched(b plane.Beat) recovery.Beat {
	w := recovery.Beat{Worker: b.Worker, Incarnation: b.Incarnation}
	for _, r := range b.Ranks {
		w.Ranks = append(w.Ranks, recovery.RankBeat{Rank: r.Rank, Step: r.Step, Progress: r.Progress, WaitsFor: r.WaitsFor, Done: r.Done || r.Holds})
	}
	return w
}

// withdraw takes a suspicion back that a heartbeat refutes.
func (m *Machine) withdraw(b plane.Beat, s *seat) {
	if s.fall == nil || !s.fall.suspected {
		return
	}
	if s.fall.cause == plane.Hung && !slices.ContainsFunc(b.Ranks, func(r plane.RankBeat) bool {
		return r.Rank == s.fall.rank && r.Progress != s.where[r.Rank].progress
	}) {
		return
	}
	s.fall = nil
	m.alarm(b.Worker, b.Incarnation)
}

// alarm counts a false alarm, one for each life.
func (m *Machine) alarm(worker int, incarnation uint32) {
	if s := &m.seats[worker]; incarnation > s.alarmed {
		s.alarmed = incarnation
		m.alarms = append(m.alarms, Alarm{worker, incarnation})
	}
}

// Exited takes an exit that an agent has seen.
func (m *Machine) Exited(e plane.Exit, now int64) {
	if e.Worker < 0 || e.Worker >= len(m.seats) {
		return
	}
	s := &m.seats[e.Worker]
	if e.Incarnation != s.best.Incarnation || s.ended || s.fall != nil && !s.fall.suspected {
		return
	}
	if s.fall != nil && s.fall.judged { // it is being replaced for what it was suspected of
		return
	}
	if e.Code == 0 && e.Signal == "" {
		s.ended, s.fall = true, nil
		m.watch.End(e.Worker)
		return
	}
	s.fall = exitFall(e, now)
}

// exitFall reads an exit. What the process said itself is certain.
func exitFall(e plane.Exit, now int64) *fall {
	f := &fall{cause: plane.Exited, text: fmt.Sprintf("exit code %d", e.Code), sign: e.AtNs, decided: max(now, e.AtNs)}
	if e.Signal != "" {
		f.cause, f.text = plane.Killed, "signal "+e.Signal
	}
	if w := e.Words; w != nil {
		f.site, f.text = w.Site, w.Text
		if w.Cause != "" {
			f.cause = w.Cause
		}
		f.final, f.code = w.Final, max(1, w.Code)
	}
	return f
}

// EndRun says that there is a verdict, or that the run has ended otherwise.
func (m *Machine) EndRun() { m.over = true }

// Tick looks at the time and says what to do. It repeats itself until what it wants is seen to be done.
func (m *Machine) Tick(now int64) (out Out) {
	if m.ticked && now-m.tick > sleepMax*m.every {
		m.watch.Forgive(now)
	}
	m.tick, m.ticked = now, true
	m.suspect(now)
	out.Alarms, m.alarms = m.alarms, nil
	out.Done = !slices.ContainsFunc(m.seats, func(s seat) bool { return !s.ended })
	if m.over || now >= m.until {
		return out
	}
	for w := range m.seats {
		if out.Verdict = m.judge(w, now); out.Verdict != nil {
			m.over, out.Mint = true, nil
			return out
		}
		if wish, ok := m.wish(w, now); ok {
			out.Mint = append(out.Mint, wish)
		}
	}
	return out
}

// sleepMax is how many heartbeats a supervisor may fail to look before it takes itself for the one that slept.
const sleepMax = 3

// suspect notes whom the detector suspects.
func (m *Machine) suspect(now int64) {
	for _, x := range m.watch.Suspects(now) {
		s := &m.seats[x.Worker]
		if s.fall != nil || s.ended {
			continue
		}
		f := &fall{cause: plane.Silent, rank: x.Rank, sign: s.sign, decided: now, suspected: true,
			text: fmt.Sprintf("no heartbeat for %d ms", x.For/1e6)}
		if !s.beats {
			f.sign = min(s.best.At.UnixNano(), now)
		}
		if x.Hung {
			f.sign = now - x.For
			p := s.where[x.Rank]
			f.cause, f.site = plane.Hung, fmt.Sprintf("step %d %s", p.step, p.op)
			f.text = fmt.Sprintf("rank %d has not moved for %d ms in %s and waits for nobody", x.Rank, x.For/1e6, f.site)
		}
		s.fall = f
	}
}

// judge asks the budget about a fall, once. The deaths of all records count, and the falls that are not in records yet.
func (m *Machine) judge(worker int, now int64) *plane.Verdict {
	f := m.seats[worker].fall
	if f == nil || f.judged {
		return nil
	}
	if f.final {
		return &plane.Verdict{Code: f.code, Why: m.workers[worker].String() + ": " + f.text, By: m.name}
	}
	var before []recovery.Death
	for w := range m.seats {
		before = append(before, m.deaths(w)...)
		if o := m.seats[w].fall; o != nil && o.judged {
			before = append(before, m.death(w, o))
		}
	}
	v := m.budget.Judge(before, m.death(worker, f))
	if !v.Restart {
		code := restartsUsedUp
		if v.Poison {
			code = poison
		}
		return &plane.Verdict{Code: code, Why: fmt.Sprintf("%s; the last: %s", v.Why, f.text), By: m.name}
	}
	f.judged, f.wait, f.until = true, v.Wait, max(now, f.decided)+v.Wait
	return nil
}

// Exit codes of verdicts.
const (
	restartsUsedUp = 4
	poison         = 5
)

// death is a fall as the budget counts it.
func (m *Machine) death(worker int, f *fall) recovery.Death {
	return recovery.Death{Rank: worker, Host: m.seats[worker].best.Host, At: f.sign, Site: f.site}
}

// deaths are those that the record of a worker remembers.
func (m *Machine) deaths(worker int) []recovery.Death {
	r := &m.seats[worker].best
	list := make([]recovery.Death, 0, len(r.Deaths)+1)
	for _, d := range r.Deaths {
		list = append(list, recovery.Death{Rank: worker, Host: r.Host, At: d.AtNs, Site: d.Site})
	}
	return list
}

// wish is the record that a worker should have and has not.
func (m *Machine) wish(worker int, now int64) (Wish, bool) {
	s := &m.seats[worker]
	if !s.looked {
		return Wish{}, false
	}
	w := Wish{Worker: worker, After: s.rev}
	switch {
	case s.best.Incarnation == 0:
		w.Record = plane.Record{Incarnation: 1, Host: m.workers[worker].Host, By: m.name, Term: m.term, Cause: plane.Begun, LedNs: m.led, DecidedNs: m.led}
	case s.fall != nil && s.fall.judged && now >= s.fall.until:
		w.Record = m.next(worker, s.fall)
	case s.fall == nil && s.lies < s.best.Incarnation: // the servers have lost what they had acknowledged
		w.Record = s.best
	default:
		return Wish{}, false
	}
	return w, true
}

// next is the record of the life after a fall.
func (m *Machine) next(worker int, f *fall) plane.Record {
	r := plane.Record{Incarnation: m.seats[worker].best.Incarnation + 1, Host: m.workers[worker].Host, By: m.name, Term: m.term,
		Cause: f.cause, Text: f.text, SignNs: f.sign, LedNs: m.led, DecidedNs: f.decided, WaitNs: f.wait}
	for _, d := range m.budget.Keep(append(m.deaths(worker), m.death(worker, f)), f.sign) {
		r.Deaths = append(r.Deaths, plane.Death{AtNs: d.At, Site: d.Site})
	}
	return r
}
