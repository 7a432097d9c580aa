package snapshot

import (
	"bufio"
	"io"
	"path/filepath"

	"phalanx/internal/disk"
	"phalanx/recovery"
)

// Save writes the snapshot of a step in the background, behind those before it, and never waits: it returns false, since nothing
// is durable yet. The sections must not be changed until done is called, in another goroutine: with nil once the file is durable,
// with ErrSuperseded if others are rounder and waitingMax may wait, else with a *disk.WriteError, *FencedError or ErrClosed.
// A snapshot that failed has left nothing behind, or a whole file that nobody was told of. done must not call Close.
func (s *Store) Save(step uint32, sections [][]byte, done func(error)) (durable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		go done(ErrClosed)
		return false
	}
	s.queue = append(s.queue, task{step: step, sections: sections, done: done})
	s.supersede()
	s.wake.Signal()
	return false
}

// supersede gives up one of the snapshots that wait, if they are too many: the one that other ranks are most likely to give
// up too. Under mu.
func (s *Store) supersede() {
	var at []int // in the queue
	var steps []uint32
	for i, t := range s.queue {
		if !t.drop && !t.superseded {
			at, steps = append(at, i), append(steps, t.step)
		}
	}
	if len(steps) > waitingMax {
		t := &s.queue[at[recovery.LeastRound(steps)]]
		t.superseded, t.sections = true, nil
	}
}

// Drop removes the rank's files of steps before one, in the background, behind the snapshots that wait. What cannot be removed
// stays, and Options.Warn is told.
func (s *Store) Drop(before uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.queue = append(s.queue, task{step: before, drop: true})
		s.wake.Signal()
	}
}

// Close waits until everything that was asked for is done. Safe to call again.
func (s *Store) Close() {
	s.mu.Lock()
	s.closing = true
	s.wake.Signal()
	s.mu.Unlock()
	<-s.closed
}

// write is the goroutine that does what waits.
func (s *Store) write() {
	defer close(s.closed)
	for {
		t, ok := s.next()
		switch {
		case !ok:
			return
		case t.drop:
			s.drop(t.step)
		case t.superseded:
			t.done(ErrSuperseded)
		default:
			t.done(s.save(t.step, t.sections))
		}
	}
}

// next waits for a task; false: there will be none.
func (s *Store) next() (task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closing {
			return task{}, false
		}
		s.wake.Wait()
	}
	t := s.queue[0]
	s.queue[0] = task{}
	s.queue = s.queue[1:]
	return t, true
}

// bufferBytes is the writes that become one: a section of a few bytes is not worth a call.
const bufferBytes = 1 << 16

// save writes one file: aside, synced, fenced, renamed, and its folder synced.
func (s *Store) save(step uint32, sections [][]byte) error {
	head := Head{Build: s.o.Build, Rank: s.o.Rank, Step: step, Incarnation: s.o.Incarnation}
	path := filepath.Join(s.dir, name{s.o.Rank, step, s.o.Incarnation}.String())
	err := disk.ReplaceVia(s.o.Disk, path+asideSuffix, path, size(sections), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, bufferBytes)
		if err := encode(b, head, sections); err != nil {
			return err
		}
		return b.Flush()
	}, func() error { return s.mayAppear(path, step) })
	if err != nil {
		return err
	}
	return s.pass(path, AfterSnapshot, step)
}

// mayAppear is asked before a file gets its name.
func (s *Store) mayAppear(path string, step uint32) error {
	if err := s.pass(path, MidSnapshot, step); err != nil || s.o.Fence == nil {
		return err
	}
	if err := s.o.Fence(); err != nil {
		return &FencedError{Rank: s.o.Rank, Step: step, Incarnation: s.o.Incarnation, Err: err}
	}
	return nil
}

// pass is a point at which the rank may be made to fail.
func (s *Store) pass(path, point string, step uint32) error {
	if s.o.Hook == nil {
		return nil
	}
	if err := s.o.Hook(point, step); err != nil {
		return disk.Failed(path, point, 0, err)
	}
	return nil
}

// drop removes the rank's files of steps before one.
func (s *Store) drop(before uint32) {
	list, err := s.files()
	if err != nil {
		s.o.Warn(err)
	}
	for _, n := range list {
		if n.step >= before {
			break
		}
		path := filepath.Join(s.dir, n.String())
		if err := s.o.Disk.RemoveAll(path); err != nil {
			s.o.Warn(disk.Failed(path, "remove", 0, err))
		}
	}
}
