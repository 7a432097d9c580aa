package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"go.uber.org/zap"

	"phalanx/config"
	"phalanx/internal/golden"
	"phalanx/mesh"
	"phalanx/oracle"
)

// VerifyOptions say at which layout a reference case runs. A size of 0 is the case's own: 1, and its
// data_parallel_size for DP.
type VerifyOptions struct {
	Sizes        mesh.Sizes
	EP, ETP, VPP int
	SP           bool
	DType        string   // fp64 (default) | fp32
	Overrides    []string // section.key=value
	NATS         string
	Procs        int      // as in Options
	Self         []string // as in Options
	OnAbandon    func(cleanup func()) (done func())
	Logger       *zap.Logger
}

// VerifyResult is one case at one layout.
type VerifyResult struct {
	Case       string
	Layout     map[string]int
	DType      string
	OK         bool
	Quantities []oracle.Quantity
	Report     *Report
}

// MarshalJSON writes the contract's object.
func (r *VerifyResult) MarshalJSON() ([]byte, error) {
	worst := map[string]any{}
	for _, q := range r.Quantities {
		worst[q.Name] = number(q.Error)
	}
	return marshalOrdered([]field{{"case", r.Case}, {"layout", r.Layout}, {"dtype", r.DType}, {"ok", r.OK}, {"quantities", worst}})
}

var _ json.Marshaler = (*VerifyResult)(nil)

// RefusedError is a layout or a case that this version cannot take, with the reason.
type RefusedError struct {
	What string // case or scenario
	Err  error
}

func (e *RefusedError) Error() string { return e.What + ": refused: " + e.Err.Error() }

// Unwrap gives the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// Verify runs a reference case and compares everything it expects.
func Verify(ctx context.Context, casePath string, v VerifyOptions) (*VerifyResult, error) {
	c, err := golden.Load(casePath)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s, err := caseScenario(c, v)
	if err != nil {
		return nil, &RefusedError{What: casePath, Err: err}
	}
	j, err := newJob(s, Options{NATS: v.NATS, Procs: v.Procs, Self: v.Self, OnAbandon: v.OnAbandon, Logger: v.Logger})
	if err != nil {
		return nil, err
	}
	j.verifies(c)
	report, err := j.run(ctx)
	if err != nil {
		return nil, err
	}
	return j.compare(c, report)
}

// verifies makes the job one that runs a reference case, from its weights.
func (j *job) verifies(c *golden.Case) {
	j.golden = c.Path
	j.observes = oracle.RecordsCase
	j.record = oracle.NewRecorder(j.s.Sizes(), j.s.NumMicrobatches(), j.observes)
	j.keepStep0 = true
	j.initial = func(name string) ([]float64, error) {
		a, err := c.Param(name)
		return a.Data, err
	}
}

func (j *job) compare(c *golden.Case, report *Report) (*VerifyResult, error) {
	o := oracle.Outcome{Record: j.record}
	var err error
	if o.Grads, err = j.grads[0].All(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	if o.Final, err = j.weights[j.s.Train.TrainIters].All(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	for _, s := range report.Steps {
		o.GradNorms = append(o.GradNorms, s.GradNorm)
	}
	qs, err := oracle.Compare(c, o, j.s.Train.DType)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	r := &VerifyResult{Case: c.Name, Layout: layout(&j.s), DType: j.s.Train.DType, OK: true, Quantities: qs, Report: report}
	for _, q := range qs {
		r.OK = r.OK && q.OK()
	}
	return r, nil
}

// layout is the sizes that a case ran at. A scenario that was built has a pipeline layout.
func layout(s *config.Scenario) map[string]int {
	sizes := s.Sizes()
	sp, vpp := 0, 1
	if l, err := s.Model.PipelineLayout(); err == nil {
		vpp = l.VPP
	}
	if s.Model.SequenceParallel {
		sp = 1
	}
	return map[string]int{"tp": sizes.TP, "cp": sizes.CP, "pp": sizes.PP, "dp": sizes.DP,
		"ep": max(sizes.EP, 1), "etp": max(sizes.ETP, 1), "vpp": vpp, "sp": sp}
}

// caseScenario is the scenario that runs a case at a layout. It goes through the same checks as a user's file.
func caseScenario(c *golden.Case, v VerifyOptions) (config.Scenario, error) {
	model, optimizer, problems := config.FromReference(c.Config, c.Optimizer)
	if len(problems) > 0 {
		return config.Scenario{}, problems
	}
	if dp := v.Sizes.DP; model.MoERouterBalancing.Has("global_aux_loss") && dp != 0 && dp != max(c.DataParallelSize, 1) {
		return config.Scenario{}, fmt.Errorf("found data-parallel size %d, expected %d: global_aux_loss pools over the data-parallel ranks, so that the case has one size", dp, max(c.DataParallelSize, 1))
	}
	b, seq := c.BatchShape()
	s := config.Scenario{Name: c.Name, Model: model, Optimizer: optimizer}
	s.Train = config.Train{TrainIters: len(c.Steps), MicroBatchSize: b, GlobalBatchSize: b * len(c.Steps[0].Microbatches), DType: "fp64"}
	path, err := filepath.Abs(c.Path) // from the working folder, not from the scenario's
	if err != nil {
		return config.Scenario{}, err
	}
	s.Dataset = config.Dataset{Kind: "reference", Path: path, SeqLength: seq}
	file, problems := config.Parse(c.Path, s.Normalised(), append(layoutOverrides(c, v), v.Overrides...))
	if len(problems) > 0 {
		return config.Scenario{}, unplaced(problems, c.Path)
	}
	runs := file.Runs()
	if len(runs) != 1 {
		return config.Scenario{}, errors.New("a reference case has no variants")
	}
	return runs[0], nil
}

// unplaced takes away the places that are none: lines of a text that nobody has seen. What an override says keeps its place.
func unplaced(problems config.Problems, path string) config.Problems {
	for i := range problems {
		if problems[i].File == path {
			problems[i].File, problems[i].Line, problems[i].Column = "", 0, 0
		}
	}
	return problems
}

// layoutOverrides are the flags of verify as overrides of the keys they stand for.
func layoutOverrides(c *golden.Case, v VerifyOptions) []string {
	or1 := func(n int) int { return max(n, 1) }
	tp, cp, pp, dp := or1(v.Sizes.TP), or1(v.Sizes.CP), or1(v.Sizes.PP), v.Sizes.DP
	if dp == 0 {
		dp = or1(c.DataParallelSize)
	}
	set := func(key string, n int) string { return key + "=" + strconv.Itoa(n) }
	out := []string{set("model.tensor_model_parallel_size", tp), set("dist.world_size", tp*cp*pp*dp)}
	for key, n := range map[string]int{"model.context_parallel_size": cp, "model.pipeline_model_parallel_size": pp,
		"model.expert_model_parallel_size": v.EP, "model.expert_tensor_parallel_size": v.ETP,
		"model.virtual_pipeline_model_parallel_size": v.VPP} {
		if n > 1 {
			out = append(out, set(key, n))
		}
	}
	if v.SP {
		out = append(out, "model.sequence_parallel=true")
	}
	if v.DType != "" {
		out = append(out, "train.dtype="+v.DType)
	}
	return out
}
