package kernel

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// patience is how long a test waits for what must happen, before it says that it did not.
const patience = 20 * time.Second

// within fails the test, with all stacks, unless f returns in time.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		stacks := make([]byte, 1<<16)
		require.FailNow(t, "deadlock", "%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// TestParallelCoversEachIndexOnce, in parts that are not shorter than asked for, but for the last.
func TestParallelCoversEachIndexOnce(t *testing.T) {
	withThreads(t, 1)
	rapid.Check(t, func(rt *rapid.T) {
		SetThreads(rapid.IntRange(-1, 6).Draw(rt, "threads"))
		n, least := rapid.IntRange(0, 300).Draw(rt, "n"), rapid.IntRange(-2, 40).Draw(rt, "least")
		seen := make([]atomic.Int32, n)
		Parallel(n, least, func(from, to int) {
			if from >= to || to > n || to < n && to-from < least {
				panic("a range that is empty, too long or too short")
			}
			for i := from; i < to; i++ {
				seen[i].Add(1)
			}
		})
		for i := range seen {
			require.EqualValues(rt, 1, seen[i].Load(), "index %d", i)
		}
	})
}

// TestThreadsCountsFromOne: less is one.
func TestThreadsCountsFromOne(t *testing.T) {
	withThreads(t, -3)
	require.Equal(t, 1, Threads())
	SetThreads(4)
	require.Equal(t, 4, Threads())
}

// TestParallelUsesWorkers: with three threads, three ranges are worked on at the same time. Workers that have just been
// started may not be idle yet, and then the caller works alone: so it tries again.
func TestParallelUsesWorkers(t *testing.T) {
	withThreads(t, 3)
	within(t, func() {
		var met atomic.Bool
		for !met.Load() {
			var active atomic.Int32
			Parallel(12, 1, func(int, int) {
				active.Add(1)
				defer active.Add(-1)
				for start := time.Now(); !met.Load() && time.Since(start) < 10*time.Millisecond; runtime.Gosched() {
					if active.Load() == 3 {
						met.Store(true)
					}
				}
			})
		}
	})
}

// TestParallelOnOneThreadStaysHere: one thread means the caller's goroutine and one range.
func TestParallelOnOneThreadStaysHere(t *testing.T) {
	withThreads(t, 1)
	calls := 0 // not synchronised: the race detector would see another goroutine
	Parallel(1000, 1, func(from, to int) {
		calls++
		require.Equal(t, [2]int{0, 1000}, [2]int{from, to})
	})
	require.Equal(t, 1, calls)
}

// TestParallelNested: calls within calls within calls, from many goroutines at once, all end and cover everything.
func TestParallelNested(t *testing.T) {
	withThreads(t, 4)
	const callers, outer, middle, inner = 8, 9, 7, 5
	within(t, func() {
		var sum atomic.Int64
		var wait sync.WaitGroup
		for range callers {
			wait.Go(func() {
				Parallel(outer, 1, func(a, b int) {
					for range b - a {
						Parallel(middle, 1, func(a, b int) {
							for range b - a {
								Parallel(inner, 2, func(a, b int) { sum.Add(int64(b - a)) })
							}
						})
					}
				})
			})
		}
		wait.Wait()
		require.EqualValues(t, callers*outer*middle*inner, sum.Load())
	})
}

// TestPoolStopsWhileOthersWork: stopping, starting and resizing from the side neither hangs nor loses work.
func TestPoolStopsWhileOthersWork(t *testing.T) {
	withThreads(t, 3)
	within(t, func() {
		stop := make(chan struct{})
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				for n := 1; ; n = n%50 + 1 {
					select {
					case <-stop:
						return
					default:
					}
					var sum atomic.Int64
					Parallel(n, 1, func(a, b int) {
						Parallel(b-a, 1, func(a, b int) { sum.Add(int64(b - a)) })
					})
					if sum.Load() != int64(n) {
						panic("lost work")
					}
				}
			})
		}
		for i := range 100 {
			SetThreads(1 + i%4)
			StopPool()
			runtime.Gosched()
		}
		close(stop)
		wait.Wait()
	})
}

// TestSetThreadsTakesEffect: after a change, the pool that starts next has that many workers.
func TestSetThreadsTakesEffect(t *testing.T) {
	withThreads(t, 2)
	for _, n := range []int{2, 5, 3} {
		SetThreads(n)
		requireWorkers(t, 0)
		Parallel(10, 1, func(int, int) {})
		requireWorkers(t, n-1)
	}
}

// TestStopPoolLeavesNoGoroutine, and the pool starts again.
func TestStopPoolLeavesNoGoroutine(t *testing.T) {
	withThreads(t, 5)
	before := goleak.IgnoreCurrent()
	for range 3 {
		Parallel(100, 1, func(int, int) {})
		requireWorkers(t, 4)
		StopPool()
		require.NoError(t, goleak.Find(before))
	}
	StopPool() // once more is harmless
}

// requireWorkers waits until there are n workers: one that is ending may still be listed.
func requireWorkers(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 1<<18)
	count := func() int { return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("kernel.serve(")) }
	require.Eventually(t, func() bool { return count() == n }, patience, time.Millisecond, "want %d workers, now %d", n, count())
}

// TestParallelPanics: a panic in any range reaches the caller with value and stack, and the pool lives on.
func TestParallelPanics(t *testing.T) {
	withThreads(t, 3)
	for _, at := range []int{0, 57, 99} {
		err := caught(func() {
			Parallel(100, 1, func(from, to int) {
				if from <= at && at < to {
					panicHere()
				}
			})
		})
		require.ErrorContains(t, err, "panic in parallel work: EOF\n")
		require.ErrorContains(t, err, "panicHere", "the stack of the place")
		require.ErrorIs(t, err, io.EOF)
		var sum atomic.Int64
		Parallel(100, 1, func(a, b int) { sum.Add(int64(b - a)) })
		require.EqualValues(t, 100, sum.Load())
	}
	err := caught(func() { Parallel(9, 1, func(int, int) { panic("a word") }) })
	require.ErrorContains(t, err, "a word")
	require.NoError(t, errors.Unwrap(err))
}

func panicHere() { panic(io.EOF) }

// caught is the error that f panics with.
func caught(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// TestParallelSurvivesGoexit: a worker whose goroutine is ended by f, as require does it, does not leave the caller
// waiting for ever, and the caller learns that work is missing.
func TestParallelSurvivesGoexit(t *testing.T) {
	withThreads(t, 2)
	within(t, func() {
		for err := error(nil); !errors.Is(err, errGoexit); {
			err = caught(func() {
				Parallel(8, 1, func(int, int) {
					if onWorker() {
						runtime.Goexit()
					}
					time.Sleep(time.Millisecond) // leaves a range to the worker
				})
			})
		}
	})
}

// onWorker reports whether a worker of the pool runs this.
func onWorker() bool {
	stack := make([]byte, 1<<14)
	return bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("kernel.serve("))
}
