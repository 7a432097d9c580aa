package run

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"phalanx/actors"
	"phalanx/config"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/oracle"
	"phalanx/recovery"
)

// lives is what a run remembers of its ranks over their deaths: a rank that goes through a step again shows and writes
// nothing twice.
type lives struct {
	mu         sync.Mutex
	written    map[rankStep]written
	shown      map[int]*shown // by rank
	recoveryMs []float64
}

type rankStep struct{ rank, step int }

type written struct {
	part []byte
	err  error
}

// recovery is what the actors need to start ranks again; nil: a rank that panics ends the run.
func (j *job) recovery() *actors.Recovery {
	r := &j.s.Recovery
	if r.SnapshotEvery == 0 {
		return nil
	}
	j.lives.written, j.lives.shown = map[rankStep]written{}, map[int]*shown{}
	b := recovery.NewBudget()
	b.RankMax, b.JobMax, b.Window = r.RankRestarts, r.JobRestarts, int64(r.RestartWindowS*float64(time.Second))
	return &actors.Recovery{Every: r.SnapshotEvery, LogMax: int64(r.SnapshotBytes), LogLimit: int64(r.LogBytes), Budget: b, Record: j.recorder, Programs: func(rank int, l actors.Life, emit func(messages.Event)) ([]func(nn.Comm), error) {
		env := j.env(rank, emit)
		env.Local, env.Boundary = l.Local, l.Boundary
		if l.Ends != nil {
			env.Stop = l.Ends
		}
		if j.o.worker {
			j.remote(rank, &env)
		}
		if env.Save != nil {
			env.Save = func(s model.Snapshot) ([]byte, error) { return j.writeOnce(rank, s) }
		}
		if env.Observer != nil && !j.o.worker {
			env.Observer = j.lives.observer(rank, env.Observer)
		}
		j.recordInto(rank, &env)
		return model.Programs(env)
	}}
}

// writeOnce writes a rank's part of a checkpoint, unless an earlier life has: its checkpoint may have been made since.
func (j *job) writeOnce(rank int, s model.Snapshot) ([]byte, error) {
	at := rankStep{rank, s.Position.Iteration}
	j.lives.mu.Lock()
	w, ok := j.lives.written[at]
	j.lives.mu.Unlock()
	if !ok {
		w.part, w.err = j.saver.once(rank, s)
		j.lives.mu.Lock()
		j.lives.written[at] = w
		j.lives.mu.Unlock()
	}
	return w.part, w.err
}

// shown counts what a rank has shown of every quantity, in the life that has shown most.
type shown struct {
	mu   sync.Mutex
	most map[observation]int
}

type observation struct {
	name             string
	step, microbatch int
}

// observer is that of a new life of a rank.
func (l *lives) observer(rank int, inner nn.Observer) nn.Observer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[rank] == nil {
		l.shown[rank] = &shown{most: map[observation]int{}}
	}
	return &observer{Observer: inner, of: l.shown[rank], mine: map[observation]int{}}
}

// observer is the observer of one life: it passes on what no earlier life has shown.
type observer struct {
	nn.Observer
	of   *shown
	mine map[observation]int // under of.mu
}

// Observe implements nn.Observer.
func (o *observer) Observe(x nn.Observation) {
	k := observation{x.Name, x.Site.Step, x.Site.Microbatch}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.mine[k]++; o.mine[k] <= o.of.most[k] {
		return
	}
	o.of.most[k] = o.mine[k]
	o.Observer.Observe(x)
}

// Forget drops what the rank has shown of a step, see oracle.
func (o *observer) Forget(step int) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	for _, counts := range []map[observation]int{o.mine, o.of.most} {
		for k := range counts {
			if k.step == step {
				delete(counts, k)
			}
		}
	}
	if f, ok := o.Observer.(interface{ Forget(step int) }); ok {
		f.Forget(step)
	}
}

const withoutFaults = "without_faults"

func (j *job) expectsWithoutFaults() bool {
	return slices.ContainsFunc(j.s.Expect, func(e config.Expect) bool { return e.SameAs == withoutFaults })
}

// withoutFaults runs the scenario without faults and recovery, in this process.
func (j *job) withoutFaults(ctx context.Context) (*Report, []oracle.Whole, error) {
	s := j.s
	s.Faults, s.Expect, s.Recovery, s.NeedsProcs = nil, nil, config.Recovery{CollectiveTimeoutS: s.Recovery.CollectiveTimeoutS}, nil
	s.Transport.Servers = 1
	s.Checkpoint.Save, s.Checkpoint.SaveInterval = "", 0
	var err error
	if j.loadedFrom != "" { // what is the newest may have changed since
		if s.Checkpoint.Load, err = filepath.Abs(j.loadedFrom); err != nil {
			return nil, nil, err
		}
		s.Checkpoint.CkptStep = 0
	}
	o, err := newJob(s, Options{Logger: j.o.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("the run without faults: %w", err)
	}
	report, err := o.run(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("the run without faults: %w", err)
	}
	if dead := o.dead(report); dead != "" {
		report.Error = "not a test: " + dead
	}
	var final []oracle.Whole
	if g := o.weights[s.Train.TrainIters]; g != nil {
		if final, err = g.All(); err != nil {
			return nil, nil, fmt.Errorf("the run without faults: %w", err)
		}
	}
	return report, final, nil
}

// checkQuiet holds same_as: without_faults: the bits of weights and figures, or how near they are.
func (q quantities) checkQuiet(tol float64) (bool, string) {
	got, want := q.report, q.quiet
	if want.Error != "" {
		return false, want.Error
	}
	if len(got.Steps) != len(want.Steps) {
		return false, fmt.Sprintf("%d steps, without faults %d", len(got.Steps), len(want.Steps))
	}
	if len(got.Validation) != len(want.Validation) {
		return false, fmt.Sprintf("%d validations, without faults %d", len(got.Validation), len(want.Validation))
	}
	for i := range want.Steps {
		if text := differently(got.Steps[i], want.Steps[i], tol); text != "" {
			return false, fmt.Sprintf("step %d %s", want.Steps[i].Step, text)
		}
	}
	for i := range want.Validation {
		if text := differently(got.Validation[i], want.Validation[i], tol); text != "" {
			return false, fmt.Sprintf("validation after step %d %s", want.Validation[i].Step, text)
		}
	}
	if got.WeightsSHA256 == want.WeightsSHA256 {
		return true, fmt.Sprintf("the same bits in %d steps, weights %.16s…", len(want.Steps), want.WeightsSHA256)
	}
	if tol == 0 {
		return false, fmt.Sprintf("weights_sha256 is %s, without faults %s", got.WeightsSHA256, want.WeightsSHA256)
	}
	if text := differentWeights(q.final, q.quietFinal, tol); text != "" {
		return false, text
	}
	return true, fmt.Sprintf("no difference above %g in %d steps and the weights", tol, len(want.Steps))
}

// differently is the first figure that differs from that of the run without faults, both as reports write them.
func differently(got, want any, tol float64) string {
	var maps [2]map[string]any
	for i, v := range []any{got, want} {
		b, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(b, &maps[i])
		}
		if err != nil {
			return err.Error()
		}
	}
	return differentFigures(maps[0], maps[1], tol)
}

// differentWeights is the first weight that is further off than the tolerance, relative to the largest of its tensor.
func differentWeights(got, want []oracle.Whole, tol float64) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d weights, without faults %d", len(got), len(want))
	}
	for i, w := range want {
		a, b := got[i].Floats(), w.Floats()
		scale := 0.0
		for _, x := range b {
			scale = max(scale, math.Abs(x))
		}
		for k := range b {
			if d := math.Abs(a[k] - b[k]); !(d <= tol*scale) {
				return fmt.Sprintf("%s[%d] is %g after the last step, without faults %g", w.Name, k, a[k], b[k])
			}
		}
	}
	return ""
}
