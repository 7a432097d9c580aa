// Package trial trains a small model on hand-made batches, on any layout, in one goroutine, and keeps what tests compare.
package trial

import (
	"fmt"
	"math"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/oracle"
)

// Layout is how a job is laid out over ranks.
type Layout struct {
	TP, CP, DP int
	SP         bool
	CommType   string // cp_comm_type
	PP         int    // 0: 1
	Stages     string // pipeline_model_parallel_layout; "": by count
	Group      int    // microbatch_group_size_per_vp_stage
}

// Single is one rank.
var Single = Layout{TP: 1, CP: 1, DP: 1}

// String reads "tp2 sp cp2(a2a) dp1".
func (l Layout) String() string {
	sp, comm := "", ""
	if l.SP {
		sp = " sp"
	}
	if l.CP > 1 && l.CommType != "" {
		comm = "(" + l.CommType + ")"
	}
	pp := ""
	if l.PP > 1 {
		pp = fmt.Sprintf(" pp%d %s", l.PP, l.Stages)
	}
	return fmt.Sprintf("tp%d%s cp%d%s dp%d%s", l.TP, sp, l.CP, comm, l.DP, pp)
}

// Job is a model, its batches and its optimizer; the layout of Model is not used.
type Job struct {
	Model     config.Model
	Optimizer config.Optimizer
	DDP       config.DDP
	Batches   [][]*nn.Microbatch   // by step, by microbatch of the whole step; all of one size
	Weights   map[string][]float64 // initial; nil: drawn from Seed
	Seed      uint64
	DType     string   // "": fp64
	Mutate    []string // planted bugs
	// Wants says what is recorded besides weights and gradients; nil: nothing.
	Wants func(name string, step int) bool
}

// Outcome is what a run left behind.
type Outcome struct {
	Steps   []Step
	Weights map[string][]float64 // after the last step
	Record  *oracle.Recorder
}

// Step is the figures of one step, summed over ranks, and its gradients by name, before clipping.
type Step struct {
	Sums     messages.Sums
	GradNorm float64
	Grads    map[string][]float64
}

// Microbatch implements model.Source.
func (j *Job) Microbatch(step, mb int) *nn.Microbatch { return j.Batches[step][mb] }

// Scenario is the job on a layout.
func (j Job) Scenario(l Layout) *config.Scenario {
	s := &config.Scenario{Model: j.Model, Optimizer: j.Optimizer, DDP: j.DDP, Mutate: j.Mutate}
	s.Model.TensorParallel, s.Model.ContextParallel, s.Model.PipelineParallel = l.TP, l.CP, max(l.PP, 1)
	s.Model.PipelineLayoutText, s.Model.MicrobatchGroup = l.Stages, l.Group
	s.Model.SequenceParallel, s.Model.CPCommType = l.SP, l.CommType
	s.Dist.WorldSize = l.TP * l.CP * l.DP * max(l.PP, 1)
	s.RNG.Seed = j.Seed
	s.Train = config.Train{TrainIters: len(j.Batches), DType: j.DType, MicroBatchSize: 1, GlobalBatchSize: 1}
	if j.DType == "" {
		s.Train.DType = "fp64"
	}
	for _, step := range j.Batches {
		s.Train.MicroBatchSize, s.Train.GlobalBatchSize = step[0].B, step[0].B*len(step)
		for _, mb := range step {
			s.Dataset.SeqLength = max(s.Dataset.SeqLength, mb.S)
		}
	}
	return s
}

// run is a run in the making.
type run struct {
	job     *Job
	s       *config.Scenario
	out     *Outcome
	done    [][]messages.StepDone // by step, by rank
	grads   []*oracle.Gatherer    // by step
	weights *oracle.Gatherer
}

// Run trains on a layout. The error is one of the run, or a replica that drifted.
func (j *Job) Run(l Layout, o inproc.Options) (*Outcome, error) {
	s := j.Scenario(l)
	r := &run{job: j, s: s, out: &Outcome{}, weights: oracle.NewGatherer()}
	wants := j.Wants
	if wants == nil {
		wants = func(string, int) bool { return false }
	}
	r.out.Record = oracle.NewRecorder(s.Sizes(), s.NumMicrobatches(), wants)
	for range j.Batches {
		r.done = append(r.done, make([]messages.StepDone, s.Dist.WorldSize))
		r.grads = append(r.grads, oracle.NewGatherer())
	}
	all := make([][]func(nn.Comm), s.Dist.WorldSize)
	for rank := range all {
		var err error
		if all[rank], err = model.Programs(r.env(rank)); err != nil {
			return nil, err
		}
	}
	if err := inproc.Run(s.Sizes(), func(rank int) []func(nn.Comm) { return all[rank] }, o); err != nil {
		return nil, fmt.Errorf("%s: %w", l, err)
	}
	if err := r.collect(); err != nil {
		return nil, fmt.Errorf("%s: %w", l, err)
	}
	return r.out, nil
}

func (r *run) env(rank int) model.Env {
	env := model.Env{Scenario: r.s, Rank: rank, Train: r.job, Observer: r.out.Record.For(rank),
		Emit: func(e messages.Event) {
			if d, ok := e.(messages.StepDone); ok {
				r.done[d.Step][rank] = d
			}
		},
		Shards: func(what string, step int, v []model.ShardView) {
			if what == "grads" {
				r.grads[step].Add(rank, v)
			} else {
				r.weights.Add(rank, v)
			}
		}}
	if r.job.Weights != nil {
		env.Initial = func(name string) ([]float64, error) {
			if w, ok := r.job.Weights[name]; ok {
				return w, nil
			}
			return nil, fmt.Errorf("trial: no initial weight %s", name)
		}
	}
	return env
}

// collect sums the ranks' figures and joins their shards.
func (r *run) collect() error {
	for i, ranks := range r.done {
		step := Step{GradNorm: ranks[0].GradNorm}
		for rank, d := range ranks {
			if math.Float64bits(d.GradNorm) != math.Float64bits(step.GradNorm) {
				return fmt.Errorf("step %d: gradient norm %v on rank 0, %v on rank %d", i, step.GradNorm, d.GradNorm, rank)
			}
			step.Sums.Add(d.Sums)
		}
		var err error
		if step.Grads, err = tensors(r.grads[i]); err != nil {
			return fmt.Errorf("gradients of step %d: %w", i, err)
		}
		r.out.Steps = append(r.out.Steps, step)
	}
	var err error
	if r.out.Weights, err = tensors(r.weights); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	return nil
}

func tensors(g *oracle.Gatherer) (map[string][]float64, error) {
	all, err := g.All()
	m := map[string][]float64{}
	for _, w := range all {
		m[w.Name] = w.Floats()
	}
	return m, err
}

// Get is a recorded quantity of a step and microbatch, joined over ranks.
func (o *Outcome) Get(name string, step, mb int) (oracle.Value, error) {
	v, ok, err := o.Record.Get(oracle.Key{Name: name, Step: step, Microbatch: mb})
	if err == nil && !ok {
		err = fmt.Errorf("%s of step %d microbatch %d was not recorded", name, step, mb)
	}
	return v, err
}
