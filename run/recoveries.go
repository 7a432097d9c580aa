package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/transport/natslink/plane"
)

// Recovery is what one restart of a rank came to, in milliseconds.
type Recovery struct {
	Rank        int     `json:"rank"`
	Incarnation uint32  `json:"incarnation"`
	Cause       string  `json:"cause"`
	At          string  `json:"at,omitempty"`
	DetectionMs float64 `json:"detection_ms"`       // last sign of life → decision
	LeaderMs    float64 `json:"leaderless_ms"`      // of which there was no supervisor or no server
	BackoffMs   float64 `json:"backoff_ms"`         // waited on purpose
	RestartMs   float64 `json:"restart_ms"`         // decision → ranks ready
	ReplayMs    float64 `json:"replay_ms"`          // ready → where the rank had been
	Replayed    int     `json:"replayed"`           // messages that it was given
	Dropped     int     `json:"duplicates_dropped"` // messages that came twice
}

// total is from the last sign of life to where the rank had been.
func (r *Recovery) total() float64 { return r.DetectionMs + r.BackoffMs + r.RestartMs + r.ReplayMs }

// started counts the ranks that are started again.
func (l *launch) started(worker int, incarnation uint32, pid int) {
	if incarnation == 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restarts += len(l.spawn.ranksOf(worker, l.j.s.Sizes().World()))
	l.lives[worker] = incarnation
}

// lastPatience is how long the end of a run waits for what the last lives have to tell. They tell at once.
const lastPatience = 2 * time.Second

// lastFigures waits until the newest lives have told of their recovery and of their end, which the steps of a short run may
// overtake. One that began at the very end may tell neither.
func (l *launch) lastFigures(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	tick := time.NewTicker(lastPatience / 100)
	defer tick.Stop()
	for !l.allTold() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *launch) allTold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.spawn.Procs { // and every rank that it is done, with the last of its figures
		beat := l.watched.signs[w].beat
		if len(beat.Ranks) == 0 || slices.ContainsFunc(beat.Ranks, func(r plane.RankBeat) bool { return !r.Done }) {
			return false
		}
	}
	for worker, incarnation := range l.lives {
		for _, rank := range l.spawn.ranksOf(worker, l.j.s.Sizes().World()) {
			if l.seen[rank] < incarnation {
				return false
			}
		}
	}
	return true
}

// heard takes a heartbeat: the newest of every worker is kept, and a recovery is told once.
func (l *launch) heard(b plane.Beat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	if last, ok := l.watched.signs[b.Worker]; ok {
		if b.Incarnation < last.beat.Incarnation {
			return
		}
		if b.Incarnation > last.beat.Incarnation {
			for _, r := range last.beat.Ranks {
				l.at[r.Rank] = fmt.Sprintf("step %d %s", r.Step+1, r.Op)
			}
		}
	}
	l.claimed(b)
	for _, a := range l.watched.take(b, time.Now()) {
		l.wait.Go(func() { l.tell("alarm " + a) })
	}
	for _, r := range b.Ranks {
		if r.Recovered != nil && l.seen[r.Rank] < b.Incarnation {
			l.seen[r.Rank] = b.Incarnation
			e, at := *r.Recovered, strings.TrimSpace(l.at[r.Rank])
			l.wait.Go(func() { l.recovered(b.Worker, r.Rank, b.Incarnation, e, at) })
		}
	}
}

// recovered tells of a rank that is where it was when it died.
func (l *launch) recovered(worker, rank int, incarnation uint32, e plane.Recovered, at string) {
	ctx, cancel := context.WithTimeout(context.Background(), recordPatience)
	defer cancel()
	record, _, err := l.plane.Record(ctx, worker)
	out := Recovery{Rank: rank, Incarnation: incarnation, Cause: string(e.Cause), At: at, RestartMs: ms(e.RestartNs), ReplayMs: ms(e.ReplayNs),
		Replayed: int(e.Replayed), Dropped: int(e.Dropped)}
	if err == nil && record.Incarnation == incarnation {
		s := record.Split()
		out.LeaderMs, out.BackoffMs = ms(int64(s.Leaderless+s.Broker)), ms(int64(s.Backoff))
		out.DetectionMs = ms(int64(s.Detection)) + out.LeaderMs
	}
	l.mu.Lock()
	l.recoveries = append(l.recoveries, out)
	l.mu.Unlock()
	l.telling <- messages.Restarted{Rank: rank, Incarnation: incarnation, Cause: out.Cause, At: cmp.Or(at, "its beginning"), Replayed: out.Replayed,
		Dropped: out.Dropped, Ms: out.total()}
}

// recordPatience is how long the end of a run waits for the record of a restart: servers may be away.
const recordPatience = 2 * time.Second

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// LogPeak is the most bytes that the log of a rank has held at once: the messages of some steps, from 1, that the rank had sent
// in them.
type LogPeak struct {
	Rank  int   `json:"rank"`
	Bytes int64 `json:"bytes"`
	First int   `json:"first_step"`
	Last  int   `json:"last_step"`
}

// logPeaks are those of all ranks of a run of some steps, as reports count them. What is sent behind the last step counts for it.
func logPeaks(logs []recovery.Peak, steps int) (peaks []LogPeak) {
	for rank, p := range logs {
		l := LogPeak{Rank: rank, Bytes: p.Bytes}
		if p.Bytes > 0 {
			l.First, l.Last = min(int(p.First)+1, steps), min(int(p.Last)+1, steps)
		}
		peaks = append(peaks, l)
	}
	return peaks
}
