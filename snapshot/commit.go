package snapshot

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"phalanx/internal/disk"
)

// The generation that a rank knows of is a number in a file beside its snapshots. It is not synced: after a power cut it may
// be an earlier one, and a rank that begins too early is told so by its peers and goes on from a later snapshot.

func (s *Store) committedPath() string {
	return filepath.Join(s.dir, fmt.Sprintf("rank-%05d.committed", s.o.Rank))
}

// Begin is where the rank begins: the step that it knows to be committed, the sections of its snapshot (nil: step 0, the
// beginning of the run), and the steps of all whole snapshots. Where the snapshot of that step is gone a later commit has
// removed it, and the rank begins with the earliest that is left.
func (s *Store) Begin() (step uint32, sections [][]byte, durable []uint32, err error) {
	durable = s.List()
	step = s.committed()
	if step > 0 && !slices.Contains(durable, step) {
		later := slices.IndexFunc(durable, func(have uint32) bool { return have > step })
		if later < 0 {
			return 0, nil, nil, &MissingError{Dir: s.dir, Rank: s.o.Rank, Step: step}
		}
		step = durable[later]
	}
	if step == 0 {
		return 0, nil, durable, nil
	}
	sections, err = s.Sections(step)
	return step, sections, durable, err
}

// committed is the number in the file; 0 if there is none, or it is none.
func (s *Store) committed() uint32 {
	b, err := s.o.Disk.ReadFile(s.committedPath())
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		s.o.Warn(&FileError{Path: s.committedPath(), Err: fmt.Errorf("found %q, expected the number of a step", b)})
		return 0
	}
	return uint32(n)
}

// Commit notes that all ranks can go back to a step, and removes the files of earlier ones in the background.
func (s *Store) Commit(step uint32) error {
	path := s.committedPath()
	f, err := s.o.Disk.Create(path + asideSuffix)
	if err != nil {
		return disk.Failed(path, "create", 0, err)
	}
	_, err = io.WriteString(f, strconv.FormatUint(uint64(step), 10)+"\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = s.o.Disk.Rename(path+asideSuffix, path)
	}
	if err != nil {
		return disk.Failed(path, "write", 0, err)
	}
	if !s.o.Keep {
		s.Drop(step)
	}
	return nil
}
