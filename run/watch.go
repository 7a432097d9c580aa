package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"phalanx/config"
	"phalanx/recovery"
	"phalanx/supervise"
	"phalanx/transport/natslink/plane"
)

// What the user sees of the processes of a run, from their heartbeats.

// Note is a line on the console that is no figure: who waits for whom, an alarm, a fault of a server.
type Note string

// String is the line.
func (n Note) String() string { return string(n) }

// watched is what heartbeats have told. The launch locks it.
type watched struct {
	signs    map[int]sign   // newest by worker
	progress map[int]uint64 // by rank
	moved    time.Time      // when the last rank moved
	stalled  bool           // and has been told
	pace     supervise.Pace
	alarms   map[string]bool       // that were told
	healed   plane.Links           // by processes that are over
	logs     map[int]recovery.Peak // by rank
}

type sign struct {
	beat plane.Beat
	at   time.Time
}

// take notes a heartbeat and returns the alarms in it that are new.
func (w *watched) take(b plane.Beat, now time.Time) (alarms []string) {
	if last := w.signs[b.Worker].beat; b.Incarnation > last.Incarnation {
		w.healed.Add(last.Links)
	}
	w.signs[b.Worker] = sign{b, now}
	w.pace.Take(b)
	for _, r := range b.Ranks {
		if w.progress[r.Rank] != r.Progress {
			w.progress[r.Rank], w.moved, w.stalled = r.Progress, now, false
		}
		if l := r.Log; l != nil && l.Bytes > w.logs[r.Rank].Bytes {
			w.logs[r.Rank] = recovery.Peak{Bytes: l.Bytes, First: l.First, Last: l.Last}
		}
	}
	for _, a := range b.Alarms {
		if !w.alarms[a] {
			w.alarms[a] = true
			alarms = append(alarms, a)
		}
	}
	return alarms
}

// stands says, once, that no rank has moved for some time.
func (w *watched) stands(now time.Time, limit time.Duration) bool {
	if w.stalled || !w.still(now, limit) {
		return false
	}
	w.stalled = true
	return true
}

// still says whether no rank has moved for some time.
func (w *watched) still(now time.Time, limit time.Duration) bool {
	return !w.moved.IsZero() && now.Sub(w.moved) >= limit
}

// stillAfter is how long no rank has moved when the run stands still.
func (l *launch) stillAfter() time.Duration {
	return time.Duration(l.j.s.Recovery.CollectiveTimeoutS * float64(time.Second))
}

// waiting is who waits for whom, a line for each rank.
func (l *launch) waiting() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var signs []supervise.Sign
	for w := range l.spawn.Procs {
		if s, ok := l.watched.signs[w]; ok {
			signs = append(signs, supervise.Sign{Beat: s.beat, Age: time.Since(s.at)})
		}
	}
	sizes := l.j.s.Sizes()
	return supervise.Waiting(l.spawn.supervisor(l.j).Workers, signs, sizes.Where, l.watched.still(time.Now(), l.stillAfter()))
}

// look tells who waits for whom whenever the run stands still, and when it is asked.
func (l *launch) look(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	limit := l.stillAfter()
	var servers away
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.j.o.Ask: // a nil channel is never ready
			l.tell(l.waiting()...)
		case now := <-tick.C:
			switch servers.look(now, l.plane.Connected()) {
			case awayLong:
				l.tell(fmt.Sprintf("no NATS server at %s: the run goes on when there is one again, and ends after %v without", l.spawn.URL, awayMax))
			case awayTooLong:
				l.cancel(&VerdictError{Code: ExitFailed, Why: fmt.Sprintf("no NATS server at %s for %v: expected one again by then; start it, and go on from the last checkpoint with --resume", l.spawn.URL, awayMax)})
				return
			}
			l.mu.Lock()
			stands := l.plane.Connected() && l.watched.stands(now, limit) // without a server nobody can say
			l.mu.Unlock()
			if stands {
				l.tell(append([]string{fmt.Sprintf("no rank has moved for %v:", limit)}, l.waiting()...)...)
			}
		}
	}
}

// tell puts lines on the console.
func (l *launch) tell(lines ...string) {
	for _, line := range lines {
		l.telling <- Note(line)
	}
}

// serverFaults makes servers fail when a step begins, as the scenario says. step counts from 1.
func (l *launch) serverFaults(step int) {
	for i := range l.j.s.Faults {
		f := &l.j.s.Faults[i]
		if !f.OfServer() || f.At.Step == nil || *f.At.Step != step {
			continue
		}
		for _, c := range l.servers {
			if c.name == f.Server {
				l.j.faults.met(i)
				l.wait.Go(func() { l.failServer(c, f) })
			}
		}
	}
}

func (l *launch) failServer(c *child, f *config.Injected) {
	l.telling <- Note(strings.TrimSpace(fmt.Sprintf("fault server=%s action=%s", f.Server, f.Action)))
	if f.Action == "pause" {
		c.pause(time.Duration(f.Ms * float64(time.Millisecond)))
		return
	}
	c.kill()
}

// report fills in what only the launcher knows.
func (l *launch) report(r *Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Recoveries, r.FalseAlarms, r.Pace = l.recoveries, l.falseAlarms, l.watched.pace.Table()
	logs := make([]recovery.Peak, l.j.s.Sizes().World())
	for rank := range logs {
		logs[rank] = l.watched.logs[rank]
	}
	r.LogBytesPeak = logPeaks(logs, l.j.s.Train.TrainIters)
	links := l.watched.healed
	for _, s := range l.watched.signs {
		links.Add(s.beat.Links)
	}
	r.Links = &links
	for _, s := range l.watched.signs {
		r.PeakRSSBytes += int64(s.beat.RSSBytes) // of the processes, as they said last
	}
}
