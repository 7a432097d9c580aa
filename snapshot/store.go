package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"phalanx/internal/disk"
)

// waitingMax bounds the snapshots of a rank that wait to be written: beside the one that is being written they hold as many
// copies of the rank's state.
const waitingMax = 2

// asideSuffix marks a file that is being written.
const asideSuffix = ".tmp"

// Points at which Options.Hook is called.
const (
	MidSnapshot   = "mid-snapshot"   // the file is whole, synced, and has not its name yet
	AfterSnapshot = "after-snapshot" // the file is durable, and nobody has been told
)

// Disk is where snapshots are: disk.OS, or one of a test.
type Disk interface {
	disk.Disk
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) (names []string, err error) // of what is in a folder
}

// Options say whose snapshots a store keeps.
type Options struct {
	Rank        int
	Incarnation uint32
	Build       uint64 // as in the headers of the rank's messages: files of another build are left out
	// Fence is asked when a file is whole and before it gets its name; an error withdraws it. nil: nobody is asked.
	Fence func() error
	// Hook is called at points at which a rank may be made to fail, in the goroutine that writes; an error there is one of
	// the disk. nil: nobody looks.
	Hook func(point string) error
	Disk Disk            // nil: that of this machine
	Warn func(err error) // told of every file that is left out, a *FileError; nil: nobody is
}

// Store keeps the snapshots of one incarnation of a rank, and reads those of all. It may be used from several goroutines.
type Store struct {
	dir string
	o   Options

	mu      sync.Mutex
	wake    *sync.Cond
	queue   []task
	closing bool
	closed  chan struct{}
}

// task is something to be done in order.
type task struct {
	step       uint32
	sections   [][]byte
	done       func(error)
	superseded bool
	drop       bool // remove the files before step
}

// Open opens the folder of a rank's snapshots and makes it if it is not there. Several ranks may share a folder. What killed
// writers of this rank have left half-written is removed.
func Open(dir string, o Options) (*Store, error) {
	if o.Disk == nil {
		o.Disk = disk.OS{}
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	if err := o.Disk.MkdirAll(dir); err != nil {
		return nil, disk.Failed(dir, "create folder", 0, err)
	}
	s := &Store{dir: dir, o: o, closed: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	if err := s.tidy(); err != nil {
		return nil, err
	}
	go s.write()
	return s, nil
}

// tidy removes the rank's half-written files of earlier incarnations.
func (s *Store) tidy() error {
	names, err := s.o.Disk.ReadDir(s.dir)
	if err != nil {
		return disk.Failed(s.dir, "read", 0, err)
	}
	for _, name := range names {
		base, half := strings.CutSuffix(name, asideSuffix)
		f, ok := parse(base)
		if !half || !ok || f.rank != s.o.Rank || f.incarnation >= s.o.Incarnation {
			continue
		}
		if err := s.o.Disk.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			return disk.Failed(filepath.Join(s.dir, name), "remove", 0, err)
		}
	}
	return nil
}

// name is what a file's name says.
type name struct {
	rank              int
	step, incarnation uint32
}

const nameFormat = "rank-%05d.step-%010d.inc-%05d.snapshot"

func (n name) String() string { return fmt.Sprintf(nameFormat, n.rank, n.step, n.incarnation) }

// parse reads the name of a file.
func parse(base string) (n name, ok bool) {
	if _, err := fmt.Sscanf(base, nameFormat, &n.rank, &n.step, &n.incarnation); err != nil {
		return name{}, false
	}
	return n, n.String() == base
}

// files are the names of the rank's files: ascending steps, of one step the newest incarnation first.
func (s *Store) files() ([]name, error) {
	names, err := s.o.Disk.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the snapshots of rank %d: %w", s.o.Rank, err)
	}
	var list []name
	for _, base := range names {
		if n, ok := parse(base); ok && n.rank == s.o.Rank {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b name) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(b.incarnation, a.incarnation))
	})
	return list, nil
}

// List is the steps of which there is a whole snapshot, ascending. Every file is read: Options.Warn is told of those that are left
// out. A folder that cannot be read has none, and Warn is told.
func (s *Store) List() []uint32 {
	list, err := s.files()
	if err != nil {
		s.o.Warn(err)
	}
	var steps []uint32
	for _, n := range list {
		if len(steps) > 0 && steps[len(steps)-1] == n.step {
			continue
		}
		if _, err := s.read(n); err != nil {
			s.o.Warn(err)
			continue
		}
		steps = append(steps, n.step)
	}
	return steps
}

// Load is the sections of the snapshot of a step, of the newest incarnation whose file is whole. The error is a *MissingError.
func (s *Store) Load(step uint32) (sections [][]byte, err error) {
	list, err := s.files()
	if err != nil {
		return nil, err
	}
	var bad error
	for _, n := range list {
		if n.step != step {
			continue
		}
		sections, err := s.read(n)
		if err == nil {
			return sections, nil
		}
		s.o.Warn(err)
		bad = errors.Join(bad, err)
	}
	return nil, &MissingError{Dir: s.dir, Rank: s.o.Rank, Step: step, Bad: bad}
}

// read is the sections of a file that is what its name says. The error is a *FileError.
func (s *Store) read(n name) ([][]byte, error) {
	path := filepath.Join(s.dir, n.String())
	b, err := s.o.Disk.ReadFile(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, &FileError{Path: path, Err: err}
	}
	h, sections, err := decode(b)
	want := Head{Build: s.o.Build, Rank: n.rank, Step: n.step, Incarnation: n.incarnation}
	switch {
	case err != nil:
	case h.Build != want.Build:
		err = fmt.Errorf("found build %016x, expected %016x: it is of another build of the program or another scenario", h.Build, want.Build)
	case h != want:
		err = fmt.Errorf("found one of rank %d, step %d, incarnation %d, expected rank %d, step %d, incarnation %d", h.Rank, h.Step, h.Incarnation, n.rank, n.step, n.incarnation)
	}
	if err != nil {
		return nil, &FileError{Path: path, Err: err}
	}
	return sections, nil
}
