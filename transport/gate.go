package transport

import "sync"

// Gate keeps Network.Close's promise: calls into a Handler go through Do, and once Close has returned none of them
// runs or will run.
type Gate struct {
	mu     sync.Mutex
	idle   sync.Cond
	inside int
	closed bool
}

// Do calls f unless the gate is closed, and says whether it did.
func (g *Gate) Do(f func()) bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	g.inside++
	g.mu.Unlock()
	defer g.leave()
	f()
	return true
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.idle.L != nil {
		g.idle.Broadcast()
	}
}

// Close shuts the gate and waits until nobody is inside. It says whether this call was the first.
func (g *Gate) Close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.closed
	g.closed = true
	g.idle.L = &g.mu
	for g.inside > 0 {
		g.idle.Wait()
	}
	return first
}

// Closed says whether Close has been called.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
