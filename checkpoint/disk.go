package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is the changes that a save makes to a file system. What a method has done survives a power cut only once the
// file, or the folder of a new, renamed or removed name, has been synced. Tests put in disks that fail.
type Disk interface {
	// Create opens a file for writing, emptied if it exists.
	Create(path string) (OutFile, error)
	// MkdirAll makes a folder and those above it; each new name is synced.
	MkdirAll(path string) error
	Rename(from, to string) error
	// RemoveAll removes a file or a whole folder; one that is not there is no error.
	RemoveAll(path string) error
	SyncDir(path string) error
}

// OutFile is a file that is being written.
type OutFile interface {
	io.Writer
	Sync() error
	Close() error
}

// OS is the file system of this machine.
type OS struct{}

// Create implements Disk.
func (OS) Create(path string) (OutFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
}

// MkdirAll implements Disk.
func (d OS) MkdirAll(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}
	above := filepath.Dir(path)
	if above != path {
		if err := d.MkdirAll(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.SyncDir(above)
}

// Rename implements Disk.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// RemoveAll implements Disk.
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncDir implements Disk.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a folder and say EINVAL; there is nothing better to do there.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// writeFile writes a file of size bytes and syncs it. Its name is synced with its folder.
func writeFile(d Disk, path string, size int64, fill func(io.Writer) error) error {
	f, err := d.Create(path)
	if err != nil {
		return writeError(path, "create", size, err)
	}
	op, err := "write", fill(f)
	if err == nil {
		op, err = "sync", f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		op, err = "close", closeErr
	}
	if err != nil {
		return writeError(path, op, size, err)
	}
	return nil
}

// replaceOn writes a file aside, syncs it, puts it in the place of path and syncs the folder: a crash leaves the old file
// or the new one, whole. What an earlier, killed writer left aside is overwritten.
func replaceOn(d Disk, path string, size int64, fill func(io.Writer) error) error {
	aside := path + ".partial"
	if err := writeFile(d, aside, size, fill); err != nil {
		_ = d.RemoveAll(aside) // the first error is the one to tell
		return renamed(path, err)
	}
	if err := d.Rename(aside, path); err != nil {
		_ = d.RemoveAll(aside)
		return writeError(path, "rename", size, err)
	}
	if err := d.SyncDir(filepath.Dir(path)); err != nil {
		return writeError(path, "sync folder", 0, err)
	}
	return nil
}

// renamed is a failure to write a file aside, told of the file itself.
func renamed(path string, err error) error {
	var we *WriteError
	if errors.As(err, &we) {
		we.Path = path
	}
	return err
}
