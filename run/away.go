package run

import "time"

const (
	awayTold = 5 * time.Second // servers of the run's own are replaced faster
	awayMax  = 5 * time.Minute // without servers nothing can go on, and nothing is lost by waiting: time to start them again
)

// absence is how long there has been no server.
type absence int

const (
	awayNot absence = iota
	awayLong
	awayTooLong
)

// away watches whether there is a server. It says once that there has been none for long, and once that it has been too long.
type away struct {
	seen time.Time // when there was one last; zero: not looked yet
	last time.Time // when it was looked
	said absence
}

// look notes whether there is a server now. Time in which nobody looked does not count: the process stood still.
func (a *away) look(now time.Time, there bool) absence {
	if gap := now.Sub(a.last); gap > awayTold {
		a.seen = a.seen.Add(gap)
	}
	a.last = now
	if there || a.seen.IsZero() {
		a.seen, a.said = now, awayNot
		return awayNot
	}
	is := awayNot
	switch gone := now.Sub(a.seen); {
	case gone >= awayMax:
		is = awayTooLong
	case gone >= awayTold:
		is = awayLong
	}
	if is <= a.said {
		return awayNot
	}
	a.said = is
	return is
}
