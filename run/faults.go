package run

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"phalanx/actors"
	"phalanx/config"
	"phalanx/snapshot"
)

// FaultError is the panic that a scenario asked for.
type FaultError struct{ At config.Passage }

func (e *FaultError) Error() string {
	return fmt.Sprintf("the scenario's fault at %s %d of rank %d", e.At.Hook, e.At.Count, *e.At.Rank)
}

// faults makes ranks fail as the scenario says. A rank's passages are counted over all of its lives: where ranks are
// processes, in a file of a byte for each.
type faults struct {
	list []config.Injected
	dir  string         // of the files; "": all lives are in this process
	n    []atomic.Int64 // passages, by entry
	mu   sync.Mutex     // orders passages with their files
	disk map[int]error  // by rank: what its next snapshot meets

	kill func()                // tests: in place of SIGKILL to this process
	exit func(code int)        // tests: in place of os.Exit
	hang func()                // tests: in place of waiting for ever
	nap  func(d time.Duration) // tests: in place of sleeping
}

// exitFault is the exit code of action exit.
const exitFault = 1

// newFaults reads how often ranks have come by in earlier lives. dir is a folder of the run, "" for ranks whose lives are
// all in this process.
func newFaults(list []config.Injected, dir string) (*faults, error) {
	f := &faults{list: list, dir: dir, n: make([]atomic.Int64, len(list)), disk: map[int]error{}, exit: os.Exit, hang: func() { select {} }, nap: time.Sleep}
	f.kill = func() {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		f.hang() // until it takes effect
	}
	if dir == "" {
		return f, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for i := range list {
		if info, err := os.Stat(f.file(i)); err == nil {
			f.n[i].Store(info.Size())
		}
	}
	return f, nil
}

func (f *faults) file(i int) string { return filepath.Join(f.dir, fmt.Sprintf("passages.%d", i)) }

// pass is a rank's passage. It returns unless the rank fails here.
func (f *faults) pass(rank int, at actors.Passage) {
	var due []*config.Injected
	for i := range f.list { // every entry counts it, before one of them ends it
		if f.due(i, rank, at) {
			due = append(due, &f.list[i])
		}
	}
	for _, e := range due {
		f.act(rank, e)
	}
}

// due counts a passage of an entry and says whether it is the one.
func (f *faults) due(i, rank int, at actors.Passage) bool {
	e := &f.list[i]
	switch {
	case !e.OfRank() || *e.At.Rank != rank || e.At.Hook != at.Point, e.At.Step != nil && *e.At.Step != at.Step, e.At.Microbatch != nil && *e.At.Microbatch != at.Microbatch:
		return false
	case e.During.Steps != nil && !e.During.Has(at.Step):
		return false
	}
	last := int64(e.At.Count)
	if e.During.Steps != nil {
		last = 1 // that it happens at all is all there is to know
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.n[i].Add(1)
	if f.dir != "" && n <= last {
		if err := f.note(i); err != nil {
			panic(fmt.Errorf("counting the passages of faults.%d: %w", i, err))
		}
	}
	return n == last || e.During.Steps != nil
}

// note keeps a passage for the lives to come. A file that cannot be written is the machine's trouble, not the scenario's: at
// a passage of a rank the run fails.
func (f *faults) note(i int) error {
	file, err := os.OpenFile(f.file(i), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = file.Write([]byte{'.'})
		if closed := file.Close(); err == nil {
			err = closed
		}
	}
	return err
}

// act makes a rank fail.
func (f *faults) act(rank int, e *config.Injected) {
	switch e.Action {
	case "panic":
		panic(&FaultError{e.At})
	case "kill":
		f.kill()
	case "exit":
		f.exit(exitFault)
	case "hang":
		f.hang()
	case "slow":
		f.nap(time.Duration(e.Ms * float64(time.Millisecond)))
	case "enospc":
		f.fail(rank, syscall.ENOSPC)
	case "eio":
		f.fail(rank, syscall.EIO)
	}
}

func (f *faults) fail(rank int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disk[rank] = err
}

// onDisk is snapshot.Options.Hook of a rank: a passage in the middle of a snapshot, and the error that it meets.
func (f *faults) onDisk(rank int) func(point string, step uint32) error {
	return func(point string, step uint32) error {
		if point != snapshot.MidSnapshot {
			return nil // the rank itself comes by when the snapshot is durable
		}
		f.pass(rank, actors.Passage{Point: point, Step: int(step), Microbatch: -1})
		f.mu.Lock()
		defer f.mu.Unlock()
		err := f.disk[rank]
		delete(f.disk, rank)
		return err
	}
}

// ofProgram reports whether a fault is at a point of a rank's program.
func (f *faults) ofProgram() bool {
	for i := range f.list {
		_, pass := config.ParsePoint(f.list[i].At.Hook)
		if hook := f.list[i].At.Hook; pass || hook == config.GradReduce || hook == config.MidOptimizer {
			return true
		}
	}
	return false
}

// hook is actors.Job.Hook; nil: no rank is to fail.
func (f *faults) hook() func(rank int, at actors.Passage) {
	for i := range f.list {
		if f.list[i].OfRank() {
			return f.pass
		}
	}
	return nil
}
