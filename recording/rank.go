package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"phalanx/internal/disk"
	"phalanx/messages"
	"phalanx/snapshot"
)

// Options say whose recording it is.
type Options struct {
	Rank  int
	World int // peers from it on are no ranks: what goes to them is not recorded
	Build uint64
	// Elsewhere says that snapshots are kept by somebody else, where Run.Snapshots says.
	Elsewhere bool
	// Passing records lives only until they are past the death of the one before, see Passed. They begin with their state.
	Passing bool
	Disk    snapshot.Disk // nil: that of this machine
	// Alarm is told once when the recording ends early, because the disk fails; the run goes on. nil: nobody is.
	Alarm func(error)
}

// Rank records one rank over its lives. All methods may be called from several goroutines, and on nil, which records nothing.
type Rank struct {
	dir string
	o   Options

	mu        sync.Mutex
	w         *writer // of this life; nil: there is none
	snapshots *snapshot.Store
	failed    bool
	stats     Stats
}

// Stats are what recording has cost.
type Stats struct {
	Bytes int64 // written, snapshots included
	Ns    int64 // nanoseconds that the rank was held up; the disk is written in the background
}

// New records a rank of a run that Create has begun.
func New(dir string, o Options) *Rank {
	if o.Disk == nil {
		o.Disk = disk.OS{}
	}
	if o.Alarm == nil {
		o.Alarm = func(error) {}
	}
	return &Rank{dir: dir, o: o}
}

// do is a call that records: one at a time, timed, and nothing after the first failure.
func (r *Rank) do(call func() error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed {
		return
	}
	from := time.Now()
	if err := call(); err != nil {
		r.failed = true
		r.o.Alarm(fmt.Errorf("the recording of rank %d ends here: %w", r.o.Rank, err))
	}
	r.stats.Ns += time.Since(from).Nanoseconds()
}

// Life begins a new life of the rank at a state; what earlier ones have recorded stays.
func (r *Rank) Life(incarnation uint32, from snapshot.State) {
	step := from.At.Step
	r.do(func() error {
		if err := r.close(); err != nil {
			return err
		}
		path := filepath.Join(r.dir, fmt.Sprintf(fileFormat, r.o.Rank, incarnation))
		f, err := r.o.Disk.Create(path)
		if err != nil {
			return disk.Failed(path, "create", 0, err)
		}
		r.w = newWriter(path, f)
		if r.o.Elsewhere {
			return r.write(head{r.o.Build, uint32(r.o.Rank), incarnation, step}.encode(), nil)
		}
		r.snapshots, err = snapshot.Open(filepath.Join(r.dir, snapshotsDir), snapshot.Options{Rank: r.o.Rank, Incarnation: incarnation, Build: r.o.Build, Disk: r.o.Disk})
		if err := errors.Join(err, r.write(head{r.o.Build, uint32(r.o.Rank), incarnation, step}.encode(), nil)); err != nil {
			return err
		}
		if r.o.Passing && step > 0 { // nobody has kept it here yet
			r.save(step, from)
		}
		return nil
	})
}

// Passed says that this life is past the death of the one before it: its recording, if it was for that, goes, and that of earlier
// lives, which it could not be joined with later.
func (r *Rank) Passed() {
	r.do(func() error {
		if !r.o.Passing || r.w == nil {
			return nil
		}
		if err := r.close(); err != nil {
			return err
		}
		names, err := r.o.Disk.ReadDir(r.dir)
		if err != nil {
			return disk.Failed(r.dir, "read", 0, err)
		}
		for _, name := range names {
			if _, ok := lifeIn(name, r.o.Rank); !ok {
				continue
			}
			if err := r.o.Disk.RemoveAll(filepath.Join(r.dir, name)); err != nil {
				return disk.Failed(filepath.Join(r.dir, name), "remove", 0, err)
			}
		}
		return nil
	})
}

// Flush waits until what was recorded is with the system.
func (r *Rank) Flush() { r.do(r.flush) }

// Received records a message that is handed to the rank's groups. The payload must not be changed any more.
func (r *Rank) Received(h messages.Header, payload []byte) {
	r.do(func() error {
		if int(h.Src) >= r.o.World {
			return nil
		}
		return r.write(frame(received, Canonical(h, payload, h.Log)), payload)
	})
}

// Sent records a message that the rank sends, or would send if its peer did not have it. log is its number.
func (r *Rank) Sent(h messages.Header, payload []byte, log uint64) {
	r.do(func() error {
		if int(h.Dst) >= r.o.World {
			return nil
		}
		return r.write(frame(sent, Canonical(h, payload, log)), nil)
	})
}

// Snapshot keeps the rank's state at the beginning of a step, in the background. State must not be changed any more. What was
// recorded before is with the system when it returns: a later life that begins here records what follows, not what was before.
func (r *Rank) Snapshot(step uint32, s snapshot.State) {
	r.do(func() error {
		if r.snapshots == nil {
			return r.flush()
		}
		r.save(step, s)
		return r.flush()
	})
}

func (r *Rank) save(step uint32, s snapshot.State) {
	sections := s.Sections()
	r.snapshots.Save(step, sections, func(err error) {
		switch {
		case err == nil:
			r.count(sections)
		case errors.Is(err, snapshot.ErrSuperseded), errors.Is(err, snapshot.ErrClosed): // a replay begins earlier
		default:
			r.o.Alarm(fmt.Errorf("the recording of rank %d has no snapshot of step %d: %w", r.o.Rank, step, err))
		}
	})
}

func (r *Rank) count(sections [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range sections {
		r.stats.Bytes += int64(len(s))
	}
}

// Begun notes that so many steps are done: the next one begins, or it was the last.
func (r *Rank) Begun(step uint32) {
	r.do(func() error { return r.write(guarded(begun, binary.LittleEndian.AppendUint32(nil, step)), nil) })
}

// Weights notes the hash of the rank's weights after the last step.
func (r *Rank) Weights(sum [32]byte) {
	r.do(func() error { return r.write(guarded(weights, sum[:]), nil) })
}

// Done notes that the programs of the rank have ended, after the steps that Begun was told of last.
func (r *Rank) Done() {
	r.do(func() error { return errors.Join(r.write(guarded(done, nil), nil), r.flush()) })
}

// Close writes what is left, the snapshots that wait too. What comes later is not recorded.
func (r *Rank) Close() {
	r.do(r.close)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.close() // after a failure, which has been told
}

// Stats are the cost so far.
func (r *Rank) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// frame is the front of a message's record.
func frame(kind byte, h messages.Header) []byte {
	b := make([]byte, 1+messages.HeaderSize)
	b[0] = kind
	h.Encode(b[1:])
	return b
}

// write appends to the file of this life. Under mu, as are the next two.
func (r *Rank) write(front, payload []byte) error {
	if r.w == nil {
		return nil
	}
	r.stats.Bytes += int64(len(front) + len(payload))
	return r.w.add(front, payload)
}

func (r *Rank) flush() error {
	if r.w == nil {
		return nil
	}
	return r.w.drain()
}

// close ends a life's file and its snapshots.
func (r *Rank) close() (err error) {
	if r.w != nil {
		err = r.w.close()
		r.w = nil
	}
	if s := r.snapshots; s != nil {
		r.snapshots = nil
		r.mu.Unlock() // the end of a snapshot counts its bytes
		s.Close()
		r.mu.Lock()
	}
	return err
}
