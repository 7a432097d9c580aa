package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"phalanx/internal/disk"
)

// Run says what was recorded.
type Run struct {
	Version int    `json:"version"` // of the format
	Name    string `json:"name"`
	World   int    `json:"world"`
	Build   string `json:"build"`   // hash in the headers of messages, hexadecimal
	Source  string `json:"source"`  // the program that recorded
	Folder  string `json:"folder"`  // of the scenario: its relative paths start there
	Out     string `json:"out"`     // of the run: what it wrote lies below
	Loaded  string `json:"loaded"`  // the checkpoint or weights it began with; "": none
	First   int    `json:"first"`   // steps that were done when it began
	Samples int64  `json:"samples"` // rows that they had used
	// Snapshots is their folder, if they are kept elsewhere: a path from that of the recording.
	Snapshots string `json:"snapshots,omitempty"`
}

// SnapshotsIn is the folder of the snapshots of a recording in dir.
func (r Run) SnapshotsIn(dir string) string {
	if r.Snapshots != "" {
		return filepath.Join(dir, r.Snapshots)
	}
	return filepath.Join(dir, snapshotsDir)
}

// Create begins the recording of a run in a folder, which it makes. A recording that was there before goes; other files do not, and
// are an error.
func Create(d disk.Disk, dir string, r Run, scenario []byte) error {
	if err := Clear(d, dir); err != nil {
		return err
	}
	return Describe(d, dir, r, scenario)
}

// Describe makes a folder with recordings of ranks, which may be there already, the recording of a run.
func Describe(d disk.Disk, dir string, r Run, scenario []byte) error {
	r.Version = version
	for _, folder := range []string{dir, r.SnapshotsIn(dir)} {
		if err := d.MkdirAll(folder); err != nil {
			return disk.Failed(folder, "create folder", 0, err)
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{ScenarioName, scenario}, {runName, append(text, '\n')}} { // run.json last: it says that there is a recording
		if err := disk.ReplaceBytes(d, filepath.Join(dir, f.name), f.text); err != nil {
			return err
		}
	}
	return nil
}

// Clear empties a folder of an earlier recording. One with anything else in it is a *FileError, and stays as it is.
func Clear(d disk.Disk, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		n := e.Name()
		if n != runName && n != ScenarioName && n != snapshotsDir && !strings.HasPrefix(n, "rank-") {
			return &FileError{dir, fmt.Errorf("found %s, expected a folder that is not there, is empty or holds an earlier recording", n), "move it away, or choose another --out"}
		}
	}
	for _, e := range entries {
		if err := d.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return disk.Failed(filepath.Join(dir, e.Name()), "remove", 0, err)
		}
	}
	return nil
}

// FileError is a file of a recording that is not there or not what it has to be.
type FileError struct {
	Path string
	Err  error
	Hint string // what to do
}

func (e *FileError) Error() string {
	text := fmt.Sprintf("%s: %v", e.Path, e.Err)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap says what is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// ReadRun reads what a folder is the recording of. The error is a *FileError.
func ReadRun(dir string) (r Run, err error) {
	path := filepath.Join(dir, runName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, &FileError{dir, errors.New("no recording"), "record one with `phalanx run FILE --out DIR recovery.recording=true`"}
	}
	if err != nil {
		return r, &FileError{Path: path, Err: err}
	}
	j := json.NewDecoder(bytes.NewReader(b))
	j.DisallowUnknownFields()
	switch err := j.Decode(&r); {
	case err != nil:
		return r, &FileError{Path: path, Err: err}
	case r.Version != version:
		return r, &FileError{path, fmt.Errorf("found version %d of the format, expected %d", r.Version, version), "read it with the program that recorded it"}
	case r.World < 1 || r.First < 0 || r.Samples < 0:
		return r, &FileError{Path: path, Err: fmt.Errorf("found %d ranks, %d steps and %d rows before, expected at least 1, 0 and 0", r.World, r.First, r.Samples)}
	}
	return r, nil
}
