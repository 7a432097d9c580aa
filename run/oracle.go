package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/actors"
	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/mesh"
	"phalanx/moe"
	"phalanx/oracle"
	"phalanx/tensor/kernel"
)

// verdict is what the comparison of a run with its single-rank oracle found.
type verdict struct {
	first    *oracle.Difference // nil: nothing differs
	compared int
	dead     string // why the comparison is no test; "": it is one
}

// needsOracle reports whether an expectation compares with the single rank.
func (j *job) needsOracle() bool {
	for _, e := range j.s.Expect {
		if e.Detected || e.SameAs == singleRank {
			return true
		}
	}
	return false
}

// expectsDetection reports whether the scenario expects to be found wrong; its run may then end in an error.
func (j *job) expectsDetection() bool {
	return slices.ContainsFunc(j.s.Expect, func(e config.Expect) bool { return e.Detected })
}

const singleRank = "single_rank"

// recordsOracle is what a comparison reads: everything of the first step, figures and counts of later ones. Logits of
// depths are left out: their losses are there. So is what a token weighs where each context-parallel rank says so itself.
func (j *job) recordsOracle(name string, step int) bool {
	if strings.HasSuffix(name, ".token_weight") {
		return j.s.Model.LossNormalization != "upstream" || j.s.Model.ContextParallel == 1
	}
	step -= j.first()
	return oracle.RecordsCase(name, step) || step == 0 && strings.HasSuffix(name, "position_ids")
}

// oracleScenario is the same job on one rank in fp64, with nothing planted. It keeps loss_normalization: upstream divides
// by other numbers than exact on one rank too.
func oracleScenario(s config.Scenario) config.Scenario {
	m := &s.Model
	m.TensorParallel, m.ContextParallel, m.PipelineParallel, m.ExpertParallel, m.ExpertTensorParallel, m.SequenceParallel = 1, 1, 1, 1, 1, false
	s.Dist.WorldSize, s.Train.DType, s.Train.EvalInterval = 1, "fp64", 0
	s.Faults, s.Recovery.SnapshotEvery, s.Recovery.Recording = nil, 0, false
	s.Mutate, s.Expect, s.Checkpoint.Save, s.Checkpoint.SaveInterval = nil, nil, "", 0
	m.MoEEnableRoutingReplay, s.Checkpoint.SaveRouting = s.Checkpoint.LoadRouting != "", ""
	s.Logger.TokenLossReport, s.Logger.MaskReport = false, false
	return s
}

// compareOracle runs the oracle and finds the first difference.
func (j *job) compareOracle(ctx context.Context, report *Report) (_ *verdict, err error) {
	s := oracleScenario(j.s)
	if j.loadedFrom != "" { // what is the newest may have changed since
		if s.Checkpoint.Load, err = filepath.Abs(j.loadedFrom); err != nil {
			return nil, err
		}
		s.Checkpoint.CkptStep = 0
	}
	o, err := newJob(s, Options{Logger: j.o.Logger, Out: j.o.Out})
	if err != nil {
		return nil, fmt.Errorf("the single-rank oracle: %w", err)
	}
	o.record = oracle.NewRecorder(o.s.Sizes(), o.s.NumMicrobatches(), j.recordsOracle)
	o.keepStep0 = true
	o.reach = oracle.NewReach(o.s.Optimizer, j.tolerance())
	want, err := o.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("the single-rank oracle: %w", err)
	}
	v := &verdict{dead: cmp.Or(j.otherByDefinition(), o.dead(want), j.sameRows())}
	v.first, v.compared = j.firstDifference(o, report, want)
	return v, nil
}

// tolerance of comparisons with the oracle, unless an expectation gives one.
func (j *job) tolerance() float64 {
	for _, e := range j.s.Expect {
		if (e.Detected || e.SameAs != "") && e.Tolerance > 0 {
			return e.Tolerance
		}
	}
	if j.s.Train.DType == "fp64" {
		return 1e-9
	}
	return 1e-4
}

// firstDifference compares step by step: observables, the gradients of the first step, the norm; then the weights after
// the last.
func (j *job) firstDifference(o *job, got, want *Report) (*oracle.Difference, int) {
	tol, compared := j.tolerance(), 0
	first := j.first()
	for i, w := range want.Steps {
		d, n := oracle.FirstDifference(j.record, o.record, first+i, tol)
		compared += n
		if d == nil && i == 0 {
			d = differShards("", j.probes[first], o.probes[first], first+1, tol, nil)
		}
		if d == nil && i == 0 {
			d = differShards("grad.", j.grads[first], o.grads[first], first+1, tol, nil)
		}
		if d == nil {
			d = differNorm(got, w, i, tol)
		}
		if d != nil {
			return d, compared
		}
	}
	last := j.s.Train.TrainIters
	return differShards("weight.", j.weights[last], o.weights[last], last, tol, o.reach), compared
}

// differNorm compares the norm of the gradient of the i-th step of the run, which got may not have reached.
func differNorm(got *Report, want StepFigures, i int, tol float64) *oracle.Difference {
	d := &oracle.Difference{Quantity: "grad_norm", Step: want.Step, Microbatch: -1, Want: want.GradNorm}
	if i >= len(got.Steps) {
		d.Note = "the run ended before: " + got.Error
		return d
	}
	if d.Got = got.Steps[i].GradNorm; math.Abs(d.Got-d.Want) <= tol*oracle.Scale(d.Want) {
		return nil
	}
	return d
}

// differShards compares gathered tensors; replicas that drifted apart are a difference too.
func differShards(prefix string, got, want *gathering, step int, tol float64, reach *oracle.Reach) *oracle.Difference {
	if want == nil {
		return nil
	}
	w, err := want.All()
	if err == nil && got != nil {
		var g []oracle.Whole
		if g, err = got.All(); err == nil {
			return oracle.DifferWhole(prefix, g, w, step, tol, reach)
		}
	}
	note, name := "was not seen", strings.TrimSuffix(prefix, ".")
	if err != nil {
		note = err.Error()
	}
	var drift *oracle.DriftError
	if errors.As(err, &drift) {
		name = prefix + drift.Name
	}
	return &oracle.Difference{Quantity: name, Step: step, Microbatch: -1, Note: note}
}

// dead says why a comparison with this run would be no test: nothing is learnt, or the loss is that of guessing.
func (j *job) dead(report *Report) string {
	if g := j.grads[j.first()]; g != nil {
		all, err := g.All()
		zero := err == nil
		for _, w := range all {
			for _, v := range w.Floats() {
				zero = zero && v == 0
			}
		}
		if zero {
			return "every gradient of the first step is zero"
		}
	}
	if j.s.Probe.On() {
		return ""
	}
	counted := false
	guess := kernel.Log(float64(j.s.Model.PaddedVocabSize))
	for _, s := range report.Steps {
		counted = counted || s.LMTokens > 0
		if s.LMTokens > 0 && math.Abs(s.LMLoss-guess) > 1e-9 {
			return ""
		}
	}
	if !counted {
		return "no label counts in any step"
	}
	return fmt.Sprintf("the lm loss is ln %d at every step, that of guessing", j.s.Model.PaddedVocabSize)
}

// otherByDefinition says why one rank has other numbers though nothing is wrong.
func (j *job) otherByDefinition() string {
	dp, m := j.s.Sizes().DP, &j.s.Model
	if dp == 1 || m.NumMoEExperts == 0 {
		return ""
	}
	kind := moe.GlobalAuxLoss.String()
	if !m.MoERouterBalancing.Has(kind) {
		return ""
	}
	return fmt.Sprintf("%s counts the %d data-parallel ranks of a microbatch together, one rank counts its microbatches "+
		"one after another: the two differ by definition", kind, dp)
}

// sameRows says whether all data-parallel ranks hold the same rows, so that a missing reduction would not show.
func (j *job) sameRows() string {
	dp, n := j.s.Sizes().Of(mesh.DP), j.s.NumMicrobatches()
	if dp == 1 {
		return ""
	}
	for m := range n {
		first := j.train.Microbatch(j.first(), m)
		for r := 1; r < dp; r++ {
			if !slices.Equal(first.IDs, j.train.Microbatch(j.first(), r*n+m).IDs) {
				return ""
			}
		}
	}
	return "all data-parallel ranks hold the same rows, so that a missing average would not show"
}

// checkOracle holds same_as: single_rank and detected against the comparison.
func (q quantities) checkOracle(e config.Expect) (bool, string) {
	v := q.oracle
	switch {
	case v == nil:
		return false, "the comparison did not take place"
	case v.dead != "":
		return false, "not a test: " + v.dead
	case e.Detected && v.first == nil:
		return false, fmt.Sprintf("no difference in %d values: nothing was detected", v.compared)
	case e.Detected:
		return e.First == "" || e.First == v.first.Quantity, "first difference: " + v.first.String()
	case v.first != nil:
		return false, "first difference: " + v.first.String()
	}
	return true, fmt.Sprintf("no difference in %d values of the single rank", v.compared)
}

// checkFile holds same_as: FILE: the figures of another run's report, or its weights.
func (q quantities) checkFile(e config.Expect) (bool, string) {
	path := q.j.found(e.SameAs)
	if isReport(path) {
		return q.sameReport(path, e.Tolerance)
	}
	f, err := checkpoint.OpenAny(path)
	if err != nil {
		return false, err.Error()
	}
	defer f.Close()
	var want []oracle.Whole
	for _, name := range f.Names() {
		x, err := f.Float64s(name)
		if err != nil {
			return false, err.Error()
		}
		want = append(want, oracle.Whole{Name: name, F64: x})
	}
	if d := oracle.DifferWhole("weight.", q.final, want, q.j.s.Train.TrainIters, e.Tolerance, nil); d != nil {
		return false, "first difference: " + d.String()
	}
	return true, fmt.Sprintf("no difference in %d tensors of %s", len(want), e.SameAs)
}

// ended says whether a run that ended in an error may still be judged: ranks that disagree are what a detection is.
func (j *job) ended(err error) bool {
	var diverged *actors.DivergenceError
	var report *actors.ReportError
	return j.expectsDetection() && (errors.As(err, &diverged) || errors.As(err, &report))
}
