package snapshot

import (
	"fmt"
	"path/filepath"
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
	Hook func(point string, step uint32) error
	Keep bool            // Commit removes nothing: a recording wants all
	Disk Disk            // nil: that of this machine
	Warn func(err error) // told of every file that is left out, a *FileError; nil: nobody is
}

// Store keeps the snapshots of one incarnation of a rank, and reads those of all. It may be used from several goroutines.
type Store struct {
	Files

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
	s := &Store{Files: Read(dir, o), closed: make(chan struct{})}
	if err := s.o.Disk.MkdirAll(dir); err != nil {
		return nil, disk.Failed(dir, "create folder", 0, err)
	}
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
