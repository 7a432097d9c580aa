package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/oracle"
)

// saver writes checkpoints behind the back of the ranks, one at a time, in the order they became due.
type saver struct {
	j     *job
	queue chan due
	done  chan struct{}
	last  string
	err   error
}

type due struct {
	step int
	g    *oracle.Gatherer
}

// saveQueue is how many checkpoints may wait for the disk before a rank waits for it too: each is a whole model in memory.
const saveQueue = 2

func newSaver(j *job) *saver {
	s := &saver{j: j, queue: make(chan due, saveQueue), done: make(chan struct{})}
	go s.loop()
	return s
}

func (s *saver) save(step int, g *oracle.Gatherer) {
	if s.j.saveDir() != "" {
		s.queue <- due{step, g}
	}
}

func (s *saver) loop() {
	defer close(s.done)
	for d := range s.queue {
		if s.err != nil {
			continue
		}
		s.err = s.write(d)
	}
}

func (s *saver) write(d due) error {
	weights, err := d.g.All()
	if err != nil {
		return fmt.Errorf("checkpoint of step %d is not written: %w", d.step, err)
	}
	dir := checkpoint.IterationDir(s.j.saveDir(), d.step)
	meta := map[string]string{"format": "pt", "iteration": strconv.Itoa(d.step), "scenario": s.j.s.Name}
	if err := checkpoint.Save(dir, &s.j.s.Model, tensors(weights), meta); err != nil {
		return err
	}
	if err := checkpoint.WriteLatest(s.j.saveDir(), d.step); err != nil {
		return err
	}
	s.last = dir
	if s.j.o.Listen.Saved != nil {
		s.j.o.Listen.Saved(dir, d.step)
	}
	return nil
}

// wait ends the saver and gives the last folder it wrote.
func (s *saver) wait() (string, error) {
	close(s.queue)
	<-s.done
	return s.last, s.err
}

// saveDir is where checkpoints go.
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

// loadPath is where weights come from: what an earlier run wrote there, else a path from the scenario's folder. A folder
// of several checkpoints gives the newest.
func (j *job) loadPath() (string, error) {
	path := j.below(j.s.Checkpoint.Load)
	if _, err := os.Stat(path); err != nil {
		path = located(&j.s, j.s.Checkpoint.Load)
	}
	return checkpoint.Latest(path)
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

// located is a path of the scenario: relative ones start in the scenario's folder.
func located(s *config.Scenario, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.Dir, path)
}

// missing makes a refusal of a file of the scenario that is not there.
func missing(key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &RefusedError{What: key, Err: err}
	}
	return err
}

// loadWeights reads initial weights under Hugging Face names.
func (j *job) loadWeights() (func(string) ([]float64, error), error) {
	path, err := j.loadPath()
	if err != nil {
		return nil, err
	}
	f, err := checkpoint.OpenWeights(path)
	if err != nil {
		return nil, missing("checkpoint.load", err)
	}
	j.loaded = f
	return f.Float64s, nil
}
