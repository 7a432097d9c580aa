package recovery

import (
	"cmp"
	"fmt"
	"slices"
)

// Budget says how often ranks may be restarted, and how fast.
type Budget struct {
	RankMax, JobMax int   // restarts within Window
	Window          int64 // in the unit of times
	Backoff         []int64
	PoisonMax       int   // deaths at one place: the rank would die there again
	Together        int64 // deaths on one host within it have one cause and count once for the job

	// Whom names who has died, in the singular; nil: "rank 3".
	Whom func(rank int) string

	deaths []Death
}

// Death is the end of a life of a rank.
type Death struct {
	Rank int
	Host string
	At   int64
	Site string // the step and the operation it was in; "" is unknown
}

// sitesKept is how many deaths at a known place a budget remembers beyond its window: a rank that dies there again
// dies there next.
const sitesKept = 16

// NewBudget has the defaults, for times in nanoseconds: 5 restarts of a rank and 20 of the job in a minute, waits of 0, 50 ms,
// 200 ms, 1 s and 5 s, and 3 deaths at one place.
func NewBudget() *Budget {
	const ms = 1_000_000
	return &Budget{RankMax: 5, JobMax: 20, Window: 60_000 * ms, Backoff: []int64{0, 50 * ms, 200 * ms, 1000 * ms, 5000 * ms}, PoisonMax: 3}
}

// Verdict is what to do about a death.
type Verdict struct {
	Restart bool
	Wait    int64 // before the restart
	Poison  bool  // the job is stopped because it would die there again: exit code 5, with what is needed to see it again
	Why     string
}

// Died judges the death of a rank on a host at a time, and remembers it.
func (b *Budget) Died(rank int, host string, now int64, site string) Verdict {
	b.deaths = append(b.deaths, Death{rank, host, now, site})
	return b.Judge(b.deaths[:len(b.deaths)-1], b.deaths[len(b.deaths)-1])
}

// Judge judges a death after those before it, whatever their order, and remembers nothing.
func (b *Budget) Judge(before []Death, d Death) Verdict {
	all := append(slices.Clone(before), d)
	mine, here := 0, 0
	for _, o := range all {
		if o.Rank == d.Rank && d.Site != "" && o.Site == d.Site {
			here++
		}
		if o.Rank == d.Rank && d.At-o.At < b.Window {
			mine++
		}
	}
	job := b.causes(all, d.At)
	switch {
	case here >= b.PoisonMax:
		return Verdict{Poison: true, Why: fmt.Sprintf("%s has died %s at %s: it would die there again", b.whom(d.Rank), times(here), d.Site)}
	case mine > b.RankMax:
		return Verdict{Why: fmt.Sprintf("%s has died %s within recovery.restart_window_s, recovery.rank_restarts allows %d", b.whom(d.Rank), times(mine), b.RankMax)}
	case job > b.JobMax:
		return Verdict{Why: fmt.Sprintf("ranks have died %s within recovery.restart_window_s, recovery.job_restarts allows %d", times(job), b.JobMax)}
	}
	return Verdict{Restart: true, Wait: b.Backoff[min(mine, len(b.Backoff))-1]}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// causes counts deaths within the window, those on one host at one time once.
func (b *Budget) causes(all []Death, now int64) int {
	slices.SortStableFunc(all, func(x, y Death) int { return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.At, y.At)) })
	n, first := 0, Death{}
	for _, d := range all {
		if now-d.At >= b.Window {
			continue
		}
		if n == 0 || d.Host != first.Host || d.At-first.At > b.Together {
			n, first = n+1, d
		}
	}
	return n
}

// Keep is what must be remembered of the deaths of one rank, oldest first.
func (b *Budget) Keep(deaths []Death, now int64) []Death {
	sites := 0
	for _, d := range deaths {
		if d.Site != "" {
			sites++
		}
	}
	return slices.DeleteFunc(slices.Clone(deaths), func(d Death) bool {
		if d.Site != "" {
			sites--
		}
		return now-d.At >= b.Window && (d.Site == "" || sites >= sitesKept)
	})
}

func (b *Budget) whom(rank int) string {
	if b.Whom != nil {
		return b.Whom(rank)
	}
	return fmt.Sprintf("rank %d", rank)
}
