package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"phalanx/checkpoint"
	"phalanx/data"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/train"
)

// start finds out where the run begins.
func (j *job) start() error {
	if err := j.source(); err != nil {
		return err
	}
	if j.s.Checkpoint.Load == "" {
		return nil
	}
	if err := j.load(); err != nil {
		return err
	}
	if j.resume == nil {
		return nil
	}
	return j.goOn(j.resume.Position)
}

// source makes a run that is to be resumed load what it has saved, if there is anything.
func (j *job) source() error {
	k := &j.s.Checkpoint
	if !j.o.Resume {
		return nil
	}
	dir, err := checkpoint.Latest(j.saveDir())
	if err != nil {
		return err
	}
	if dir != j.saveDir() {
		k.Load, k.CkptStep, k.Finetune = k.Save, 0, false
	} else if k.Load == "" {
		j.began = NotLoaded{Path: j.saveDir()}
	}
	return nil
}

// load opens what checkpoint.load names: a checkpoint, which the run goes on from, or weights, which it begins with.
func (j *job) load() error {
	root := j.found(j.s.Checkpoint.Load)
	dir, err := j.newest(root)
	switch {
	case err != nil:
		return err
	case dir == "":
		return j.missing(root)
	}
	if _, err := os.Stat(filepath.Join(dir, checkpoint.ManifestName)); err != nil {
		return j.loadWeights(dir)
	}
	s, err := checkpoint.OpenSharded(dir)
	if err != nil {
		return err
	}
	j.loaded, j.loadedFrom = s, dir
	j.resume, err = j.resumed(s)
	return err
}

// newest is the folder or file to load from, "" if there is no checkpoint yet.
func (j *job) newest(root string) (string, error) {
	st, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !st.IsDir():
		return root, nil
	}
	dir := root
	if n := j.s.Checkpoint.CkptStep; n > 0 {
		dir = checkpoint.IterationDir(root, n)
	} else if dir, err = checkpoint.Latest(root); err != nil {
		return "", err
	}
	if dir != root {
		if _, err := os.Stat(dir); err != nil {
			return "", &checkpoint.FormatError{Path: dir, Kind: checkpoint.ErrMissing, Found: "no such folder", Expected: "the checkpoint that is asked for"}
		}
		return dir, nil
	}
	if checkpoint.HoldsWeights(dir) {
		return dir, nil
	}
	return "", nil
}

// missing begins with initial weights where the run is about to make what it would load.
func (j *job) missing(root string) error {
	k := j.s.Checkpoint
	own := k.Save != "" && filepath.Clean(k.Save) == filepath.Clean(k.Load)
	if !own || k.ExitOnMissingCheckpoint || k.Finetune || k.CkptStep > 0 {
		return &checkpoint.FormatError{Path: root, Kind: checkpoint.ErrMissing, Found: "neither " + checkpoint.LatestName + " nor weights",
			Expected: "what checkpoint.load names; a run may begin without only if checkpoint.save is the same folder and exit_on_missing_checkpoint is off"}
	}
	j.began = NotLoaded{Path: root}
	return nil
}

// loadWeights begins with weights under Hugging Face names.
func (j *job) loadWeights(path string) error {
	f, err := checkpoint.OpenWeights(path)
	if err != nil {
		return err
	}
	j.initial, j.loaded, j.loadedFrom = f.Float64s, f, path
	j.began = Loaded{Path: path, Finetune: true}
	return nil
}

// resumed checks that the scenario can go on from a checkpoint.
func (j *job) resumed(s *checkpoint.Sharded) (*model.Resume, error) {
	m, k := s.Manifest, j.s.Checkpoint
	if err := s.CheckModel(&j.s.Model); err != nil {
		return nil, err
	}
	r := &model.Resume{Tensors: stored{s}}
	if j.began = (Loaded{Path: s.Path(), Step: m.Iteration, Finetune: k.Finetune}); k.Finetune {
		return r, nil
	}
	r.Position, r.Optimizer = m.Position, k.LoadOptim
	bad := func(found, expected string) error {
		return &checkpoint.FormatError{Path: s.Path(), Kind: checkpoint.ErrMismatch, Found: found, Expected: expected}
	}
	switch iters := j.s.Train.TrainIters; {
	case m.Iteration > iters:
		return nil, bad(fmt.Sprintf("iteration %d", m.Iteration), fmt.Sprintf("at most train.train_iters %d; raise it, or load an older one with checkpoint.ckpt_step", iters))
	case k.LoadRNG && m.Seed != j.s.RNG.Seed:
		return nil, bad(fmt.Sprintf("rng.seed %d", m.Seed), fmt.Sprintf("%d as the scenario has it; set rng.seed, or checkpoint.load_rng: false to draw anew", j.s.RNG.Seed))
	case k.LoadOptim && !s.HasOptimizer():
		return nil, bad("no moments (it was written with checkpoint.save_optim: false)", "those of every weight; set checkpoint.load_optim: false to begin with none")
	}
	return r, nil
}

// goOn makes data and figures those of a run that stands at a position.
func (j *job) goOn(at train.Position) (err error) {
	j.figures.samples = at.Samples
	j.train, err = j.data.TrainFrom(data.Cursor{Step: at.Iteration, Consumed: int(at.Samples)})
	return err
}

// stored is a checkpoint as a rank reads it.
type stored struct{ *checkpoint.Sharded }

func (s stored) Float32s(name string, spec *nn.Spec, from int, dst []float32) error {
	return checkpoint.Read(s.Sharded, name, spec, from, dst)
}

func (s stored) Float64s(name string, spec *nn.Spec, from int, dst []float64) error {
	return checkpoint.Read(s.Sharded, name, spec, from, dst)
}
