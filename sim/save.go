package sim

import (
	"slices"

	"phalanx/recovery"
)

// write writes the oldest snapshot that is due, in the background: training goes on. false if the rank died.
func (l *life) write() bool {
	if l.dies(between("before-snapshot", l.due[0].at.Step)) {
		return false
	}
	c, rank := l.n.c, l.n.rank
	l.writing = true
	l.proc.later(c.f.DiskMin+1+c.dice.below(c.f.DiskMax, askWrite, rank, rank), l.written)
	return true
}

// waitingMax snapshots of a rank wait beside the one that is being written.
const waitingMax = 2

// supersede gives up one of the snapshots that wait, if they are too many.
func (l *life) supersede() {
	first := 0
	if l.writing {
		first = 1
	}
	if len(l.due)-first <= waitingMax {
		return
	}
	var steps []uint32
	for _, s := range l.due[first:] {
		steps = append(steps, s.at.Step)
	}
	out := first
	if l.o().Shell != OldestGoes {
		out += recovery.LeastRound(steps)
	}
	l.due = slices.Delete(l.due, out, out+1)
}

// written is the file under a temporary name, unless the disk is full; training goes on then too. Its process looks
// whether it is still the present one, and gives the file its name.
func (l *life) written() {
	c, s := l.n.c, l.due[0]
	if l.dead() || l.fenced() {
		return
	}
	if l.o().Shell == MixedState { // the numbers of now beside the state of then
		s.at = l.mixed(s.at)
	}
	if !l.dies(between("mid-snapshot", s.at.Step)) && !l.full() {
		l.n.write(s)
		if !l.dies(between("after-snapshot", s.at.Step)) {
			l.do(l.m.Saved(s.at.Step))
		}
	}
	if l.dead() {
		return
	}
	c.note(105, uint64(l.n.rank), uint64(s.at.Step))
	l.due, l.writing = l.due[1:], false
	if len(l.due) > 0 {
		l.write()
	}
}

// full reports whether the disk has no room for a snapshot.
func (l *life) full() bool {
	c, rank := l.n.c, l.n.rank
	x, nth := c.dice.throw(askDisk, rank, rank)
	given := int(x%1000) < c.f.DiskRate
	if l.n.noRoom > 0 {
		l.n.noRoom--
		given = true
	}
	_, ok := c.strikes(Event{Kind: Full, From: rank, To: rank, Nth: nth}, given, nil)
	return ok
}
