package run

import (
	"context"
	"time"

	"phalanx/recovery"
	"phalanx/transport/natslink/plane"
)

// The end of a run of several processes that is asked to stop, seen from the launcher, which decides. What it has proposed it
// remembers, since it lives as long as the run: it tells it again and again, and gives it to every process that it starts.

// ask asks for the end.
func (l *launch) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending.Ask(l.begun())
	l.tellNews()
}

// begun is how many steps the furthest rank has begun, by its last heartbeat. The launch is locked.
func (l *launch) begun() uint32 {
	begun := uint32(l.j.first())
	for _, s := range l.watched.signs {
		for _, r := range s.beat.Ranks {
			begun = max(begun, r.Step+1)
		}
	}
	return begun
}

// end is what workers are to know of the end.
func (l *launch) end() recovery.End {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending.End()
}

// claimed takes what a worker says to the end. The launch is locked.
func (l *launch) claimed(b plane.Beat) {
	if !l.ending.Claimed(b.Worker, b.Claim) {
		return
	}
	if e := l.ending.End(); e.Decided {
		l.j.gate.endAt(int(e.Steps))
	}
	l.tellNews()
}

func (l *launch) tellNews() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// endEvery is the time between two announcements of the end: they may be lost.
const endEvery = 100 * time.Millisecond

// announce tells the workers where the run is to end.
func (l *launch) announce(ctx context.Context) {
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.news:
		}
		if e := l.end(); e.Round > 0 {
			l.plane.End(e)
		}
	}
}
