package model

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// Resume is where a run begins that goes on from a checkpoint.
type Resume struct {
	Position  train.Position // zero: only weights are taken over
	Optimizer bool           // moments and the number of updates are taken over too
	Tensors   Tensors
}

// Tensors are those of a checkpoint. It may be read by several ranks at once.
type Tensors interface {
	// Names is the weights and expert biases, ascending.
	Names() []string
	// Float32s and Float64s fill dst with elements from on of a shard of a tensor, row-major in the shard's shape.
	Float32s(name string, s *nn.Spec, from int, dst []float32) error
	Float64s(name string, s *nn.Spec, from int, dst []float64) error
}

// Snapshot is one rank's share of a checkpoint. All ranks' snapshots of a position are every tensor once.
type Snapshot struct {
	Position train.Position
	Tensors  []StateView
}

// StateView is elements from From on of a shard of a tensor, in the rank's own memory: read, copy, do not keep.
type StateView struct {
	Name string // the parameter's for its weight, behind ExpAvg or ExpAvgSq for its moments
	Spec *nn.Spec
	From int
	F32  []float32 // one of them is set
	F64  []float64
}

// Prefixes of the names of moments, Megatron's names of them.
const (
	ExpAvg   = "exp_avg/"
	ExpAvgSq = "exp_avg_sq/"
)

// ExtraError is a tensor of a checkpoint that the model does not have.
type ExtraError struct{ Name string }

func (e *ExtraError) Error() string {
	return fmt.Sprintf("the checkpoint has a tensor %s, expected only tensors of the scenario's model", e.Name)
}

// begin is the first step of this run.
func (r *Rank[T]) begin() int { return r.position.Iteration }

// stops says before step i whether the run ends without it.
func (r *Rank[T]) stops(c nn.Comm, i int) bool { return r.env.Stop != nil && r.env.Stop(c, i) }

// wrote is the iteration of the last checkpoint that a rank had written, or begun with, when it came to the boundary of an iteration.
func (r *Rank[T]) wrote(iteration int) int {
	s := r.env.Scenario
	if n := s.Checkpoint.SaveInterval; iteration == s.Train.TrainIters || n > 0 && iteration%n == 0 {
		return iteration
	}
	if r.env.Resume != nil {
		return r.env.Resume.Position.Iteration
	}
	return 0
}

// advance counts a step that is done.
func (r *Rank[T]) advance() {
	r.position.Iteration++
	r.position.Samples += int64(r.env.Scenario.Train.GlobalBatchSize)
}

// saveDue saves after a step if the interval says so.
func (r *Rank[T]) saveDue() {
	if n := r.env.Scenario.Checkpoint.SaveInterval; n > 0 && r.position.Iteration%n == 0 {
		r.save()
	}
}

// save hands this rank's snapshot out, unless the last one was of this position, and reports what has become of it.
func (r *Rank[T]) save() {
	if r.env.Save == nil || r.position.Iteration == r.saved {
		return
	}
	r.saved = r.position.Iteration
	r.position.Updates = r.adam.Steps()
	done := messages.Saved{Rank: r.env.Rank, Step: r.position.Iteration}
	part, err := r.env.Save(Snapshot{Position: r.position, Tensors: r.state()})
	if done.Part = part; err != nil {
		done.Err = err.Error()
	}
	r.env.Emit(done)
}

// state is what this rank saves. Of ranks that hold the same elements the first one does: that of DP and CP, of the
// copies of an expert, and of TP if that does not cut the parameter. Slices of a sharded optimizer are one rank's alone.
func (r *Rank[T]) state() []StateView {
	at := r.env.Scenario.Sizes().Coord(r.env.Rank)
	moments := r.env.Scenario.Checkpoint.SaveOptim
	var out []StateView
	for _, p := range r.adam.State() {
		if p.To == p.From || !r.saves(p.Spec, at) {
			continue
		}
		out = append(out, viewOf(p.Spec.Name, p.Spec, p.From, p.Weight))
		if moments {
			out = append(out, viewOf(ExpAvg+p.Spec.Name, p.Spec, p.From, p.ExpAvg), viewOf(ExpAvgSq+p.Spec.Name, p.Spec, p.From, p.ExpAvgSq))
		}
	}
	for _, router := range r.routers {
		if b := router.Bias; b != nil && at.TP == 0 && at.CP == 0 && at.DP == 0 {
			out = append(out, viewOf(b.Name, biasSpec(b.Name, len(b.Values)), 0, b.Values))
		}
	}
	return out
}

// saves says whether this rank is the one that saves its elements of a parameter.
func (r *Rank[T]) saves(s *nn.Spec, at mesh.Coord) bool {
	shared := !r.env.Scenario.Optimizer.UseDistributedOptimizer
	switch {
	case s.Shared:
		return false
	case s.Expert:
		return !shared || at.EDP == 0
	case s.Shard.Parts == 1 && at.TP != 0:
		return false
	}
	return !shared || at.DP == 0 && at.CP == 0
}

func biasSpec(name string, experts int) *nn.Spec {
	return &nn.Spec{Name: name, Shape: []int{experts}, Shard: nn.Unsharded}
}

func viewOf[T tensor.Float](name string, s *nn.Spec, from int, x []T) StateView {
	v := StateView{Name: name, Spec: s, From: from}
	switch x := any(x).(type) {
	case []float32:
		v.F32 = x
	case []float64:
		v.F64 = x
	}
	return v
}

// restore reads this rank's elements of a checkpoint, whatever layout has written it.
func (r *Rank[T]) restore(from *Resume) error {
	if err := r.known(from.Tensors.Names()); err != nil {
		return err
	}
	for _, p := range r.params.List {
		if err := fill(from.Tensors, p.Name, &p.Spec, 0, p.Data); err != nil {
			return err
		}
	}
	for _, router := range r.routers {
		if b := router.Bias; b != nil {
			if err := fill(from.Tensors, b.Name, biasSpec(b.Name, len(b.Values)), 0, b.Values); err != nil {
				return err
			}
		}
	}
	r.position, r.saved = from.Position, from.Position.Iteration
	if !from.Optimizer {
		return nil
	}
	for _, p := range r.adam.State() {
		if err := fill(from.Tensors, ExpAvg+p.Spec.Name, p.Spec, p.From, p.ExpAvg); err != nil {
			return err
		}
		if err := fill(from.Tensors, ExpAvgSq+p.Spec.Name, p.Spec, p.From, p.ExpAvgSq); err != nil {
			return err
		}
	}
	r.adam.SetSteps(from.Position.Updates)
	return nil
}

func fill[T tensor.Float](from Tensors, name string, s *nn.Spec, at int, dst []T) error {
	switch dst := any(dst).(type) {
	case []float32:
		return from.Float32s(name, s, at, dst)
	case []float64:
		return from.Float64s(name, s, at, dst)
	}
	return nil
}

// biasSuffix and gateSuffix end the names of a router's bias and weight.
const (
	biasSuffix = "gate.e_score_correction_bias"
	gateSuffix = "gate.weight"
)

// known refuses names that the model does not have. A router's bias goes with its weight.
func (r *Rank[T]) known(names []string) error {
	all := r.params.All()
	for _, name := range names {
		own := name
		if base, bias := strings.CutSuffix(name, biasSuffix); bias && r.cfg.MoERouterEnableExpertBias {
			own = base + gateSuffix
		}
		if _, ok := slices.BinarySearchFunc(all, own, func(s nn.Spec, name string) int { return strings.Compare(s.Name, name) }); !ok {
			return &ExtraError{Name: name}
		}
	}
	return nil
}
