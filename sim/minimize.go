package sim

import (
	"errors"
	"slices"
)

// minimizeRuns bounds the schedules that Minimize tries: a hang takes longest, some ten milliseconds.
const minimizeRuns = 5_000

// Minimize finds fewer and shorter faults with which a seed still breaks a promise: half of them, a quarter, …, single ones,
// then all of one rank, then half the time of those that last; at last none can be left out alone. The faults are those
// that happened; what is left of the seed's schedule stays as it is.
func (j *Job) Minimize(failure *Error) *Error {
	m := &minimizer{job: j, best: failure}
	if failure.Broken == I9 || !m.breaks(failure.Events) {
		return failure
	}
	m.fewer()
	m.fewerRanks()
	m.shorter()
	m.fewer()
	m.best.Minimized = m.runs < minimizeRuns
	return m.best
}

type minimizer struct {
	job  *Job
	best *Error // with the faults that are left
	runs int
}

// breaks tries a list of faults and keeps it, as far as it happened, if it breaks a promise.
func (m *minimizer) breaks(events []Event) bool {
	if m.runs >= minimizeRuns {
		return false
	}
	m.runs++
	o := m.best.Options
	o.Only = append([]Event{}, events...) // nil would be all
	_, err := m.job.Run(o)
	var found *Error
	if !errors.As(err, &found) {
		return false
	}
	found.Options.Only = append([]Event{}, found.Events...)
	m.best = found
	return true
}

// fewer leaves out stretches of faults, from half of them down to single ones, until none of those can go.
func (m *minimizer) fewer() {
	for size := max(1, len(m.best.Events)/2); size > 1; size /= 2 {
		m.without(size)
	}
	for m.without(1) {
	}
}

// without leaves out stretches of one size; true if that worked anywhere.
func (m *minimizer) without(size int) (any bool) {
	for at := 0; at < len(m.best.Events); {
		if m.breaks(slices.Delete(slices.Clone(m.best.Events), at, min(at+size, len(m.best.Events)))) {
			any = true
		} else {
			at += size
		}
	}
	return any
}

// fewerRanks leaves out all faults of one peer.
func (m *minimizer) fewerRanks() {
	for peer := range m.job.Ranks() + 1 {
		rest := slices.DeleteFunc(slices.Clone(m.best.Events), func(e Event) bool { return e.From == peer || e.To == peer })
		if len(rest) < len(m.best.Events) {
			m.breaks(rest)
		}
	}
}

// shorter halves the time of what lasts, as often as that works.
func (m *minimizer) shorter() {
	for i := 0; i < len(m.best.Events); {
		events := slices.Clone(m.best.Events)
		if events[i].Lasts /= 2; events[i].Lasts == 0 || !m.breaks(events) {
			i++
		}
	}
}
