package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"phalanx/internal/disk"
)

// oldSuffix marks a checkpoint that is being replaced by one of the same iteration.
const oldSuffix = ".old"

// Commit makes a checkpoint of what the ranks have written aside: the manifest, the rename to its name, and then the
// file that names the newest. Until that last rename the newest checkpoint is the one before; a crash at any point leaves
// one or the other, whole. It returns the folder. Parts that do not make up the whole model are an error, and a failure of
// the machine is a *disk.WriteError; nothing of the checkpoint is left then.
func Commit(d disk.Disk, root string, m Manifest, parts []*Part) (dir string, err error) {
	aside := Aside(root, m.Iteration)
	defer func() {
		if err != nil {
			_ = d.RemoveAll(aside) // its disk space is wanted; the first error is the one to tell
		}
	}()
	if err := m.join(parts); err != nil {
		return "", err
	}
	if err := m.check(filepath.Join(aside, ManifestName)); err != nil {
		return "", fmt.Errorf("checkpoint of iteration %d: the ranks' parts are not the whole model: %w", m.Iteration, err)
	}
	if err := writeTexts(d, aside, &m); err != nil {
		return "", err
	}
	dir = IterationDir(root, m.Iteration)
	if err := putInPlace(d, aside, dir); err != nil {
		return "", err
	}
	if err := writeLatest(d, root, m.Iteration); err != nil {
		return "", err
	}
	// What remains is waste: a failure to remove it is not one of the checkpoint.
	_ = d.RemoveAll(dir + oldSuffix)
	return dir, nil
}

// join fills files and tensors from the ranks' parts.
func (m *Manifest) join(parts []*Part) error {
	byName := map[string]*Record{}
	for _, p := range parts {
		if p.Position != m.Position {
			return fmt.Errorf("checkpoint of iteration %d: rank %d stands at %+v, expected %+v as the other ranks", m.Iteration, p.Rank, p.Position, m.Position)
		}
		if p.File.Name != "" {
			m.Files = append(m.Files, p.File)
		}
		for _, t := range p.Tensors {
			have := byName[t.Name]
			if have == nil {
				byName[t.Name] = &t
				continue
			}
			if t.DType != have.DType || !slices.Equal(t.Shape, have.Shape) || t.Dim != have.Dim || t.Parts != have.Parts {
				return fmt.Errorf("checkpoint of iteration %d: tensor %s: rank %d has %s %v in %d parts along %d, other ranks have %s %v in %d along %d",
					m.Iteration, t.Name, p.Rank, t.DType, t.Shape, t.Parts, t.Dim, have.DType, have.Shape, have.Parts, have.Dim)
			}
			have.Pieces = append(have.Pieces, t.Pieces...)
		}
	}
	for _, t := range byName {
		slices.SortFunc(t.Pieces, func(a, b Piece) int {
			return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.From, b.From), cmp.Compare(a.File, b.File))
		})
		m.Tensors = append(m.Tensors, *t)
	}
	slices.SortFunc(m.Files, func(a, b InFile) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Tensors, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// writeTexts writes the manifest and config.json, and syncs the folder with all its files.
func writeTexts(d disk.Disk, aside string, m *Manifest) error {
	text, err := m.Encode()
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{ManifestName: text, ConfigName: append(slices.Clone(m.Model), '\n')} {
		if err := disk.WriteBytes(d, filepath.Join(aside, name), b); err != nil {
			return err
		}
	}
	if err := d.SyncDir(aside); err != nil {
		return disk.Failed(aside, "sync folder", 0, err)
	}
	return nil
}

// putInPlace renames the folder, and what had its name before out of its way.
func putInPlace(d disk.Disk, aside, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		if err := d.RemoveAll(dir + oldSuffix); err != nil {
			return disk.Failed(dir+oldSuffix, "remove", 0, err)
		}
		if err := d.Rename(dir, dir+oldSuffix); err != nil {
			return disk.Failed(dir, "rename", 0, err)
		}
	}
	if err := d.Rename(aside, dir); err != nil {
		return disk.Failed(dir, "rename", 0, err)
	}
	if err := d.SyncDir(filepath.Dir(dir)); err != nil {
		return disk.Failed(dir, "sync folder", 0, err)
	}
	return nil
}

// Tidy puts away what a killed run has left below root: checkpoints that were never whole, and a replaced one whose
// successor is there. Call it before a run writes its first.
func Tidy(d disk.Disk, root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return openError(root, err)
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		base, old := strings.CutSuffix(path, oldSuffix)
		_, ours := iterationOf(strings.TrimSuffix(strings.TrimSuffix(e.Name(), asideSuffix), oldSuffix))
		switch {
		case !ours || !e.IsDir():
			continue
		case old && !isDir(base):
			err = d.Rename(path, base)
		case old || strings.HasSuffix(path, asideSuffix):
			err = d.RemoveAll(path)
		}
		if err != nil {
			return disk.Failed(path, "put away", 0, err)
		}
	}
	return nil
}

// Prune removes checkpoints before the newest until keep are left; 0 keeps all. Later iterations are of another run and
// stay, as does spare, a folder that is in use.
func Prune(d disk.Disk, root string, newest, keep int, spare string) error {
	entries, err := os.ReadDir(root)
	if err != nil || keep == 0 {
		return err
	}
	var before []int
	for _, e := range entries {
		if n, ok := iterationOf(e.Name()); ok && e.IsDir() && n < newest {
			before = append(before, n)
		}
	}
	slices.Sort(before)
	for _, n := range before[:max(len(before)-keep+1, 0)] {
		dir := IterationDir(root, n)
		if same(dir, spare) {
			continue
		}
		// Renamed first, so that half a checkpoint is never under a checkpoint's name.
		if err := d.Rename(dir, Aside(root, n)); err != nil {
			return disk.Failed(dir, "remove", 0, err)
		}
		if err := d.RemoveAll(Aside(root, n)); err != nil {
			return disk.Failed(dir, "remove", 0, err)
		}
	}
	return nil
}

// iterationOf reads the name of an iteration's folder.
func iterationOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "iter_")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && len(digits) >= 7
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// same says whether two paths are one folder.
func same(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}
