package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// WriteError is a file that could not be written. The old file, if there was one, is as it was.
type WriteError struct {
	Path string
	Op   string // create, write, sync, rename, …
	Hint string // what to do
	Err  error
}

// Error reads `cannot write PATH: write: no space left on device: the disk is full, …`.
func (e *WriteError) Error() string {
	msg := fmt.Sprintf("cannot write %s: %s: %v", e.Path, e.Op, e.Err)
	if e.Hint != "" {
		msg += ": " + e.Hint
	}
	return msg
}

// Unwrap gives the operating system's error.
func (e *WriteError) Unwrap() error { return e.Err }

// Failed is the WriteError of an operation on a file of size bytes, 0 if that is not known, with what to do about the usual failures.
func Failed(path, op string, size int64, err error) error {
	var pe *os.PathError
	var le *os.LinkError
	switch { // the path is told once, by WriteError
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "the disk is full; free space or choose another folder"
		if size > 0 {
			hint = fmt.Sprintf("the disk is full, %d bytes are needed; free space or choose another folder", size)
		}
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		hint = "the folder cannot be written; choose another or change its permissions"
	case errors.Is(err, os.ErrNotExist):
		hint = "the folder does not exist; make it first"
	}
	return &WriteError{Path: path, Op: op, Hint: hint, Err: err}
}

// WriteFile writes a file of size bytes and syncs it. Its name is synced with its folder. The error is a *WriteError.
func WriteFile(d Disk, path string, size int64, fill func(io.Writer) error) error {
	f, err := d.Create(path)
	if err != nil {
		return Failed(path, "create", size, err)
	}
	op, err := "write", fill(f)
	if err == nil {
		op, err = "sync", f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		op, err = "close", closeErr
	}
	if err != nil {
		return Failed(path, op, size, err)
	}
	return nil
}

// WriteBytes is WriteFile with all that is in the file.
func WriteBytes(d Disk, path string, b []byte) error {
	return WriteFile(d, path, int64(len(b)), whole(b))
}

// ReplaceBytes is Replace with all that is in the file.
func ReplaceBytes(d Disk, path string, b []byte) error {
	return Replace(d, path, int64(len(b)), whole(b))
}

func whole(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// Replace writes a file aside, syncs it, puts it in the place of path and syncs the folder: a crash leaves the old file
// or the new one, whole. What an earlier, killed writer left aside is overwritten. The error is a *WriteError.
func Replace(d Disk, path string, size int64, fill func(io.Writer) error) error {
	return ReplaceVia(d, path+".partial", path, size, fill, func() error { return nil })
}

// ReplaceVia is Replace with a name for the file aside, and before, called when that is whole and synced and has not
// its name yet: an error of it leaves the old file.
func ReplaceVia(d Disk, aside, path string, size int64, fill func(io.Writer) error, before func() error) error {
	err := WriteFile(d, aside, size, fill)
	if err == nil {
		err = before()
	}
	if err != nil {
		_ = d.RemoveAll(aside) // the first error is the one to tell
		return renamed(path, err)
	}
	if err := d.Rename(aside, path); err != nil {
		_ = d.RemoveAll(aside)
		return Failed(path, "rename", size, err)
	}
	if err := d.SyncDir(filepath.Dir(path)); err != nil {
		return Failed(path, "sync folder", 0, err)
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
