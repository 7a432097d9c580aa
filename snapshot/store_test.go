package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/internal/disk"
	"phalanx/internal/disk/faulty"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(saverDir); dir != "" {
		saver(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// open opens a store that the test closes.
func open(t *testing.T, dir string, o Options) (*Store, *[]error) {
	t.Helper()
	var warnings []error
	if o.Warn == nil {
		o.Warn = func(err error) { warnings = append(warnings, err) }
	}
	s, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, &warnings
}

// saved saves a snapshot and waits for its end.
func saved(s *Store, step uint32, sections ...[]byte) error {
	done := make(chan error, 1)
	s.Save(step, sections, func(err error) { done <- err })
	return <-done
}

func names(t *testing.T, dir string) []string {
	list, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	return list
}

func TestWhatIsSavedCanBeLoaded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, warnings := open(t, dir, Options{Rank: 3, Incarnation: 1, Build: 9})
	require.Empty(t, s.List())
	big := bytes.Repeat([]byte{1, 2, 3}, 1<<16)
	require.NoError(t, saved(s, 4, big, nil, []byte("edges")))
	require.NoError(t, saved(s, 2, []byte("two")))
	other, _ := open(t, dir, Options{Rank: 2, Incarnation: 1, Build: 9})
	require.NoError(t, saved(other, 7, []byte("other")))

	require.Equal(t, []uint32{2, 4}, s.List())
	sections, err := s.Sections(4)
	require.NoError(t, err)
	require.Equal(t, [][]byte{big, {}, []byte("edges")}, sections)
	whole, err := s.Load(4)
	require.NoError(t, err)
	require.Equal(t, append(slices.Clone(big), "edges"...), whole)
	require.Equal(t, []string{"rank-00002.step-0000000007.inc-00001.snapshot", "rank-00003.step-0000000002.inc-00001.snapshot",
		"rank-00003.step-0000000004.inc-00001.snapshot"}, names(t, dir))

	s.Drop(4)
	require.NoError(t, saved(s, 6, []byte("six")), "a snapshot behind a removal comes after it")
	require.Equal(t, []uint32{4, 6}, s.List())
	require.Equal(t, []uint32{7}, other.List(), "those of other ranks stay")
	_, err = s.Load(2)
	var missing *MissingError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "has no snapshot of rank 3 at step 2")
	require.Empty(t, *warnings)
}

// The newest incarnation's file counts, an earlier one's serves where that is damaged; a live writer's half file is let alone.
func TestIncarnations(t *testing.T) {
	dir := t.TempDir()
	first, _ := open(t, dir, Options{Incarnation: 1})
	require.NoError(t, saved(first, 5, []byte("of 1")))
	for _, inc := range []int{1, 2, 3} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank-00000.step-0000000006.inc-%05d.snapshot.tmp", inc)), []byte("half"), 0o600))
	}
	second, warnings := open(t, dir, Options{Incarnation: 2})
	require.NoError(t, saved(second, 5, []byte("of 2")))
	require.Equal(t, []string{"rank-00000.step-0000000005.inc-00001.snapshot", "rank-00000.step-0000000005.inc-00002.snapshot",
		"rank-00000.step-0000000006.inc-00002.snapshot.tmp", "rank-00000.step-0000000006.inc-00003.snapshot.tmp"}, names(t, dir))
	sections, err := second.Sections(5)
	require.NoError(t, err)
	require.Equal(t, "of 2", string(sections[0]))

	path := filepath.Join(dir, "rank-00000.step-0000000005.inc-00002.snapshot")
	require.NoError(t, os.Truncate(path, 40))
	sections, err = second.Sections(5)
	require.NoError(t, err)
	require.Equal(t, "of 1", string(sections[0]))
	require.Equal(t, []uint32{5}, second.List())
	require.Len(t, *warnings, 2)
	require.ErrorContains(t, (*warnings)[0], path+" is no whole snapshot: at byte 40: found 0 bytes, expected a section of 4")
}

// Every single flipped bit and every cut is seen.
func TestDamageIsSeen(t *testing.T) {
	dir := t.TempDir()
	d := &faulty.Disk{}
	s, warnings := open(t, dir, Options{Rank: 1, Incarnation: 2, Build: 3, Disk: d})
	require.NoError(t, saved(s, 4, []byte("local"), []byte("groups")))
	path := filepath.Join(dir, names(t, dir)[0])
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.EqualValues(t, len(whole), size([][]byte{[]byte("local"), []byte("groups")}))
	for bit := range len(whole) * 8 {
		d.Change(faulty.Faults{RotBit: int64(bit) + 1})
		_, err := s.Sections(4)
		var f *FileError
		require.ErrorAs(t, err, &f, "bit %d", bit)
		require.Empty(t, s.List())
	}
	require.Len(t, *warnings, 2*8*len(whole))
	d.Change(faulty.Faults{})
	for n := range whole {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		require.Empty(t, s.List(), "cut to %d bytes", n)
	}
	require.NoError(t, os.WriteFile(path, append(slices.Clone(whole), 0), 0o600))
	require.Empty(t, s.List())
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.Equal(t, []uint32{4}, s.List())
}

// A disk that tears files and says nothing, one that gives another file's bytes, and files of another build.
func TestWhatIsNoSnapshotIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	d := &faulty.Disk{}
	s, warnings := open(t, dir, Options{Incarnation: 1, Build: 3, Disk: d})
	require.NoError(t, saved(s, 4, []byte("four")))
	d.Change(faulty.Faults{TearAt: 50})
	require.NoError(t, saved(s, 6, bytes.Repeat([]byte("six"), 100)))
	require.Equal(t, []uint32{4}, s.List())
	require.ErrorContains(t, (*warnings)[0], "step-0000000006.inc-00001.snapshot is no whole snapshot")

	d.Change(faulty.Faults{StaleFor: filepath.Join(dir, names(t, dir)[0])})
	require.NoError(t, saved(s, 8, []byte("eight")))
	_, err := s.Sections(8)
	require.ErrorContains(t, err, "found one of rank 0, step 4, incarnation 1, expected rank 0, step 8, incarnation 1")

	another, warnings := open(t, dir, Options{Incarnation: 2, Build: 4})
	require.Empty(t, another.List())
	require.ErrorContains(t, (*warnings)[0], "found build 0000000000000003, expected 0000000000000004: it is of another build of the program or another scenario")
}

// A failure of the disk leaves nothing behind and says what to do; the next snapshot is written as if nothing had been.
func TestFailuresOfTheDisk(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults faulty.Faults
		want   error
		text   string
		left   int
	}{
		{"full", faulty.Faults{Full: true}, syscall.ENOSPC, "snapshot: write: no space left on device: the disk is full, 44 bytes are needed", 0},
		{"sync", faulty.Faults{SyncEIO: true}, syscall.EIO, "snapshot: sync: input/output error", 0},
		{"folder", faulty.Faults{DirEIO: true}, syscall.EIO, "snapshot: sync folder: input/output error", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, d := t.TempDir(), &faulty.Disk{}
			s, _ := open(t, dir, Options{Incarnation: 1, Disk: d})
			d.Change(c.faults)
			err := saved(s, 2, nil)
			var we *disk.WriteError
			require.ErrorAs(t, err, &we)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.Len(t, names(t, dir), c.left)
			d.Change(faulty.Faults{})
			require.NoError(t, saved(s, 4, []byte("x")))
			require.Contains(t, s.List(), uint32(4))
		})
	}
}

// A writer that may write no more withdraws what it has written.
func TestFence(t *testing.T) {
	dir := t.TempDir()
	gone := errors.New("incarnation 2 lives")
	fenced := false
	var passed []string
	s, _ := open(t, dir, Options{Rank: 7, Incarnation: 1, Fence: func() error {
		passed = append(passed, "fence")
		if fenced {
			return gone
		}
		return nil
	}, Hook: func(point string, _ uint32) error {
		passed = append(passed, point)
		return nil
	}})
	require.NoError(t, saved(s, 1, nil))
	require.Equal(t, []string{MidSnapshot, "fence", AfterSnapshot}, passed)
	fenced = true
	err := saved(s, 2, nil)
	require.ErrorIs(t, err, gone)
	require.ErrorContains(t, err, "the snapshot of rank 7 at step 2 by incarnation 1 is withdrawn: incarnation 2 lives")
	require.Equal(t, []uint32{1}, s.List())
	require.Len(t, names(t, dir), 1)
}

// While one snapshot is written two wait; of three the least round step is left out. Nobody waits for the disk.
func TestQueueIsBounded(t *testing.T) {
	dir := t.TempDir()
	begun, goOn := make(chan bool), make(chan bool)
	first := true
	s, _ := open(t, dir, Options{Incarnation: 1, Hook: func(point string, _ uint32) error {
		if first && point == MidSnapshot {
			first = false
			begun <- true
			<-goOn
		}
		return nil
	}})
	type end struct {
		step uint32
		err  error
	}
	ends := make(chan end, 10)
	save := func(step uint32) { s.Save(step, nil, func(err error) { ends <- end{step, err} }) }
	save(1)
	<-begun
	for step := uint32(2); step <= 5; step++ {
		save(step)
	}
	s.Drop(4)
	save(6)
	close(goOn)
	s.Close()
	save(7)
	var got []end
	for range 7 {
		got = append(got, <-ends)
	}
	require.Equal(t, []end{{1, nil}, {2, ErrSuperseded}, {3, ErrSuperseded}, {4, nil}, {5, ErrSuperseded}, {6, nil}, {7, ErrClosed}}, got)
	require.Equal(t, []uint32{4, 6}, s.List())
	s.Close()
}

// The hook stands for a disk that fails at that point.
func TestHookFails(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, Options{Incarnation: 1, Hook: func(point string, _ uint32) error {
		if point == MidSnapshot {
			return syscall.ENOSPC
		}
		return nil
	}})
	require.ErrorIs(t, saved(s, 3, []byte("x")), syscall.ENOSPC)
	require.Empty(t, names(t, dir))
}
