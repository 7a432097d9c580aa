package recovery

import (
	"fmt"
	"slices"
)

// Limits of the failure detector.
const (
	MissedMax    = 6  // heartbeats that may fail to come
	HungPatience = 20 // usual steps without progress, with nothing to wait for
)

// Beat is what a rank says of itself with every heartbeat. Times are in one unit.
type Beat struct {
	Rank        int
	Incarnation uint32
	Progress    uint64 // operations done in this life
	WaitsFor    []int  // ranks whose messages its programs miss; nil: none
}

// Detector tells which ranks are dead or hung. A rank that waits for another is never the culprit: only roots of who waits
// for whom are.
type Detector struct {
	interval int64 // between heartbeats
	step     int64 // usual time of a step
	ranks    []watched
}

type watched struct {
	beat  Beat
	heard int64
	moved int64 // time of the last progress
}

// NewDetector watches world ranks that send a heartbeat every interval; each has until grace to send its first.
func NewDetector(world int, interval, grace int64) *Detector {
	d := &Detector{interval: interval, ranks: make([]watched, world)}
	for i := range d.ranks {
		d.ranks[i] = watched{beat: Beat{Rank: i}, heard: grace, moved: grace}
	}
	return d
}

// Usual says how long a step takes as a rule: the median of the last ones.
func (d *Detector) Usual(step int64) { d.step = step }

// Heard takes a heartbeat. One of an earlier life says nothing.
func (d *Detector) Heard(b Beat, now int64) {
	w := &d.ranks[b.Rank]
	if b.Incarnation < w.beat.Incarnation {
		return
	}
	if b.Incarnation > w.beat.Incarnation || b.Progress != w.beat.Progress {
		w.moved = now
	}
	w.beat, w.heard = b, now
}

// Suspicion is a rank that should be replaced. A wrong one costs a replay and no more.
type Suspicion struct {
	Rank int
	Hung bool  // it lives and does not move; else it is silent
	For  int64 // time without a sign
}

// String is one line.
func (s Suspicion) String() string {
	if s.Hung {
		return fmt.Sprintf("rank %d has not moved for %d and waits for nobody", s.Rank, s.For)
	}
	return fmt.Sprintf("rank %d has been silent for %d", s.Rank, s.For)
}

// Suspects are the ranks to replace at a time, ascending.
func (d *Detector) Suspects(now int64) []Suspicion {
	var list []Suspicion
	for i, w := range d.ranks {
		silent, still := now-w.heard, now-w.moved
		switch {
		case silent > MissedMax*d.interval:
			list = append(list, Suspicion{Rank: i, For: silent})
		case d.step > 0 && still > HungPatience*d.step && d.root(i):
			list = append(list, Suspicion{Rank: i, Hung: true, For: still})
		}
	}
	return list
}

// root reports whether a rank waits for nobody, or only for ranks that wait for it in turn.
func (d *Detector) root(rank int) bool {
	if len(d.ranks[rank].beat.WaitsFor) == 0 {
		return true
	}
	reach := d.reach(rank)
	if !slices.Contains(reach, rank) {
		return false
	}
	for _, other := range reach { // a circle nobody leaves: its lowest rank stands for it
		if other < rank || !slices.Contains(d.reach(other), rank) {
			return false
		}
	}
	return true
}

// reach is the ranks that a rank waits for, directly or through others.
func (d *Detector) reach(rank int) []int {
	var found []int
	next := slices.Clone(d.ranks[rank].beat.WaitsFor)
	for len(next) > 0 {
		r := next[0]
		next = next[1:]
		if slices.Contains(found, r) {
			continue
		}
		found = append(found, r)
		next = append(next, d.ranks[r].beat.WaitsFor...)
	}
	slices.Sort(found)
	return found
}
