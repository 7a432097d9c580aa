package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"

	"phalanx/collective"
	"phalanx/config"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/recording"
	"phalanx/replay"
	"phalanx/snapshot"
	"phalanx/tensor/kernel"
	"phalanx/train"
)

// ReplayOptions say what of a recording is run again.
type ReplayOptions struct {
	Rank int
	From int    // steps that are done at the beginning: the last snapshot at or before them; 0: the beginning of the run
	Stop string // HOOK or HOOK:COUNT, where it stops; "": at the end
	// Start is told, before the first step, where the replay begins. Step is told every step that is done. Either may be nil.
	Start func(ReplayStart)
	Step  func(messages.StepDone)
}

// ReplayStart is where a replay begins.
type ReplayStart struct {
	Name              string
	Rank, From, Steps int
	Asked             int // the step that was asked for
	Lives             []recording.LifeOf
	Warnings          []string // files of the recording that are left out
}

// ReplayError is a recording that cannot be replayed, or not with these options: exit 2.
type ReplayError struct{ Err error }

func (e *ReplayError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *ReplayError) Unwrap() error { return e.Err }

// Replay runs one rank of a recorded run again, alone, and compares what it does with what it did. dir is the run's --out, or the
// folder of the recording itself. What is wrong with the recording is a *ReplayError; a divergence is in the result.
func Replay(ctx context.Context, dir string, o ReplayOptions) (replay.Result, error) {
	dir, err := recordingIn(dir)
	if err != nil {
		return replay.Result{}, &ReplayError{err}
	}
	r, build, j, err := replayed(dir)
	if err != nil {
		return replay.Result{}, &ReplayError{err}
	}
	if o.Rank < 0 || o.Rank >= r.World {
		return replay.Result{}, &ReplayError{errors.Join(fmt.Errorf("--rank: found %d, the run had ranks 0 to %d", o.Rank, r.World-1), j.close())}
	}
	tape, err := recording.Open(dir, r, o.Rank, build)
	if err != nil {
		return replay.Result{}, &ReplayError{errors.Join(err, j.close())}
	}
	result, err := j.replayTape(ctx, r, tape, o)
	return result, errors.Join(err, tape.Close(), j.close())
}

// recordingIn is the folder of the recording in a run's folder, or that folder itself.
func recordingIn(dir string) (string, error) {
	inner := filepath.Join(dir, recordingDir)
	if st, err := os.Stat(inner); err == nil && st.IsDir() {
		return inner, nil
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", &recording.FileError{Path: dir, Err: errors.New("no such folder"), Hint: "name the --out folder of a run with recovery.recording: true"}
	}
	return dir, nil
}

// replayed is the run that a folder is the recording of, ready to give programs.
func replayed(dir string) (r recording.Run, build uint64, j *job, err error) {
	if r, err = recording.ReadRun(dir); err != nil {
		return r, 0, nil, err
	}
	path := filepath.Join(dir, recording.ScenarioName)
	file, problems := config.Load(path, nil)
	if len(problems) > 0 {
		return r, 0, nil, problems
	}
	s := file.Runs()[0]
	s.Dir, s.NeedsProcs = r.Folder, nil // what it needed processes for, a replay does not do
	if now := BuildVersion(); now != r.Source {
		return r, 0, nil, &recording.FileError{Path: dir, Err: fmt.Errorf("it was recorded by %q, this program is %q", r.Source, now), Hint: "replay it with the program that recorded it"}
	}
	build = buildID(&s)
	if now := buildText(build); now != r.Build {
		return r, 0, nil, &recording.FileError{Path: path, Err: fmt.Errorf("found a scenario of build %s, the recording is of %s", now, r.Build), Hint: "the scenario has been changed since: restore it, or record again"}
	}
	j, err = asRecorded(s, r)
	return r, build, j, err
}

// asRecorded is the job of the run. What it loaded may be gone: only a replay of its beginning needs it.
func asRecorded(s config.Scenario, r recording.Run) (*job, error) {
	s.Checkpoint.Load, s.Checkpoint.CkptStep = r.Loaded, 0
	if _, err := os.Stat(r.Loaded); r.Loaded != "" && err != nil {
		s.Checkpoint.Load = ""
	}
	j, err := newJob(s, Options{Out: r.Out})
	if err != nil {
		return nil, err
	}
	if s.Checkpoint.Load == "" && r.First > 0 {
		at := train.Position{Iteration: r.First, Samples: r.Samples}
		j.resume = &model.Resume{Position: at}
		if err := j.goOn(at); err != nil {
			return nil, errors.Join(err, j.close())
		}
	}
	return j, nil
}

// replayTape replays a tape.
func (j *job) replayTape(ctx context.Context, r recording.Run, tape *recording.Tape, o ReplayOptions) (replay.Result, error) {
	ro := replay.Options{Tape: tape, Place: collective.Place{Rank: o.Rank, Sizes: j.s.Sizes(), Stopped: func() bool { return ctx.Err() != nil }}, Step: o.Step,
		Programs: func(w replay.World) ([]func(nn.Comm), error) { return j.programsIn(w, o.Rank) }}
	var err error
	if o.Stop != "" {
		if ro.StopAt, err = replay.ParsePoint(o.Stop); err != nil {
			return replay.Result{}, &ReplayError{fmt.Errorf("--stop-at: %w", err)}
		}
		if err = j.s.CheckHook(ro.StopAt.Hook, o.Rank); err != nil {
			return replay.Result{}, &ReplayError{fmt.Errorf("--stop-at: %w", err)}
		}
	}
	if ro.From, err = j.beginning(r, tape, o.From); err != nil {
		return replay.Result{}, &ReplayError{err}
	}
	if o.Start != nil {
		start := ReplayStart{Name: j.s.Name, Rank: o.Rank, From: max(int(ro.From.At.Step), r.First), Asked: o.From, Steps: j.s.Train.TrainIters, Lives: tape.Lives}
		for _, err := range tape.Damage {
			start.Warnings = append(start.Warnings, err.Error())
		}
		o.Start(start)
	}
	threads := j.s.Train.Threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	kernel.SetThreads(threads)
	result, err := replay.Run(ro)
	if ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, err
}

// beginning is the last snapshot at or before a step, of lives that were recorded because of a death that of the last one; the
// zero value is the beginning of the run.
func (j *job) beginning(r recording.Run, tape *recording.Tape, from int) (s snapshot.State, err error) {
	steps := tape.Snapshots.List()
	if from < 0 || from > j.s.Train.TrainIters {
		return s, fmt.Errorf("--from-step: found %d, expected 0 to %d", from, j.s.Train.TrainIters)
	}
	first := uint32(0)
	if !j.s.Recovery.Recording { // else it is recorded from the beginning of the run on: if that is not there, it is lost
		first = tape.Lives[len(tape.Lives)-1].Step
	}
	i := sort.Search(len(steps), func(i int) bool { return int(steps[i]) > max(from, int(first)) })
	if first > 0 { // of a life that followed a death; what came before it was not to be recorded
		i = max(i, 1+sort.Search(len(steps), func(i int) bool { return steps[i] >= first }))
	}
	switch {
	case i > len(steps):
		return s, fmt.Errorf("what is recorded begins after step %d, of which there is no snapshot: found those of %v", first, steps)
	case i > 0:
		sections, err := tape.Snapshots.Sections(steps[i-1])
		if err != nil {
			return s, err
		}
		return snapshot.StateOf(sections)
	}
	if r.Loaded != "" && j.s.Checkpoint.Load == "" {
		return s, fmt.Errorf("%s is gone, which the run began with; begin at a snapshot: --from-step one of %v", r.Loaded, steps)
	}
	return s, nil
}

// programsIn are the programs of a rank in the world of a replay.
func (j *job) programsIn(w replay.World, rank int) ([]func(nn.Comm), error) {
	env := j.env(rank, w.Emit)
	env.Local, env.Boundary, env.Point = w.Local, w.Boundary, w.Point
	env.Stop = func(_ nn.Comm, step int) bool { return w.Stop(step) }
	if env.Save != nil {
		env.Save = func(model.Snapshot) ([]byte, error) { return nil, nil } // the checkpoints are the run's
	}
	env.Shards = func(what string, _ int, views []model.ShardView) {
		if what == "weights" {
			w.Weights(sumOf(views))
		}
	}
	return model.Programs(env)
}
