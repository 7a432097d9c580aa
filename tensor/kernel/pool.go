package kernel

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// The compute pool: persistent workers that help a caller with the parts of one piece of work. The caller works too,
// takes whatever helpers are idle at that moment and never waits for a busy one, so any number of goroutines may call
// at the same time and calls may nest. Nothing here changes a bit: parts are independent.

var (
	threads atomic.Int64 // as set; 0 means 1
	offers  = make(chan *work)
	workers struct {
		mu      sync.Mutex
		running atomic.Bool
		quit    chan struct{}
		wait    sync.WaitGroup
	}
)

// Threads is the number of goroutines that may work for one call, the caller included.
func Threads() int { return max(int(threads.Load()), 1) }

// SetThreads sets Threads; less than 1 counts as 1. Workers start with the first work that wants them. Not to be
// called from within Parallel, for which it would wait.
func SetThreads(n int) {
	workers.mu.Lock()
	defer workers.mu.Unlock()
	stopPool()
	threads.Store(int64(max(n, 1)))
}

// StopPool ends the workers and waits until they are gone. The next parallel work starts them again. Not to be called
// from within Parallel, for which it would wait.
func StopPool() {
	workers.mu.Lock()
	defer workers.mu.Unlock()
	stopPool()
}

// stopPool is StopPool for a holder of workers.mu. running stays set until the workers are gone, so that work of a
// worker never waits here for the lock.
func stopPool() {
	if !workers.running.Load() {
		return
	}
	close(workers.quit)
	workers.wait.Wait()
	workers.running.Store(false)
}

// startPool starts the workers unless they run.
func startPool() {
	if workers.running.Load() {
		return
	}
	workers.mu.Lock()
	defer workers.mu.Unlock()
	if workers.running.Load() {
		return
	}
	workers.quit = make(chan struct{})
	for range Threads() - 1 {
		workers.wait.Add(1)
		go serve(workers.quit)
	}
	workers.running.Store(true)
}

// serve is the life of a worker.
func serve(quit chan struct{}) {
	defer workers.wait.Done()
	for {
		select {
		case <-quit:
			return
		case w := <-offers:
			w.help()
		}
	}
}

// work is one call of Parallel.
type work struct {
	f        func(from, to int)
	n, chunk int
	next     atomic.Int64   // first index that nobody has taken
	helpers  sync.WaitGroup // workers that took the work
	panicked atomic.Pointer[workerPanic]
}

// chunksPerThread is how finely work is cut: a thread that is held up by something else then leaves most to others.
const chunksPerThread = 4

// Parallel calls f for ranges that cover 0..n−1 once, each of at least minPerPart except the last, on the calling
// goroutine and on idle workers, and returns when all are done. The order and the cut are unspecified: f must give the
// same result for any. A panic in f reaches the caller.
func Parallel(n, minPerPart int, f func(from, to int)) {
	parts := min(Threads(), n/max(minPerPart, 1))
	if parts <= 1 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	startPool()
	w := &work{f: f, n: n, chunk: max((n+parts*chunksPerThread-1)/(parts*chunksPerThread), minPerPart)}
	w.offer(parts - 1)
	defer w.finish()
	w.run()
}

// offer hands w to up to n workers that are idle now.
func (w *work) offer(n int) {
	for range n {
		w.helpers.Add(1)
		select {
		case offers <- w:
		default:
			w.helpers.Done()
			return
		}
	}
}

// help is a worker's share of w. f may end the goroutine (runtime.Goexit, as a failing test does), which nothing can
// undo: the pool is one worker short until it is stopped, and the caller is told, for what f did not do is missing.
func (w *work) help() {
	defer w.helpers.Done()
	returned := false
	defer func() {
		if !returned {
			w.fail(errGoexit)
		}
	}()
	w.run()
	returned = true
}

var errGoexit = errors.New("the function ended its goroutine with runtime.Goexit")

// run takes chunks until none is left. A panic is kept for the caller, and no more chunks start.
func (w *work) run() {
	defer func() {
		if r := recover(); r != nil {
			w.fail(r)
		}
	}()
	for {
		to := int(w.next.Add(int64(w.chunk)))
		from := to - w.chunk
		if from >= w.n {
			return
		}
		w.f(from, min(to, w.n))
	}
}

// fail keeps the first panic and lets no more chunks start.
func (w *work) fail(value any) {
	w.next.Store(int64(w.n))
	w.panicked.CompareAndSwap(nil, &workerPanic{value: value, stack: debug.Stack()})
}

// finish waits for the helpers and passes on a panic.
func (w *work) finish() {
	w.helpers.Wait()
	if p := w.panicked.Load(); p != nil {
		panic(p)
	}
}

// workerPanic is the first panic in a parallel call with the stack where it happened.
type workerPanic struct {
	value any
	stack []byte
}

// Error shows the value and the stack, which the runtime prints for a panic that nobody recovers.
func (p *workerPanic) Error() string {
	return fmt.Sprintf("panic in parallel work: %v\n%s", p.value, p.stack)
}

// Unwrap is the value if that was an error.
func (p *workerPanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
