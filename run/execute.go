package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/actors"
	"phalanx/config"
	"phalanx/data"
	"phalanx/internal/disk"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/oracle"
	"phalanx/tensor/kernel"
	"phalanx/train"
	"phalanx/transport"
)

// job is one scenario on its way from file to report.
type job struct {
	s        config.Scenario
	o        Options
	data     *data.Data
	train    data.Source                      // data's, from the first step of this run on
	record   *oracle.Recorder                 // nil: nobody looks
	observes func(name string, step int) bool // what is recorded; nil: nothing
	golden   string                           // file of the reference case that is run; "": none
	initial  func(string) ([]float64, error)  // nil: initialise
	resume   *model.Resume                    // nil: begin
	// What was loaded: closed at the end of the run, its path, and the event that tells it.
	loaded     io.Closer
	loadedFrom string
	began      messages.Event
	gate       gate
	routing    *routing // nil: routers choose, and nothing is kept
	// keepStep0 keeps the gradients of the first step whatever the expectations read.
	keepStep0 bool
	// reach, of an oracle's one rank, follows the gradients of every step; nil: nobody asks.
	reach *oracle.Reach

	mu        sync.Mutex
	grads     map[int]*gathering // by 0-based step
	weights   map[int]*gathering // by steps done
	probes    map[int]*gathering // by 0-based step
	lives     lives
	faults    *faults
	recorders recorders
	bundle    string // folder of lives after a panic, see beginBundle; "": there is none
	saver     saver
	launched  *launch // a run of several processes
	figures   figures
}

// gathering is the shards of one moment, until every rank has given its own.
type gathering struct{ *oracle.Gatherer }

// Execute runs one scenario. The error says why it could not run or why it failed; whether its expectations held is
// the report's verdict. A report comes with a failed run too, as far as it got.
func Execute(ctx context.Context, s config.Scenario, o Options) (*Report, error) {
	j, err := newJob(s, o)
	if err != nil {
		return nil, err
	}
	if err := j.checkFiles(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j.run(ctx)
}

func newJob(s config.Scenario, o Options) (*job, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if len(s.NeedsProcs) > 0 && o.Procs == 0 && !o.worker {
		return nil, s.NeedsProcs
	}
	d, err := data.Open(&s)
	if err != nil {
		return nil, err
	}
	j := &job{s: s, o: o, data: d, train: d.Train, grads: map[int]*gathering{}, weights: map[int]*gathering{}, probes: map[int]*gathering{}}
	j.figures.s, j.figures.now = &j.s, time.Now
	j.saver = saver{j: j, disk: disk.OS{}}
	if err := j.start(); err != nil {
		return nil, errors.Join(&KeyError{"checkpoint.load", err}, j.close())
	}
	j.gate.begun = j.first()
	if j.observes = j.wants(); j.observes != nil {
		j.record = oracle.NewRecorder(s.Sizes(), s.NumMicrobatches(), j.observes)
	}
	if j.faults, err = newFaults(s.Faults, ""); err != nil {
		return nil, errors.Join(err, j.close())
	}
	if j.routing, err = j.openRouting(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// first is the first step of this run, from 0.
func (j *job) first() int {
	if j.resume == nil {
		return 0
	}
	return j.resume.Position.Iteration
}

// close closes what was loaded.
func (j *job) close() error {
	if j.loaded == nil {
		return nil
	}
	return j.loaded.Close()
}

// run trains and writes the report.
func (j *job) run(ctx context.Context) (*Report, error) {
	defer j.close()
	release, err := j.saver.prepare()
	if err != nil {
		return nil, err
	}
	defer release()
	threads := j.s.Train.Threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	kernel.SetThreads(threads)
	if j.o.Listen.Start != nil {
		plan, err := MakePlan(j.s)
		if err != nil {
			return nil, err
		}
		j.o.Listen.Start(*plan)
	}
	train, name, end, err := j.trainer(ctx)
	if err != nil {
		return nil, err
	}
	if j.began != nil {
		j.tell(j.began)
	}
	if err := j.beginRecording(); err != nil {
		return nil, errors.Join(err, end())
	}
	j.figures.begin()
	running, listening := j.stoppable(ctx)
	result, err := train(running)
	listening()
	bundle, lost := j.endBundle(err)
	err = errors.Join(err, lost, end())
	report := j.report(result, name)
	report.Bundle = bundle
	report.Checkpoint, report.Recording = j.saver.last, j.endRecording()
	if err = errors.Join(err, j.saver.err); err == nil {
		err = j.saveRouting()
	}
	err = errors.Join(err, j.cutShort(err))
	if err != nil {
		report.Verdict, report.Error = "fail", err.Error()
	} else {
		report.FaultsUnused = j.unusedFaults()
	}
	if err != nil && !j.ended(err) {
		return report, err
	}
	return report, j.finish(ctx, report, result)
}

// trainer is what trains: ranks of this process, or of several. name is the transport's; end is called when it has.
func (j *job) trainer(ctx context.Context) (train func(context.Context) (*actors.Result, error), name string, end func() error, err error) {
	if j.o.Procs > 0 {
		if j.launched, err = j.launch(ctx); err != nil {
			return nil, "", nil, err
		}
		return j.launched.train, j.launched.network(), j.launched.stop, nil
	}
	network, err := j.network(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	return func(ctx context.Context) (*actors.Result, error) { return actors.Run(ctx, j.actorJob(network)) }, network.Name(), func() error { return nil }, nil
}

// actorJob is what the actors need to know.
func (j *job) actorJob(network transport.Network) actors.Job {
	return actors.Job{
		Name: j.s.Name, Sizes: j.s.Sizes(), Network: network,
		StallTimeout: time.Duration(j.s.Recovery.CollectiveTimeoutS * float64(time.Second)),
		Logger:       j.o.Logger,
		Listen:       j.listen,
		Compute:      &j.figures.compute,
		Clock:        j.o.ComputeClock,
		Recovery:     j.recovery(),
		Hook:         j.faults.hook(),
		Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
			return model.Programs(j.env(rank, emit))
		},
	}
}

func (j *job) env(rank int, emit func(messages.Event)) model.Env {
	env := model.Env{Scenario: &j.s, Rank: rank, Train: j.train, Emit: emit, Initial: j.initial, Replay: j.replay(), Resume: j.resume, Stop: func(_ nn.Comm, step int) bool { return j.gate.stops(step) }}
	if j.saveDir() != "" {
		env.Save = func(s model.Snapshot) ([]byte, error) { return j.saver.rank(rank, s) }
	}
	if j.data.Validation != nil {
		env.Validation = j.data.Validation
	}
	if j.record != nil {
		env.Observer = j.record.For(rank)
	}
	if j.faults.ofProgram() {
		env.Point = func(point string, step, microbatch int) {
			j.faults.pass(rank, actors.Passage{Point: point, Step: step + 1, Microbatch: microbatch})
		}
	}
	env.Shards = func(what string, step int, shards []model.ShardView) { j.shards(rank, what, step, shards) }
	return env
}

// shards takes one rank's gradients, or its weights after the last step.
func (j *job) shards(rank int, what string, step int, views []model.ShardView) {
	if what == "grads" && j.reach != nil {
		rates := train.NewScheduler(j.s.Optimizer, j.s.Scheduler, j.s.Train).At(step)
		j.reach.Add(max(rates.LR, rates.DecoupledLR), views)
	}
	if what == "grads" && !j.keepsGrads(step) {
		return
	}
	j.gathering(what, step).Add(rank, views)
}

func (j *job) gathering(what string, step int) *gathering {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := map[string]map[int]*gathering{"weights": j.weights, "grads": j.grads, "probe": j.probes}[what]
	if all[step] == nil {
		all[step] = &gathering{Gatherer: oracle.NewGatherer()}
	}
	return all[step]
}

// listen is told every event, one at a time.
func (j *job) listen(e messages.Event) {
	j.tellRecordings()
	switch e := e.(type) {
	case messages.StepReport:
		f, timing := j.figures.step(e)
		if j.o.Listen.Step != nil {
			j.o.Listen.Step(f, timing)
		}
	case messages.EvalReport:
		f := j.figures.eval(e)
		if j.o.Listen.Eval != nil {
			j.o.Listen.Eval(f)
		}
	case messages.SaveReport:
		j.saver.commit(e)
	case messages.Shards:
		if err := j.shown(e); err != nil && j.launched.failed == nil {
			j.launched.failed = err // the end of the run tells
		}
	default:
		if e, ok := e.(messages.Restarted); ok {
			j.lives.recoveryMs = append(j.lives.recoveryMs, e.Ms)
		}
		if j.o.Listen.Event != nil {
			j.o.Listen.Event(e)
		}
	}
}

// finish fills what only a whole run has: weights, expectations, verdict.
func (j *job) finish(ctx context.Context, report *Report, result *actors.Result) error {
	q := quantities{j: j, report: report, result: result}
	if g := j.weights[j.s.Train.TrainIters]; g != nil {
		var err error
		if q.final, err = g.All(); err != nil && !j.expectsDetection() {
			report.Verdict, report.Error = "fail", err.Error()
			return fmt.Errorf("after the last step: %w", err)
		}
		report.WeightsSHA256 = weightsSHA256(q.final)
		report.Reports = j.textReports()
	}
	if j.needsOracle() {
		var err error
		if q.oracle, err = j.compareOracle(ctx, report); err != nil {
			return err
		}
	}
	if j.expectsWithoutFaults() {
		var err error
		if q.quiet, q.quietFinal, err = j.withoutFaults(ctx); err != nil {
			return err
		}
	}
	report.Verdict = "pass"
	for _, e := range j.s.Expect {
		r := q.check(e)
		report.Expect = append(report.Expect, r)
		if !r.OK {
			report.Verdict = "fail"
		}
	}
	return nil
}
