package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/actors"
	"phalanx/checkpoint"
	"phalanx/config"
)

// stopSteps is longer than any of these runs takes to be stopped.
const stopSteps = 400

// asked is a run of four processes that is asked to stop.
type asked struct {
	*killer
	stop   chan struct{}
	once   sync.Once
	after  int // steps; 0: before the first
	dir    string
	report *Report
	err    error
}

// step asks for the end, and kills at the same moment.
func (a *asked) step(s StepFigures, _ Timing) {
	if s.Step >= a.after {
		a.once.Do(a.ask)
	}
}

func (a *asked) ask() {
	kill := func() {
		for range a.kills {
			a.modes[a.rng.IntN(len(a.modes))](a.killer)
			time.Sleep(time.Duration(a.rng.IntN(60)) * time.Millisecond)
		}
	}
	first := a.rng.IntN(2) == 0
	if first {
		kill()
	}
	time.Sleep(time.Duration(a.rng.IntN(20)) * time.Millisecond)
	close(a.stop)
	if !first {
		time.Sleep(time.Duration(a.rng.IntN(150)) * time.Millisecond)
		kill()
	}
}

// stopped runs until it has stopped.
func stopped(t *testing.T, layout string, after, kills int, seed uint64, modes []func(*killer), overrides ...string) *asked {
	t.Helper()
	return stoppedInto(t, "", layout, after, kills, seed, modes, overrides...)
}

// stoppedInto is stopped with a folder for what the run leaves.
func stoppedInto(t *testing.T, out, layout string, after, kills int, seed uint64, modes []func(*killer), overrides ...string) *asked {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	a := &asked{killer: &killer{t: t, rng: rand.New(rand.NewPCG(seed, 11)), kills: kills, modes: modes}, stop: make(chan struct{}), after: after, dir: t.TempDir()}
	o := Options{Procs: 4, Self: []string{os.Args[0]}, Out: out, Stop: a.stop, Listen: Listener{Step: a.step}}
	var err error
	a.j, err = newJob(stopScenario(t, layout, stopSteps, append(overrides, "checkpoint.save="+a.dir)...), o)
	require.NoError(t, err)
	if after == 0 {
		a.once.Do(a.ask)
	}
	a.run(t)
	return a
}

func (a *asked) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	a.report, a.err = a.j.run(ctx)
	requireNoProcess(t, a.j.launched.dir)
}

// stopScenario has the schedule of the long run, however many steps of it are made.
func stopScenario(t *testing.T, layout string, steps int, overrides ...string) config.Scenario {
	t.Helper()
	file, problems := config.Parse(layout, []byte(killScenarios[layout]), append(overrides,
		fmt.Sprintf("scheduler.lr_decay_iters=%d", stopSteps), fmt.Sprintf("train.train_iters=%d", steps)))
	require.Empty(t, problems)
	return file.Runs()[0]
}

// requireStopped holds what is promised of a run that was asked to stop: the message, the code, a checkpoint of the last step that
// was told and none later, and that the run that goes on from it comes to the bits of one that was never stopped.
func (a *asked) requireStopped(t *testing.T, layout string) (steps int) {
	t.Helper()
	require.ErrorIs(t, a.err, actors.ErrInterrupted, "after %v", a.done)
	require.Equal(t, ExitInterrupted, ExitCode(a.err))
	steps = len(a.report.Steps)
	require.EqualError(t, a.err, fmt.Sprintf("interrupted: stopped after step %d of %d", steps, stopSteps))
	for i, s := range a.report.Steps {
		require.Equal(t, i+1, s.Step)
	}
	require.Equal(t, checkpoint.IterationDir(a.dir, steps), a.report.Checkpoint, "after %v", a.done)
	all, err := filepath.Glob(filepath.Join(a.dir, "iter_*"))
	require.NoError(t, err)
	require.Equal(t, checkpoint.IterationDir(a.dir, steps), all[len(all)-1])
	quiet := []string{"transport.colocated=direct", "recovery.snapshot_every=0"}
	straight, err := Execute(context.Background(), stopScenario(t, layout, steps+2, quiet...), Options{})
	require.NoError(t, err)
	rest, err := Execute(context.Background(), stopScenario(t, layout, steps+2, append(quiet, "checkpoint.save="+a.dir)...), Options{Resume: true})
	require.NoError(t, err)
	require.Len(t, rest.Steps, 2)
	require.Equal(t, straight.WeightsSHA256, rest.WeightsSHA256, "stopped after step %d, %v", steps, a.done)
	return steps
}

// Processes that are asked to stop end after one step with a checkpoint, whoever is killed meanwhile.
func TestProcessesStop(t *testing.T) {
	for _, layout := range []string{"tp2-sp-cp2", "pp2-dp2"} {
		t.Run(layout, func(t *testing.T) {
			a := stopped(t, layout, 5, 0, 1, nil)
			require.GreaterOrEqual(t, a.requireStopped(t, layout), 5)
			require.Zero(t, a.report.Restarts)
		})
	}
}

// The same while ranks are killed, some or all, before and behind the request; servers and supervisors too.
func TestKilledProcessesStop(t *testing.T) {
	for seed := range uint64(kills(6)) {
		layout := []string{"tp2-sp-cp2", "pp2-dp2"}[seed%2]
		t.Run(fmt.Sprintf("%s seed %d", layout, seed), func(t *testing.T) {
			modes, more := []func(*killer){killOne, killSome, killAll}, []string{"checkpoint.save_interval=2"}
			if seed%3 == 2 {
				modes, more = append(modes, killServer, killLeader, stopOne), append(more, "transport.servers=3", "recovery.supervisors=3")
			}
			a := stopped(t, layout, 3+int(seed%5), 2, seed, modes, more...)
			t.Logf("stopped after step %d, %d restarts, %v", a.requireStopped(t, layout), a.report.Restarts, a.done)
		})
	}
}

// Every rank of a run that was asked to stop, and killed meanwhile, can be run again alone, as far as the run went.
func TestStoppedProcessesAreReplayed(t *testing.T) {
	out := t.TempDir()
	a := stoppedInto(t, out, "pp2-dp2", 4, 2, 3, []func(*killer){killOne, killAll}, "recovery.recording=true")
	steps := a.requireStopped(t, "pp2-dp2")
	for rank := range 4 {
		r, err := Replay(context.Background(), out, ReplayOptions{Rank: rank})
		require.NoError(t, err)
		require.Nil(t, r.Divergence, "rank %d after %v", rank, a.done)
		require.EqualValues(t, steps, r.Steps)
		require.Empty(t, r.Ended)
	}
}

// A run that has not begun a step is stopped before its first one, and has nothing to save.
func TestProcessesStopBeforeTheFirstStep(t *testing.T) {
	a := stopped(t, "pp2-dp2", 0, 0, 1, nil)
	require.EqualError(t, a.err, fmt.Sprintf("interrupted: stopped after step 0 of %d", stopSteps))
	require.Empty(t, a.report.Steps)
	require.Empty(t, a.report.Checkpoint)
}

// slowed is a run whose rank 1 takes its time with a step, in which it is asked to stop.
func slowed(t *testing.T, step, steps int) *asked {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	fault := fmt.Sprintf("faults=[{at: {rank: 1, hook: layer.0.forward, step: %d}, action: slow, ms: 1500}]", step)
	ask := func(*killer) { time.Sleep(400 * time.Millisecond) } // until everybody is in the step, and has said so
	a := &asked{killer: &killer{t: t, rng: rand.New(rand.NewPCG(1, 0)), kills: 1, modes: []func(*killer){ask}}, stop: make(chan struct{}), after: step - 1, dir: t.TempDir()}
	var err error
	a.j, err = newJob(stopScenario(t, "pp2-dp2", steps, fault, "checkpoint.save="+a.dir), Options{Procs: 4, Self: []string{os.Args[0]}, Stop: a.stop, Listen: Listener{Step: a.step}})
	require.NoError(t, err)
	a.run(t)
	return a
}

// The step in progress is the last one that is made.
func TestProcessesFinishTheirStep(t *testing.T) {
	a := slowed(t, 6, stopSteps)
	require.Equal(t, 6, a.requireStopped(t, "pp2-dp2"))
}

// A run that is asked to stop in its last step ends as if nobody had asked.
func TestProcessesStopInTheLastStep(t *testing.T) {
	a := slowed(t, 6, 6)
	require.NoError(t, a.err)
	require.Len(t, a.report.Steps, 6)
	require.Equal(t, checkpoint.IterationDir(a.dir, 6), a.report.Checkpoint)
	require.NotEmpty(t, a.report.WeightsSHA256)
}

// Servers may be away when the end is asked for: it comes when they are back.
func TestProcessesStopWithoutServers(t *testing.T) {
	standing := func(k *killer) {
		c := k.j.launched.servers[0]
		c.mu.Lock()
		pid := c.process.PID()
		c.mu.Unlock()
		require.NoError(k.t, suspend(pid))
	}
	a := stopped(t, "tp2-sp-cp2", 4, 1, 0, []func(*killer){standing})
	a.requireStopped(t, "tp2-sp-cp2")
	require.Greater(t, a.j.launched.servers[0].lives(), 1)
}
