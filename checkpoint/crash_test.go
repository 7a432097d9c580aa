package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/disk"
	"phalanx/train"
)

// change is one change that a save made to the disk. Paths are below the root.
type change struct {
	kind     string // create, write, sync, mkdir, rename, remove, syncdir
	path, to string
	data     []byte
}

// journal is the disk of a machine that will lose its power: everything is done, and noted.
type journal struct {
	hasty
	root    string
	changes []change
}

func (j *journal) note(kind, path string) *change {
	rel, err := filepath.Rel(j.root, path)
	if err != nil {
		panic(err)
	}
	j.changes = append(j.changes, change{kind: kind, path: rel})
	return &j.changes[len(j.changes)-1]
}

func (j *journal) Create(path string) (disk.OutFile, error) {
	j.note("create", path)
	f, err := j.hasty.Create(path)
	return noted{f, j, path}, err
}

func (j *journal) MkdirAll(path string) error {
	if isDir(path) {
		return nil
	}
	j.note("mkdir", path)
	j.note("syncdir", filepath.Dir(path))
	return j.hasty.MkdirAll(path)
}

func (j *journal) Rename(from, to string) error {
	rel, err := filepath.Rel(j.root, to)
	j.note("rename", from).to = rel
	return errors.Join(err, j.hasty.Rename(from, to))
}

func (j *journal) RemoveAll(path string) error {
	j.note("remove", path)
	return j.hasty.RemoveAll(path)
}

func (j *journal) SyncDir(path string) error {
	j.note("syncdir", path)
	return j.hasty.SyncDir(path)
}

type noted struct {
	disk.OutFile
	j    *journal
	path string
}

func (f noted) Write(b []byte) (int, error) {
	f.j.note("write", f.path).data = append([]byte(nil), b...)
	return f.OutFile.Write(b)
}

func (f noted) Sync() error {
	f.j.note("sync", f.path)
	return f.OutFile.Sync()
}

// image puts into dir what a disk holds after a crash: the first n changes, of which those that were not synced by then
// are lost where lost says so. Names that are kept change in their order.
func image(t *testing.T, dir string, all []change, n int, lost func() bool) {
	names, data := durable(all[:n])
	files, content := map[string]int{}, map[int][]byte{} // a file is the change that created it
	written := map[string]int{}                          // the file that is open under a path, kept or not
	below := func(path, above string) bool { return path == above || strings.HasPrefix(path, above+"/") }
	remove := func(path string) {
		for name := range files {
			if below(name, path) {
				delete(files, name)
			}
		}
	}
	for i, c := range all[:n] {
		keep := names[i] || c.kind != "write" && !lost()
		switch {
		case c.kind == "create":
			written[c.path] = i
			if keep {
				files[c.path] = i
			}
		case c.kind == "write" && (data[i] || !lost()):
			content[written[c.path]] = append(content[written[c.path]], c.data...)
		case c.kind == "rename" && keep:
			moved := map[string]int{}
			for name, file := range files {
				if below(name, c.path) {
					moved[c.to+strings.TrimPrefix(name, c.path)] = file
				}
			}
			if len(moved) > 0 {
				remove(c.path)
				remove(c.to)
			}
			maps.Copy(files, moved)
		case c.kind == "remove" && keep:
			remove(c.path)
		}
	}
	for name, file := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content[file], 0o600))
	}
}

// durable says which changes a later sync has made last.
func durable(all []change) (names, data []bool) {
	names, data = make([]bool, len(all)), make([]bool, len(all))
	for i, c := range all {
		for k := range all[:i] {
			b := all[k]
			switch {
			case c.kind == "sync" && b.kind == "write" && b.path == c.path:
				data[k] = true
			case c.kind == "syncdir" && b.kind != "write" && (filepath.Dir(b.path) == c.path || b.kind == "rename" && filepath.Dir(b.to) == c.path):
				names[k] = true
			}
		}
	}
	return names, data
}

// settled says that every change is on the disk for good.
func settled(all []change) bool {
	names, data := durable(all)
	for i, c := range all {
		if c.kind == "write" && !data[i] || c.kind != "write" && c.kind != "sync" && c.kind != "syncdir" && !names[i] {
			return false
		}
	}
	return true
}

// versions are the tensors of the two checkpoints of the crash tests.
func versions() (first, second []wholeTensor) {
	return []wholeTensor{newWhole("a", 1, 8, 4), newWhole("b", 2, 6)}, []wholeTensor{newWhole("a", 3, 8, 4), newWhole("b", 4, 6)}
}

var cuts = []layoutOf{{0, 2, []int{7, 16}}, {0, 1, []int{6}}}

// TestCrashAnywhere: whatever a crash leaves of a save, the newest checkpoint is the former one or the new one, whole; a
// run that starts there puts the rest away and can save again. The new one is of a later or of the same iteration.
func TestCrashAnywhere(t *testing.T) {
	first, second := versions()
	for _, iteration := range []int{20, 10} {
		j := &journal{root: t.TempDir()}
		_, err := saveTensors(t, j, j.root, train.Position{Iteration: 10}, 16, first, cuts)
		require.NoError(t, err)
		before := len(j.changes)
		_, err = saveTensors(t, j, j.root, train.Position{Iteration: iteration}, 16, second, cuts)
		require.NoError(t, err)
		require.NoError(t, Prune(j, j.root, iteration, 1, ""))
		require.Greater(t, len(j.changes), before+15, "the journal sees the save")

		random := rand.New(rand.NewPCG(2, uint64(iteration)))
		type mode struct {
			name string
			lost func() bool
		}
		modes := []mode{{"written through", func() bool { return false }}, {"unsynced lost", func() bool { return true }}}
		for i := range 12 {
			modes = append(modes, mode{fmt.Sprintf("some lost %d", i), func() bool { return random.IntN(4) == 0 }})
		}
		old, new := 0, 0
		for n := before; n <= len(j.changes); n++ {
			for _, m := range modes {
				how, lost := m.name, m.lost
				if strings.HasPrefix(how, "some") && settled(j.changes[:n]) {
					continue
				}
				dir := t.TempDir()
				image(t, dir, j.changes, n, lost)
				what := fmt.Sprintf("iteration %d, %s, after %d of %d changes", iteration, how, n-before, len(j.changes)-before)
				if newest := requireOneOf(t, dir, first, second, what); newest {
					new++
				} else {
					old++
					require.Less(t, n, len(j.changes), what)
				}
				if strings.HasPrefix(how, "some") {
					continue
				}
				require.NoError(t, Tidy(hasty{}, dir))
				requireOneOf(t, dir, first, second, what+", tidied")
				requireNoWaste(t, dir, what)
				_, err := saveTensors(t, hasty{}, dir, train.Position{Iteration: 30}, 16, second, cuts)
				require.NoError(t, err, what)
				requireTensors(t, newest(t, dir), second)
			}
		}
		require.Greater(t, old, 50)
		require.Greater(t, new, 8)
	}
}

func newest(t *testing.T, dir string) string {
	path, err := Latest(dir)
	require.NoError(t, err)
	return path
}

// requireOneOf requires the newest checkpoint to be one of two, whole; it says whether it is the second.
func requireOneOf(t *testing.T, dir string, first, second []wholeTensor, what string) bool {
	s, err := OpenSharded(newest(t, dir))
	require.NoError(t, err, what)
	defer s.Close()
	value, err := s.Float64s("a")
	require.NoError(t, err, what)
	if value[0] == float64(first[0].data[0]) {
		requireTensors(t, s.Path(), first)
		return false
	}
	requireTensors(t, s.Path(), second)
	return true
}

func requireNoWaste(t *testing.T, dir, what string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, e.IsDir() && (strings.HasSuffix(e.Name(), asideSuffix) || strings.HasSuffix(e.Name(), oldSuffix)), "%s: %s is left", what, e.Name())
	}
}

// failing is a disk that fails at its n-th change, counted from 0, and works before and after.
type failing struct {
	hasty
	n   *int
	err error
}

func (d failing) fails() error {
	if *d.n--; *d.n == -1 {
		return d.err
	}
	return nil
}

func (d failing) Create(path string) (disk.OutFile, error) {
	if err := d.fails(); err != nil {
		return nil, err
	}
	f, err := d.hasty.Create(path)
	return failingFile{f, d}, err
}

func (d failing) MkdirAll(path string) error { return errors.Join(d.fails(), d.hasty.MkdirAll(path)) }
func (d failing) SyncDir(path string) error  { return errors.Join(d.fails(), d.hasty.SyncDir(path)) }

func (d failing) Rename(from, to string) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.hasty.Rename(from, to)
}

func (d failing) RemoveAll(path string) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.hasty.RemoveAll(path)
}

type failingFile struct {
	disk.OutFile
	d failing
}

func (f failingFile) Write(b []byte) (int, error) {
	if err := f.d.fails(); err != nil {
		n, _ := f.OutFile.Write(b[:len(b)/2])
		return n, err
	}
	return f.OutFile.Write(b)
}

func (f failingFile) Sync() error  { return errors.Join(f.d.fails(), f.OutFile.Sync()) }
func (f failingFile) Close() error { return errors.Join(f.OutFile.Close(), f.d.fails()) }

var _ io.Writer = failingFile{}

// TestDiskFailsAnywhere: a disk that refuses one change costs the checkpoint at most, never the former one, and the next
// one is written.
func TestDiskFailsAnywhere(t *testing.T) {
	first, second := versions()
	for _, iteration := range []int{20, 10} {
		refused, kept := 0, 0
		for n := 0; ; n++ {
			dir := t.TempDir()
			_, err := saveTensors(t, hasty{}, dir, train.Position{Iteration: 10}, 16, first, cuts)
			require.NoError(t, err)
			left := n
			_, err = saveTensors(t, failing{n: &left, err: syscall.ENOSPC}, dir, train.Position{Iteration: iteration}, 16, second, cuts)
			what := fmt.Sprintf("iteration %d, change %d fails", iteration, n)
			if left >= 0 {
				require.NoError(t, err)
				break // beyond the last change
			}
			if err != nil {
				refused++
				var we *disk.WriteError
				require.ErrorAs(t, err, &we, what)
				require.ErrorContains(t, err, "the disk is full", what)
			} else {
				kept++ // only waste was not removed
			}
			requireOneOf(t, dir, first, second, what)
			_, err = saveTensors(t, hasty{}, dir, train.Position{Iteration: 30}, 16, second, cuts)
			require.NoError(t, err, what)
			requireTensors(t, newest(t, dir), second)
		}
		require.Greater(t, refused, 15)
		require.LessOrEqual(t, kept, 2)
	}
}

// hasty is a disk without power cuts: it does not wait for any sync.
type hasty struct{ disk.OS }

func (d hasty) Create(path string) (disk.OutFile, error) {
	f, err := d.OS.Create(path)
	return hastyFile{f}, err
}

func (hasty) MkdirAll(path string) error { return os.MkdirAll(path, 0o700) }
func (hasty) SyncDir(string) error       { return nil }

type hastyFile struct{ disk.OutFile }

func (hastyFile) Sync() error { return nil }
