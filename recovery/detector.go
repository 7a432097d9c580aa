package recovery

import (
	"fmt"
	"slices"
)

// Limits of the failure detector.
const (
	MissedMax    = 6  // heartbeats that may fail to come
	HungPatience = 20 // usual steps without progress, with nothing to wait for

	gapsKept   = 64 // heartbeats of a worker whose distances are remembered
	gapFactor  = 2  // a silence of so many times the longest of them but one is no accident
	lateMax    = 5  // and no worker gets more than so many times the usual patience
	startsKept = 16 // start-ups that are remembered
	startFact  = 4  // a start-up that takes so many times the longest of them is none
	stepsKept  = 64 // steps whose median is the usual one
)

// DetectorOptions say who is watched. Times are in one unit.
type DetectorOptions struct {
	Workers   [][]int // the ranks of every worker
	Interval  int64   // between heartbeats
	GraceMax  int64   // for the first heartbeat of a life, while start-ups are not known
	GraceMin  int64   // when they are known to be short
	HungFirst int64   // without progress, while steps are not known
	HungMin   int64   // when they are known to be short: writing a checkpoint is no progress either
}

// Beat is what a worker says of its ranks with every heartbeat.
type Beat struct {
	Worker      int
	Incarnation uint32
	Ranks       []RankBeat
}

// RankBeat is one rank in it.
type RankBeat struct {
	Rank     int
	Step     uint32
	Progress uint64 // operations done in this life
	WaitsFor []int  // ranks whose messages its programs miss; nil: none
	Done     bool   // or it holds on purpose
}

// Detector tells which workers are dead or hung. A rank that waits for another is never the culprit: only roots of who waits
// for whom are.
type Detector struct {
	o       DetectorOptions
	workers []watchedWorker
	ranks   map[int]*watchedRank
	starts  ring // start-ups
	steps   ring // times of steps
}

type watchedWorker struct {
	alive       bool // begun, and neither given up nor ended
	incarnation uint32
	began       int64
	heard       int64 // the last sign, or until when the first may take
	spoken      bool
	gaps        ring
}

type watchedRank struct {
	worker  int
	beat    RankBeat
	known   bool
	moved   int64 // time of the last progress
	entered int64 // time of the first heartbeat in this step
	whole   bool  // the step was entered while watching
}

// NewDetector watches workers that have not begun.
func NewDetector(o DetectorOptions) *Detector {
	d := &Detector{o: o, workers: make([]watchedWorker, len(o.Workers)), ranks: map[int]*watchedRank{}, starts: ring{n: startsKept}, steps: ring{n: stepsKept}}
	for w, ranks := range o.Workers {
		d.workers[w].gaps.n = gapsKept
		for _, r := range ranks {
			d.ranks[r] = &watchedRank{worker: w}
		}
	}
	return d
}

// Begin says that a life of a worker has begun, and that it is watched from now on.
func (d *Detector) Begin(worker int, incarnation uint32, began, now int64) {
	w := &d.workers[worker]
	*w = watchedWorker{alive: true, incarnation: incarnation, began: began, heard: now + d.grace(), gaps: ring{n: gapsKept}}
	for _, r := range d.o.Workers[worker] {
		*d.ranks[r] = watchedRank{worker: worker, moved: w.heard}
	}
}

// End says that the life of a worker has ended, or is given up: it is suspected no more.
func (d *Detector) End(worker int) { d.workers[worker].alive = false }

// grace is how long a first heartbeat may take.
func (d *Detector) grace() int64 {
	if len(d.starts.values) == 0 {
		return d.o.GraceMax
	}
	return min(max(startFact*d.starts.max(), d.o.GraceMin), d.o.GraceMax)
}

// Heard takes a heartbeat. One of another life says nothing.
func (d *Detector) Heard(b Beat, now int64) {
	if b.Worker < 0 || b.Worker >= len(d.workers) || b.Incarnation != d.workers[b.Worker].incarnation {
		return
	}
	w := &d.workers[b.Worker]
	if w.spoken {
		w.gaps.add(max(0, now-w.heard))
	} else {
		d.starts.add(now - w.began)
	}
	w.heard, w.spoken = now, true
	for _, r := range b.Ranks {
		if s := d.ranks[r.Rank]; s != nil && s.worker == b.Worker {
			d.moved(s, r, now)
		}
	}
}

// moved compares a rank with what it was. Whoever waits for something else than before has moved, and whoever held on purpose.
func (d *Detector) moved(s *watchedRank, b RankBeat, now int64) {
	was := s.beat
	if !s.known || was.Done || b.Progress != was.Progress || b.Step != was.Step || !slices.Equal(b.WaitsFor, was.WaitsFor) {
		s.moved = now
	}
	if !s.known || b.Step != was.Step {
		if s.whole && b.Step > was.Step {
			d.steps.add((now - s.entered) / int64(b.Step-was.Step))
		}
		s.whole, s.entered = s.known, now
	}
	s.beat, s.known = b, true
	s.beat.WaitsFor = slices.Clone(b.WaitsFor)
}

// Forgive begins the watch anew at a time: whoever watches was asleep until now, or could hear nobody.
func (d *Detector) Forgive(now int64) {
	for i := range d.workers {
		d.workers[i].heard = max(d.workers[i].heard, now)
	}
	for _, r := range d.ranks {
		r.moved, r.whole = max(r.moved, now), false
	}
}

// Suspicion is a worker that should be replaced. A wrong one costs a replay and no more.
type Suspicion struct {
	Worker int
	Rank   int   // of it, that does not move; -1: all are silent
	Hung   bool  // it lives and does not move; else it is silent
	For    int64 // time without a sign
}

// String is one line.
func (s Suspicion) String() string {
	if s.Hung {
		return fmt.Sprintf("rank %d has not moved for %d and waits for nobody", s.Rank, s.For)
	}
	return fmt.Sprintf("worker %d has been silent for %d", s.Worker, s.For)
}

// Suspects are the workers to replace at a time, ascending, each once.
func (d *Detector) Suspects(now int64) []Suspicion {
	var list []Suspicion
	for i := range d.workers {
		w := &d.workers[i]
		if !w.alive {
			continue
		}
		if silent := now - w.heard; silent > d.patience(w) {
			list = append(list, Suspicion{Worker: i, Rank: -1, For: silent})
			continue
		}
		for _, r := range d.o.Workers[i] {
			if still, hung := d.hung(r, now); hung {
				list = append(list, Suspicion{Worker: i, Rank: r, Hung: true, For: still})
				break
			}
		}
	}
	return list
}

// patience is how long a worker may be silent: six heartbeats, and more if they used to be late. One long silence is no
// habit: a server was away.
func (d *Detector) patience(w *watchedWorker) int64 {
	usual := MissedMax * d.o.Interval
	if !w.spoken {
		return usual
	}
	return min(max(usual, gapFactor*w.gaps.second()), lateMax*usual)
}

// still is how long a rank may go without progress.
func (d *Detector) still() int64 {
	if len(d.steps.values) == 0 {
		return d.o.HungFirst
	}
	return max(HungPatience*d.steps.median(), d.o.HungMin)
}

// hung reports whether a rank stands still by its own fault: nobody it waits for could move it.
func (d *Detector) hung(rank int, now int64) (since int64, hung bool) {
	r := d.ranks[rank]
	since = now - r.moved
	if !r.known || r.beat.Done || since <= d.still() {
		return 0, false
	}
	if len(r.beat.WaitsFor) == 0 {
		return since, true
	}
	reach := d.reach(rank)
	if !slices.Contains(reach, rank) {
		return 0, false
	}
	for _, other := range reach { // a circle nobody leaves: its lowest rank stands for it, once all have stood still
		if other < rank || d.ranks[other] == nil || now-d.ranks[other].moved <= d.still() || !slices.Contains(d.reach(other), rank) {
			return 0, false
		}
	}
	return since, true
}

// reach is the ranks that a rank waits for, directly or through others.
func (d *Detector) reach(rank int) []int {
	var found []int
	next := []int{rank}
	for len(next) > 0 {
		r := d.ranks[next[0]]
		next = next[1:]
		if r == nil {
			continue
		}
		for _, n := range r.beat.WaitsFor {
			if !slices.Contains(found, n) {
				found, next = append(found, n), append(next, n)
			}
		}
	}
	slices.Sort(found)
	return found
}

// ring is the last n of some values.
type ring struct {
	n, next int
	values  []int64
}

func (r *ring) add(v int64) {
	if len(r.values) < r.n {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % r.n
}

func (r *ring) max() int64 {
	if len(r.values) == 0 {
		return 0
	}
	return slices.Max(r.values)
}

// second is the largest value but one; 0 of fewer than two.
func (r *ring) second() int64 {
	if len(r.values) < 2 {
		return 0
	}
	s := slices.Clone(r.values)
	slices.Sort(s)
	return s[len(s)-2]
}

// median is the upper one of an even number; 0 of none.
func (r *ring) median() int64 {
	if len(r.values) == 0 {
		return 0
	}
	s := slices.Clone(r.values)
	slices.Sort(s)
	return s[len(s)/2]
}
