package natslink

import (
	"slices"

	"go.uber.org/zap"
)

// A healing link is one whose owner gave Handler.Lost. What follows is what it does where another link would fail; the
// edges themselves begin anew in renew.go.

// heals says whether losses are told to the owner, and heal.
func (l *link) heals() bool { return l.h.Lost != nil }

// outdated says whether a frame is of an earlier life of its sender than the last that was heard of. The first frame of a
// later one starts the way to it anew. The caller has the lock.
func (l *link) outdated(src int, incarnation uint32) bool {
	known, met := l.lives[src]
	switch {
	case met && incarnation < known:
		l.net.fenced.Add(1)
		return true
	case !met:
		l.lives[src] = incarnation
	case incarnation > known:
		l.lives[src] = incarnation
		l.out.reborn(src)
	}
	return false
}

// damaged drops a frame that cannot be trusted, and refuses the edge it came by.
func (l *link) damaged(src int) {
	l.net.corrupt.Add(1)
	l.mu.Lock()
	if e := l.in.edges[src]; e != nil && !e.failed {
		e.refusing()
	}
	l.unlock()
}

// stranger drops a frame of another run or build. The first one is logged: they come in thousands.
func (l *link) stranger(err error) {
	l.net.foreign.Add(1)
	l.mu.Lock()
	first := !l.strange
	l.strange = true
	l.mu.Unlock()
	if first {
		l.net.log.Warn("a frame of another run is dropped, as all that follow will be", zap.Int("rank", l.rank), zap.Error(err))
	}
}

// begun tells the owner of edges that began anew, once for each peer.
func (l *link) begun(peers []int) {
	if !l.heals() {
		return
	}
	slices.Sort(peers)
	for _, p := range slices.Compact(peers) {
		l.net.log.Debug("an edge begins anew", zap.Int("rank", l.rank), zap.Int("peer", p))
		l.gate.Do(func() { l.h.Lost(p) })
	}
}

// back is called when a connection stands, for the first time or again. If the link was open without it, what was on
// the way is lost, control bodies too, to and from everybody, and nobody else can tell the owner.
func (l *link) back(first bool) {
	l.mu.Lock()
	defer l.unlock()
	if !l.heals() || !l.opened || first && !l.absent || !l.connected() {
		return
	}
	for _, e := range l.out.order {
		l.out.ask(e)
		l.out.begun = append(l.out.begun, e.dst)
	}
	for p := range l.lives {
		l.out.begun = append(l.out.begun, p)
	}
	for p := range l.net.opts.Ranks {
		if p != l.rank {
			l.out.begun = append(l.out.begun, p)
		}
	}
}

// watch is the tick of a healing link: what waits for a server or a peer that has been away for that many ticks is
// thrown away, and edges that wait to begin anew say so again.
func (l *link) watch(ticks int) {
	l.mu.Lock()
	if l.down == ticks {
		for _, e := range l.out.order {
			l.out.leave(e)
		}
	}
	if l.down == 0 {
		for _, e := range l.out.tick(ticks) {
			l.out.leave(e)
		}
		for _, e := range l.in.order {
			e.refuse = e.failed && e.inc == l.lives[e.src]
		}
	}
	l.unlock()
	signal(l.wake)
}
