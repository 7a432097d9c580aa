package run

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"phalanx/internal/disk"
	"phalanx/recording"
)

// What a rank that dies at one place again and again had received is kept even if nothing is to be recorded: a life that follows
// a panic is recorded until it is past the place. When the run ends for that rank, the files become a recording.

// bundleDir is its folder, below that of the run, of several processes below theirs.
const bundleDir = "poison"

// beginBundle says where lives after a panic are recorded, and removes what an earlier run has left there. A run of one process
// without --out has no place for it.
func (j *job) beginBundle() error {
	switch {
	case j.launched != nil:
		j.bundle = filepath.Join(j.launched.dir, bundleDir)
	case j.s.Recovery.SnapshotEvery == 0 || j.o.Out == "":
		return nil
	default:
		j.bundle = filepath.Join(j.o.Out, bundleDir)
	}
	return dropBundle(j.bundle)
}

// dropBundle removes a bundle, and nothing that is none.
func dropBundle(dir string) error {
	if err := recording.Clear(disk.OS{}, dir); err != nil {
		return err
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// endBundle makes the bundle of a run that ended for a poisonous rank, and returns its folder; of another one nothing is left.
// It is called when the ranks of this process have ended and before the others' folder goes.
func (j *job) endBundle(err error) (dir string, _ error) {
	if j.bundle == "" {
		return "", nil
	}
	if ExitCode(err) != ExitPoison {
		return "", dropBundle(j.bundle)
	}
	for _, r := range j.recorders.all {
		r.Close()
	}
	r, err := j.recordingOf(j.bundle)
	if err != nil {
		return "", err
	}
	if j.launched != nil {
		j.launched.own = false // the snapshots in it are the bundle's
	}
	return j.bundle, recording.Describe(disk.OS{}, j.bundle, r, j.s.Normalised())
}
