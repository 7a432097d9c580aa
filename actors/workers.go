package actors

import "sync"

const (
	// workersIdleMax bounds the goroutines kept for later turns: more actors than that rarely act within one round
	// trip; a turn beyond it starts a goroutine and ends it.
	workersIdleMax = 256
	// workersThroughput is how many messages an actor takes before others may run, protoactor's default.
	workersThroughput = 300
)

// workers is the dispatcher of a run: goroutines that outlive a turn. protoactor's own starts one for every burst of
// messages, and a new goroutine spends longer growing its stack (a message header is large) than on a small message.
// A turn may compute for long, so there are as many goroutines as turns at a time.
type workers struct {
	mu     sync.Mutex
	idle   []chan func() // last in, first out: the warmest stack
	closed bool
}

// Schedule implements actor.Dispatcher.
func (w *workers) Schedule(fn func()) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		c := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		c <- fn
		return
	}
	w.mu.Unlock()
	go w.work(fn)
}

// Throughput implements actor.Dispatcher.
func (w *workers) Throughput() int { return workersThroughput }

func (w *workers) work(fn func()) {
	c := make(chan func(), 1)
	for fn != nil {
		fn()
		if !w.rest(c) {
			return
		}
		fn = <-c
	}
}

// rest makes a worker available; false if it is not wanted any more.
func (w *workers) rest(c chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) == workersIdleMax {
		return false
	}
	w.idle = append(w.idle, c)
	return true
}

// close ends the idle workers; the others end after their turn.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, c := range w.idle {
		close(c)
	}
	w.idle = nil
}
