package run

import (
	"sync"

	"phalanx/recovery"
)

// sharedGate is the gate of a process of several: ranks come to it, and heartbeats tell of it.
type sharedGate struct {
	mu      sync.Mutex
	gate    *recovery.Gate
	answers map[int]func(ends bool) // by rank that waits
}

func newSharedGate(ranks []int, heard recovery.End) *sharedGate {
	return &sharedGate{gate: recovery.NewGate(ranks, heard), answers: map[int]func(bool){}}
}

// At implements actors.Gate.
func (g *sharedGate) At(rank int, step uint32, answer func(ends bool)) recovery.Pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	pass := g.gate.At(rank, step)
	delete(g.answers, rank)
	if pass == recovery.Waits {
		g.answers[rank] = answer
	}
	return pass
}

// Reported implements actors.Gate.
func (g *sharedGate) Reported(rank int, step uint32, ahead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.Reported(rank, step, ahead)
}

// heard takes what the launcher says.
func (g *sharedGate) heard(e recovery.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.gate.Heard(e) {
		g.answers[f.Rank](f.Ends)
		delete(g.answers, f.Rank)
	}
}

// claim is for heartbeats.
func (g *sharedGate) claim() recovery.Claim {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gate.Claim()
}

// waiting says whether a rank holds.
func (g *sharedGate) waiting(rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gate.Waiting(rank)
}
