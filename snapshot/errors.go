package snapshot

import (
	"errors"
	"fmt"
)

// ErrSuperseded is why a snapshot was not written: a later one of the rank has taken its place in the queue.
var ErrSuperseded = errors.New("a later snapshot took its place before it was written")

// ErrClosed is why a snapshot was not written: the store has been closed.
var ErrClosed = errors.New("the store of snapshots is closed")

// FileError is a file that holds no snapshot that can be read: torn, rotten, or of something else.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s is no whole snapshot: %v; it is left out, an earlier one or another incarnation's serves", e.Path, e.Err)
}

// Unwrap says what is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// MissingError says that there is no whole snapshot of a step.
type MissingError struct {
	Dir  string
	Rank int
	Step uint32
	Bad  error // of files that are no snapshot; nil: there is none
}

func (e *MissingError) Error() string {
	if e.Bad != nil {
		return fmt.Sprintf("%s has no whole snapshot of rank %d at step %d: %v", e.Dir, e.Rank, e.Step, e.Bad)
	}
	return fmt.Sprintf("%s has no snapshot of rank %d at step %d", e.Dir, e.Rank, e.Step)
}

// Unwrap says what is wrong with the files that are there.
func (e *MissingError) Unwrap() error { return e.Bad }

// FencedError says that a snapshot was written and not put in its place, because its writer may write no more.
type FencedError struct {
	Rank              int
	Step, Incarnation uint32
	Err               error
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("the snapshot of rank %d at step %d by incarnation %d is withdrawn: %v", e.Rank, e.Step, e.Incarnation, e.Err)
}

// Unwrap says why.
func (e *FencedError) Unwrap() error { return e.Err }
