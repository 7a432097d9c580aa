package recovery

import "fmt"

// Budget says how often ranks may be restarted, and how fast.
type Budget struct {
	RankMax, JobMax int   // restarts within Window
	Window          int64 // in the unit of times
	Backoff         []int64
	PoisonMax       int // deaths at one place: the rank would die there again

	deaths []death
}

type death struct {
	rank int
	host string
	at   int64
	site string
}

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

// Died judges the death of a rank on a host at a time. site is the step and the operation it was in; "" is unknown. Deaths on
// one host at one time count once for the job.
func (b *Budget) Died(rank int, host string, now int64, site string) Verdict {
	b.deaths = append(b.deaths, death{rank, host, now, site})
	mine, job, here := 0, 0, 0
	for i, d := range b.deaths {
		if d.rank == rank && site != "" && d.site == site {
			here++
		}
		if now-d.at >= b.Window {
			continue
		}
		if d.rank == rank {
			mine++
		}
		if i == 0 || d.at != b.deaths[i-1].at || d.host != b.deaths[i-1].host {
			job++
		}
	}
	switch {
	case here >= b.PoisonMax:
		return Verdict{Poison: true, Why: fmt.Sprintf("rank %d has died %d times at %s: it would die there again", rank, here, site)}
	case mine > b.RankMax:
		return Verdict{Why: fmt.Sprintf("rank %d has died %d times within recovery.restart_window_s, recovery.rank_restarts allows %d", rank, mine, b.RankMax)}
	case job > b.JobMax:
		return Verdict{Why: fmt.Sprintf("ranks have died %d times within recovery.restart_window_s, recovery.job_restarts allows %d", job, b.JobMax)}
	}
	return Verdict{Restart: true, Wait: b.Backoff[min(mine, len(b.Backoff))-1]}
}
