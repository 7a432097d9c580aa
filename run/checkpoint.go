package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/internal/disk"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/oracle"
)

// saver makes checkpoints of what ranks write: each rank its own file, in its turn; then, when all have reported, the
// table of contents. No rank and no process ever has the whole model.
type saver struct {
	j    *job
	disk disk.Disk
	last string // folder of the last checkpoint
	err  error  // of the last attempt
	// parts is the folder in which a process of several leaves word, for those after it, of what it has written; "": none.
	parts string
}

// prepare takes the folder and puts away what a killed run has left. release gives the folder back.
func (s *saver) prepare() (release func(), err error) {
	if s.j.saveDir() == "" {
		return func() {}, nil
	}
	free, err := claim(s.j.saveDir())
	if err != nil {
		return nil, &KeyError{"checkpoint.save", err}
	}
	if err := checkpoint.Tidy(s.disk, s.j.saveDir()); err != nil {
		free()
		return nil, err
	}
	return func() {
		if s.j.launched != nil { // what processes have left that are over
			if err := checkpoint.Tidy(s.disk, s.j.saveDir()); err != nil {
				s.j.o.Logger.Warn("the folder for checkpoints is not tidy", zap.Error(err))
			}
		}
		free()
	}, nil
}

// leftPart is what a process has written of a checkpoint, and has told or is about to tell. Those after it tell the same and
// write nothing: the checkpoint may have been made since.
type leftPart struct {
	Part []byte `cbor:"1,keyasint"`
	Err  string `cbor:"2,keyasint,omitempty"`
}

// once is rank, unless a process before this one has done it.
func (s *saver) once(rank int, snap model.Snapshot) ([]byte, error) {
	if s.parts == "" {
		return s.rank(rank, snap)
	}
	path := filepath.Join(s.parts, fmt.Sprintf("rank_%05d_iter_%07d", rank, snap.Position.Iteration))
	if b, err := os.ReadFile(path); err == nil {
		var left leftPart
		if err := unshipMode.Unmarshal(b, &left); err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", path, err)
		}
		if left.Err != "" {
			return nil, errors.New(left.Err)
		}
		return left.Part, nil
	}
	part, err := s.rank(rank, snap)
	left := leftPart{Part: part}
	if err != nil {
		left.Err = err.Error()
	}
	if word := disk.ReplaceBytes(s.disk, path, messages.CBOR(left)); word != nil {
		s.j.o.Logger.Warn("what is written of a checkpoint may be written again", zap.Int("rank", rank), zap.Error(word))
	}
	return part, err
}

// rank writes one rank's share; the answer is its part of the manifest.
func (s *saver) rank(rank int, snap model.Snapshot) ([]byte, error) {
	held := make([]checkpoint.Held, len(snap.Tensors))
	for i, t := range snap.Tensors {
		if t.F64 != nil {
			held[i] = checkpoint.HeldOf(t.Name, t.Spec, t.From, t.F64)
		} else {
			held[i] = checkpoint.HeldOf(t.Name, t.Spec, t.From, t.F32)
		}
	}
	part, err := checkpoint.WriteRank(s.disk, s.j.saveDir(), rank, snap.Position, held)
	if err != nil {
		return nil, err
	}
	return part.Encode()
}

// commit makes the checkpoint when every rank has written. A checkpoint that fails is told and leaves the one before;
// the run goes on, and fails in the end if its last one did.
func (s *saver) commit(e messages.SaveReport) {
	dir, err := s.whole(e)
	if s.err = err; err != nil {
		s.j.tell(SaveFailed{Step: e.Step, Err: err.Error()})
		return
	}
	s.last = dir
	if s.j.o.Listen.Saved != nil {
		s.j.o.Listen.Saved(dir, e.Step)
	}
	if err := checkpoint.Prune(s.disk, s.j.saveDir(), e.Step, max(s.j.s.Checkpoint.MostRecentK, 0), s.j.loadedFrom); err != nil {
		s.j.tell(SaveFailed{Step: e.Step, Err: "older checkpoints stay: " + err.Error()})
	}
}

func (s *saver) whole(e messages.SaveReport) (string, error) {
	if e.Err != "" {
		_ = s.disk.RemoveAll(checkpoint.Aside(s.j.saveDir(), e.Step)) // what other ranks have written is no use
		return "", fmt.Errorf("checkpoint of step %d is not written: %s", e.Step, e.Err)
	}
	parts := make([]*checkpoint.Part, len(e.Parts))
	for i, b := range e.Parts {
		var err error
		if parts[i], err = checkpoint.DecodePart(b); err != nil {
			return "", err
		}
	}
	m, err := manifestOf(&s.j.s)
	if err != nil {
		return "", err
	}
	m.Position = parts[0].Position
	return checkpoint.Commit(s.disk, s.j.saveDir(), m, parts)
}

// manifestOf is what the manifest of a scenario says whatever its ranks have written.
func manifestOf(s *config.Scenario) (checkpoint.Manifest, error) {
	size := s.Sizes()
	keys, err := checkpoint.ModelKeys(&s.Model)
	return checkpoint.Manifest{Version: checkpoint.ManifestVersion, Scenario: s.Name, Seed: s.RNG.Seed, Model: keys,
		Source: string(s.Normalised()), BlockBytes: checkpoint.BlockBytes,
		Layout: checkpoint.Layout{TP: size.TP, CP: size.CP, DP: size.DP, PP: size.PP, EP: max(size.EP, 1), ETP: max(size.ETP, 1)}}, err
}

// saveDir is where checkpoints go; "" is nowhere.
func (j *job) saveDir() string {
	if j.s.Checkpoint.Save == "" {
		return ""
	}
	return j.below(j.s.Checkpoint.Save)
}

// below is a path of what runs write: below --out, or the working folder, unless it is absolute.
func (j *job) below(path string) string {
	if filepath.IsAbs(path) || j.o.Out == "" {
		return path
	}
	return filepath.Join(j.o.Out, path)
}

// located is a path of the scenario: relative ones start in the scenario's folder.
func located(s *config.Scenario, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.Dir, path)
}

// found is a path that a run reads: what an earlier run wrote there, else one from the scenario's folder.
func (j *job) found(path string) string {
	written, given := j.below(path), located(&j.s, path)
	if _, err := os.Stat(written); err != nil {
		if _, err := os.Stat(given); err == nil {
			return given
		}
	}
	return written
}

func tensors(ws []oracle.Whole) []checkpoint.Tensor {
	out := make([]checkpoint.Tensor, len(ws))
	for i, w := range ws {
		b, dt := w.Bytes()
		out[i] = checkpoint.Tensor{Name: w.Name, DType: dt, Shape: w.Shape, Data: b}
	}
	return out
}

func weightsSHA256(ws []oracle.Whole) string { return checkpoint.WeightsSHA256(tensors(ws)) }

// tell tells an event that is no rank's.
func (j *job) tell(e messages.Event) {
	if j.o.Listen.Event != nil {
		j.o.Listen.Event(e)
	}
}

// missing makes a refusal of a file of the scenario that is not there.
func missing(key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &RefusedError{What: key, Err: err}
	}
	return err
}

// Loaded says that a run goes on from a checkpoint, or begins with its weights.
type Loaded struct {
	Path     string
	Step     int // steps that are done
	Finetune bool
}

func (e Loaded) String() string {
	if e.Finetune {
		return "loaded weights path=" + e.Path
	}
	return fmt.Sprintf("loaded checkpoint step=%d path=%s", e.Step, e.Path)
}

// NotLoaded says that there was no checkpoint, so that the run begins with initial weights.
type NotLoaded struct{ Path string }

func (e NotLoaded) String() string {
	return fmt.Sprintf("no checkpoint path=%s: the run begins with initial weights (checkpoint.exit_on_missing_checkpoint: true refuses that)", e.Path)
}

// SaveFailed says that a checkpoint could not be written, or old ones not removed.
type SaveFailed struct {
	Step int
	Err  string
}

func (e SaveFailed) String() string {
	return fmt.Sprintf("save failed step=%d: %s", e.Step, e.Err)
}
