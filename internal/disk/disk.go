// Package disk is the changes that a program makes to a file system so that they survive a crash: a whole new file or the old one,
// never half of one. Checkpoints, snapshots and recordings write through it, and tests put in disks that fail.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is the changes to a file system. What a method has done survives a power cut only once the file, or the folder of a
// new, renamed or removed name, has been synced.
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

// ReadFile is a whole file.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// ReadDir is the names of what is in a folder, ascending.
func (OS) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}
