package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"phalanx/internal/disk"
)

// Files are the snapshots of a rank that are there, of all incarnations. Reading changes nothing.
type Files struct {
	dir string
	o   Options
}

// Read is the snapshots of a rank in a folder; of the options it needs Rank, Build, Disk and Warn.
func Read(dir string, o Options) Files {
	if o.Disk == nil {
		o.Disk = disk.OS{}
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	return Files{dir, o}
}

// files are the names of the rank's files: ascending steps, of one step the newest incarnation first.
func (s Files) files() ([]name, error) {
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
func (s Files) List() []uint32 {
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

// Load is the snapshot of a step, its sections one after the other, of the newest incarnation whose file is whole. The error is a
// *MissingError.
func (s Files) Load(step uint32) ([]byte, error) {
	f, err := s.newest(step)
	return f.body, err
}

// Sections is Load, section by section.
func (s Files) Sections(step uint32) ([][]byte, error) {
	f, err := s.newest(step)
	return f.sections, err
}

// newest is the whole file of a step that counts.
func (s Files) newest(step uint32) (file, error) {
	list, err := s.files()
	if err != nil {
		return file{}, err
	}
	var bad error
	for _, n := range list {
		if n.step != step {
			continue
		}
		f, err := s.read(n)
		if err == nil {
			return f, nil
		}
		s.o.Warn(err)
		bad = errors.Join(bad, err)
	}
	return file{}, &MissingError{Dir: s.dir, Rank: s.o.Rank, Step: step, Bad: bad}
}

// read is a file that is what its name says. The error is a *FileError.
func (s Files) read(n name) (file, error) {
	path := filepath.Join(s.dir, n.String())
	b, err := s.o.Disk.ReadFile(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return file{}, &FileError{Path: path, Err: err}
	}
	f, err := decode(b)
	want := Head{Build: s.o.Build, Rank: n.rank, Step: n.step, Incarnation: n.incarnation}
	switch {
	case err != nil:
	case f.head.Build != want.Build:
		err = fmt.Errorf("found build %016x, expected %016x: it is of another build of the program or another scenario", f.head.Build, want.Build)
	case f.head != want:
		err = fmt.Errorf("found one of rank %d, step %d, incarnation %d, expected rank %d, step %d, incarnation %d", f.head.Rank, f.head.Step, f.head.Incarnation, n.rank, n.step, n.incarnation)
	}
	if err != nil {
		return file{}, &FileError{Path: path, Err: err}
	}
	return f, nil
}
