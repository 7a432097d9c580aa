package run

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"phalanx/internal/disk"
	"phalanx/model"
	"phalanx/recording"
	"phalanx/tensor"
)

// recordingDir is the folder of a recording, below that of the run.
const recordingDir = "recording"

// RecordingCost are what recording has cost.
type RecordingCost struct {
	Path  string `json:"path"`
	Ranks int    `json:"ranks"`
	Bytes int64  `json:"bytes"`
	// TimeShare is the time that ranks waited for their recordings, over that which they computed; 0: not known, because other
	// processes have recorded.
	TimeShare float64 `json:"time_share,omitempty"`
}

// recorders are those of a run's ranks (recovery.recording).
type recorders struct {
	mu  sync.Mutex
	all map[int]*recording.Rank
	// failures are to be told: events are told one at a time, and a recorder fails at any.
	failures []error
}

// CheckRecording refuses a recording without a folder; out is --out.
func CheckRecording(on bool, out string) *KeyError {
	if !on || out != "" {
		return nil
	}
	return &KeyError{"recovery.recording", errors.New("a recording needs a folder; name one with --out DIR, or remove the key")}
}

// beginRecording makes the folder of the recording. Of several processes the one that starts the others does it.
func (j *job) beginRecording() error {
	if !j.s.Recovery.Recording {
		return j.beginBundle()
	}
	if e := CheckRecording(true, j.o.Out); e != nil {
		return e
	}
	dir := filepath.Join(j.o.Out, recordingDir)
	r, err := j.recordingOf(dir)
	if err != nil {
		return err
	}
	return recording.Create(disk.OS{}, dir, r, j.s.Normalised())
}

// recordingOf describes the run for a recording in a folder.
func (j *job) recordingOf(dir string) (r recording.Run, err error) {
	folder, err := filepath.Abs(j.s.Dir)
	if err != nil {
		return r, err
	}
	out, err := filepath.Abs(j.o.Out)
	if err != nil {
		return r, err
	}
	r = recording.Run{Name: j.s.Name, World: j.s.Sizes().World(), Build: buildText(buildID(&j.s)), Source: BuildVersion(), Folder: folder, Out: out}
	if j.loadedFrom != "" {
		if r.Loaded, err = filepath.Abs(j.loadedFrom); err != nil {
			return r, err
		}
	}
	if j.resume != nil {
		r.First, r.Samples = j.resume.Position.Iteration, j.resume.Position.Samples
	}
	if j.launched != nil {
		if dir, err = filepath.Abs(dir); err == nil {
			r.Snapshots, err = filepath.Rel(dir, filepath.Join(j.launched.dir, spawnSnapshots))
		}
	}
	return r, err
}

func buildText(id uint64) string { return fmt.Sprintf("%016x", id) }

// recorder is that of a rank, which has died if again; nil: nothing is recorded.
func (j *job) recorder(rank int, again bool) *recording.Rank {
	dir := filepath.Join(j.o.Out, recordingDir)
	if !j.s.Recovery.Recording {
		if dir = j.bundle; dir == "" || !again {
			return nil
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			j.recordingFailed(err)
			return nil
		}
	}
	j.recorders.mu.Lock()
	defer j.recorders.mu.Unlock()
	if j.recorders.all == nil {
		j.recorders.all = map[int]*recording.Rank{}
	}
	if j.recorders.all[rank] == nil {
		j.recorders.all[rank] = recording.New(dir, recording.Options{Rank: rank, World: j.s.Sizes().World(), Build: buildID(&j.s),
			Elsewhere: j.o.worker, Passing: !j.s.Recovery.Recording, Alarm: j.recordingFailed})
	}
	return j.recorders.all[rank]
}

// recordInto makes the programs of a rank tell its recorder of their steps and their last weights.
func (j *job) recordInto(rank int, env *model.Env) {
	j.recorders.mu.Lock()
	r := j.recorders.all[rank]
	j.recorders.mu.Unlock()
	if r == nil {
		return
	}
	boundary, shards := env.Boundary, env.Shards
	env.Boundary = func(step int, local func() []byte) {
		r.Begun(uint32(step))
		boundary(step, local)
	}
	env.Shards = func(what string, step int, views []model.ShardView) {
		if what == "weights" {
			r.Weights(sumOf(views))
		}
		shards(what, step, views)
	}
}

// sumOf is the hash of a rank's weights.
func sumOf(views []model.ShardView) [32]byte {
	h := sha256.New()
	for _, v := range views {
		fmt.Fprintf(h, "%s %v\n", v.Spec.Name, v.Spec.Shape)
		h.Write(tensor.Bytes(v.F32))
		h.Write(tensor.Bytes(v.F64))
	}
	return [32]byte(h.Sum(nil))
}

// recordingFailed notes a failure to be told. A process of several has nobody to tell.
func (j *job) recordingFailed(err error) {
	if j.o.worker {
		j.o.Logger.Warn("recording failed", zap.Error(err))
		return
	}
	j.recorders.mu.Lock()
	defer j.recorders.mu.Unlock()
	j.recorders.failures = append(j.recorders.failures, err)
}

// tellRecordings tells what recorders have failed since the last time.
func (j *job) tellRecordings() {
	j.recorders.mu.Lock()
	failures := j.recorders.failures
	j.recorders.failures = nil
	j.recorders.mu.Unlock()
	for _, err := range failures {
		j.tell(RecordingFailed{Err: err.Error()})
	}
}

// endRecording closes the recordings of the ranks of this process, and sums up; nil: nothing is recorded.
func (j *job) endRecording() *RecordingCost {
	ns := int64(0)
	for _, r := range j.recorders.all {
		r.Close()
		ns += r.Stats().Ns
	}
	j.tellRecordings()
	if !j.s.Recovery.Recording {
		return nil
	}
	f := &RecordingCost{Path: filepath.Join(j.o.Out, recordingDir), Ranks: j.s.Sizes().World()}
	f.Bytes = bytesBelow(f.Path)
	if j.launched != nil {
		f.Bytes += bytesBelow(filepath.Join(j.launched.dir, spawnSnapshots))
	}
	if computed := j.figures.compute.Load(); computed > 0 {
		f.TimeShare = float64(ns) / float64(computed)
	}
	return f
}

// bytesBelow is what the files of a folder hold.
func bytesBelow(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if st, err := e.Info(); err == nil {
				n += st.Size()
			}
		}
		return nil // what cannot be read is not counted
	})
	return n
}

// RecordingFailed says that a rank is recorded no more, or lacks a snapshot in its recording.
type RecordingFailed struct{ Err string }

func (e RecordingFailed) String() string { return "recording failed: " + e.Err }
