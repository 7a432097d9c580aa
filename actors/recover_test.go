package actors

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/transport"
)

// The tests in this file train real models and let ranks panic.

const recoverSteps = 4

// trained is what a run has done: the hash of every rank's whole state after the last step, and what it reported.
type trained struct {
	states   []string
	reports  []messages.StepReport
	restarts []messages.Restarted
	lives    []int // by rank
	result   *Result
	err      error
}

// trainWith trains with recovery; hook may panic.
func trainWith(t *testing.T, s *config.Scenario, source model.Source, n transport.Network, every int, hook func(rank int, at Passage)) trained {
	t.Helper()
	return trainWrapped(t, s, source, n, every, hook, func(Life, []func(nn.Comm)) {})
}

// trainWrapped is trainWith with programs that wrap changes.
func trainWrapped(t *testing.T, s *config.Scenario, source model.Source, n transport.Network, every int, hook func(rank int, at Passage),
	wrap func(Life, []func(nn.Comm))) trained {
	t.Helper()
	return trainJob(t, s, source, n, every, wrap, func(j *Job) { j.Hook = hook })
}

// trainJob is trainWrapped with a job that change changes.
func trainJob(t *testing.T, s *config.Scenario, source model.Source, n transport.Network, every int, wrap func(Life, []func(nn.Comm)), change func(*Job)) trained {
	t.Helper()
	var mu sync.Mutex
	world := s.Sizes().World()
	out := trained{states: make([]string, world), lives: make([]int, world)}
	programs := func(rank int, l Life, emit func(messages.Event)) ([]func(nn.Comm), error) {
		mu.Lock()
		out.lives[rank]++
		mu.Unlock()
		programs, err := model.Programs(model.Env{Scenario: s, Rank: rank, Train: source, Emit: emit, Local: l.Local, Boundary: func(step int, local func() []byte) {
			if step == recoverSteps {
				mu.Lock()
				out.states[rank] = fmt.Sprintf("%x", sha256.Sum256(local()))
				mu.Unlock()
			}
			l.Boundary(step, local)
		}})
		if err == nil {
			wrap(l, programs)
		}
		return programs, err
	}
	j := Job{Sizes: s.Sizes(), Network: n, Run: messages.RunHash(runID), Build: 9, StallTimeout: 4 * time.Second,
		Recovery: &Recovery{Every: every, Budget: recovery.NewBudget(), Programs: programs},
		Listen: func(e messages.Event) {
			switch e := e.(type) {
			case messages.StepReport:
				out.reports = append(out.reports, e)
			case messages.Restarted:
				out.restarts = append(out.restarts, e)
			}
		}}
	change(&j)
	out.result, out.err = runJob(t, j)
	return out
}

// panicsAt is a hook that panics when a rank passes a point for the nth time.
func panicsAt(rank int, point string, count int) func(int, Passage) {
	var mu sync.Mutex
	passed := 0
	return func(r int, p Passage) {
		if r != rank || p.Point != point {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if passed++; passed == count {
			panic(fmt.Errorf("planted at %s %d", point, count))
		}
	}
}

var recoverLayouts = []struct {
	name string
	l    trial.Layout
	ep   int
}{
	{"tp2", trial.Layout{TP: 2, CP: 1, DP: 1}, 1},
	{"pp2", trial.Layout{TP: 1, CP: 1, DP: 1, PP: 2}, 1},
	{"ep2", trial.Layout{TP: 1, CP: 1, DP: 2}, 2},
	{"cp2", trial.Layout{TP: 1, CP: 2, DP: 1}, 1},
	{"tp2-sp-cp2", trial.Layout{TP: 2, CP: 2, DP: 1, SP: true}, 1},
}

// A rank that panics at any point starts again alone: nobody else does, and every rank ends with the bits of a quiet run.
func TestPanicsAtEveryPoint(t *testing.T) {
	points := map[string]int{BeforeSend: 9, AfterSend: 10, BeforeApply: 11, BeforeSnapshot: 2, AfterSnapshot: 2, BeforeCommit: 1}
	for _, c := range recoverLayouts {
		t.Run(c.name, func(t *testing.T) {
			s, source := trial.Toy(c.l, c.ep, recoverSteps)
			quiet := trainWith(t, s, source, newNetwork(t, "direct", 0), 1, nil)
			require.NoError(t, quiet.err)
			require.Zero(t, quiet.result.Restarts)
			require.Zero(t, quiet.result.Duplicates)
			require.Zero(t, quiet.result.Replayed)
			require.Len(t, quiet.reports, recoverSteps)
			require.NotContains(t, quiet.states, "")
			overEveryNetwork(t, func(t *testing.T, open func() transport.Network) {
				for point, count := range points {
					t.Run(point, func(t *testing.T) {
						got := trainWith(t, s, source, open(), 1, panicsAt(1, point, count))
						require.NoError(t, got.err)
						require.Equal(t, quiet.states, got.states)
						require.Equal(t, quiet.reports, got.reports)
						require.Equal(t, 1, got.result.Restarts)
						for rank, lives := range got.lives {
							if rank != 1 {
								require.Equal(t, 1, lives, "rank %d has not died", rank)
							}
						}
						// One more where peers commit a step while the rank is dead: it jumps to its own snapshot of it.
						require.Contains(t, []int{2, 3}, got.lives[1])
						require.Equal(t, quiet.result.Ops, got.result.Ops, "operations are counted once")
						require.Len(t, got.restarts, 1)
						require.Contains(t, got.restarts[0].Cause, "planted at "+point)
					})
				}
			})
		})
	}
}

// A panic in the stage program or in a depth's is a death of the rank too. The next life gets further.
func TestPanicsInPrograms(t *testing.T) {
	s, source := trial.Toy(trial.Layout{TP: 2, CP: 1, DP: 1}, 1, recoverSteps)
	quiet := trainWith(t, s, source, newNetwork(t, "direct", 0), 1, nil)
	require.NoError(t, quiet.err)
	for program := range 2 {
		got := trainWrapped(t, s, source, newNetwork(t, "direct", 0), 2, nil, func(l Life, programs []func(nn.Comm)) {
			if code := programs[program]; l.Incarnation == 1 {
				programs[program] = func(c nn.Comm) { code(&failing{Comm: c, left: 9}) }
			}
		})
		require.NoError(t, got.err)
		require.Equal(t, 2, got.result.Restarts, "one of each rank")
		require.Equal(t, quiet.states, got.states)
		require.Equal(t, quiet.reports, got.reports)
	}
}

// failing panics after some operations.
type failing struct {
	nn.Comm
	left int
}

// Do implements nn.Comm.
func (f *failing) Do(op *nn.Op) {
	if f.left--; f.left < 0 {
		panic("out of operations")
	}
	f.Comm.Do(op)
}

// A rank that dies at one place in every life is poison: the run ends and names the place.
func TestPoisonEndsTheRun(t *testing.T) {
	s, source := trial.Toy(trial.Layout{TP: 2, CP: 1, DP: 1}, 1, recoverSteps)
	got := trainWrapped(t, s, source, newNetwork(t, "direct", 0), 1, nil, func(_ Life, programs []func(nn.Comm)) {
		code := programs[1]
		programs[1] = func(c nn.Comm) {
			if c.Rank(0) == 1 {
				c = &failing{Comm: c, left: 5}
			}
			code(c)
		}
	})
	var e *RestartError
	require.ErrorAs(t, got.err, &e)
	require.True(t, e.Poison)
	require.Regexp(t, `^rank 1 has died 3 times at program mtp\.1, last collective at step \d.*: it would die there again; the last time: rank 1 .* panic: out of operations`, got.err.Error())
	require.Equal(t, 3, got.lives[1])
	require.Equal(t, 1, got.lives[0], "the other rank does not go back")
}
