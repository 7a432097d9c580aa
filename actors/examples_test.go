package actors

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/nn"
)

// The tests in this file are public bugs of restarts and of actor runtimes, each as a run of real models.

// twoRanks is a run of two tensor-parallel ranks, and what it comes to when nothing happens.
func twoRanks(t *testing.T) (train func(change func(*Job)) trained, quiet trained) {
	t.Helper()
	s, source := trial.Toy(trial.Layout{TP: 2, CP: 1, DP: 1}, 1, recoverSteps)
	train = func(change func(*Job)) trained {
		return trainJob(t, s, source, newNetwork(t, "direct", 0), 1, func(Life, []func(nn.Comm)) {}, change)
	}
	quiet = train(func(*Job) {})
	require.NoError(t, quiet.err)
	return train, quiet
}

func (got trained) requireQuiet(t *testing.T, quiet trained, restarts int) {
	t.Helper()
	require.NoError(t, got.err)
	require.Equal(t, quiet.states, got.states)
	require.Equal(t, quiet.reports, got.reports)
	require.Equal(t, restarts, got.result.Restarts)
}

// pytorch#135712: each agent counts restarts by itself, and after a death during a recovery some are in another round. Here a
// rank dies while another one recovers: each has incarnations of its own, and both end with the bits of a quiet run.
func TestADeathDuringARecovery(t *testing.T) {
	train, quiet := twoRanks(t)
	var mu sync.Mutex
	first, recovering, second := 0, false, false
	got := train(func(j *Job) {
		j.Hook = func(rank int, at Passage) {
			mu.Lock()
			defer mu.Unlock()
			if rank == 0 && at.Point == BeforeApply {
				if first++; first == 9 {
					panic("the first")
				}
			}
			recovering = recovering || rank == 0 && at.Point == AfterRestart
			if rank == 1 && recovering && !second && at.Point != AfterRestart {
				second = true
				panic("the second")
			}
		}
	})
	got.requireQuiet(t, quiet, 2)
	require.GreaterOrEqual(t, got.lives[0], 2)
	require.GreaterOrEqual(t, got.lives[1], 2)
}

// nvidia-resiliency-ext#139: what was left over of the second attempt opens the barrier of the third. Here a rank dies twice in
// the same step.
func TestTwoDeathsInOneStep(t *testing.T) {
	train, quiet := twoRanks(t)
	var mu sync.Mutex
	passed, deaths := 0, []int{}
	got := train(func(j *Job) {
		j.Hook = func(rank int, at Passage) {
			mu.Lock()
			defer mu.Unlock()
			if rank != 1 || at.Point != BeforeSend || at.Step != 3 {
				return
			}
			if passed++; passed == 3 || passed == 5 {
				deaths = append(deaths, at.Step)
				panic(fmt.Sprintf("death %d", len(deaths)))
			}
		}
	})
	got.requireQuiet(t, quiet, 2)
	require.Equal(t, []int{3, 3}, deaths)
}

// torchtitan#4754: a joiner is handed state in the middle of a step. Here every life begins with the whole state of a step
// boundary, byte by byte that of the quiet run, whatever the others are doing.
func TestALifeBeginsAtAStepBoundary(t *testing.T) {
	s, source := trial.Toy(trial.Layout{TP: 2, CP: 1, DP: 1}, 1, recoverSteps)
	var mu sync.Mutex
	known := map[string]bool{} // hashes of whole states of rank 1 at boundaries
	began := []string{}
	run := func(hook func(int, Passage)) trained {
		return trainJob(t, s, source, newNetwork(t, "direct", 0), 1, func(Life, []func(nn.Comm)) {}, func(j *Job) {
			j.Hook = hook
			inner := j.Recovery.Programs
			j.Recovery.Programs = func(rank int, l Life, emit func(messages.Event)) ([]func(nn.Comm), error) {
				if rank == 1 {
					boundary := l.Boundary
					l.Boundary = func(step int, local func() []byte) {
						mu.Lock()
						if hook == nil {
							known[fmt.Sprintf("%x", sha256.Sum256(local()))] = true
						}
						mu.Unlock()
						boundary(step, local)
					}
					if l.Local != nil {
						mu.Lock()
						began = append(began, fmt.Sprintf("%x", sha256.Sum256(l.Local)))
						mu.Unlock()
					}
				}
				return inner(rank, l, emit)
			}
		})
	}
	quiet := run(nil)
	require.NoError(t, quiet.err)
	require.Len(t, known, recoverSteps+1)
	for range 50 { // a rank may die before any step is committed: its next life has no state to begin with
		passed := 0
		got := run(func(rank int, at Passage) {
			mu.Lock()
			defer mu.Unlock()
			if rank == 1 && at.Point == BeforeApply && at.Step == 3 {
				if passed++; passed == 4 {
					panic("in the middle of step 3")
				}
			}
		})
		got.requireQuiet(t, quiet, 1)
		if len(began) > 0 {
			break
		}
	}
	require.NotEmpty(t, began)
	for _, state := range began {
		require.True(t, known[state], "a life began with a state that is of no boundary")
	}
}

// protoactor-go#214 and protoactor-dotnet#196: an actor that panics while it stops comes back, one that panics in Started is not
// supervised. Here each ends in a decision: the rank starts again, and beyond its budget the run ends and says so. A panic
// while stopping ends the run too.
func TestPanicsOfShellsAreDecided(t *testing.T) {
	train, quiet := twoRanks(t)
	trap := func(times int, is func(w who, message any) bool) func(*Job) {
		var mu sync.Mutex
		return func(j *Job) {
			j.Recovery.Budget.RankMax = 2
			j.trap = func(w who, message any) {
				mu.Lock()
				defer mu.Unlock()
				if w.rank == 1 && w.life.n > 0 && times > 0 && is(w, message) {
					times--
					panic("trap")
				}
			}
		}
	}
	inStarted := func(w who, message any) bool {
		_, ok := message.(*actor.Started)
		return ok && w.part == "shell tp"
	}
	for times := 1; times <= 2; times++ {
		train(trap(times, inStarted)).requireQuiet(t, quiet, times)
	}
	third := train(trap(3, inStarted))
	var e *RestartError
	require.ErrorAs(t, third.err, &e)
	require.Equal(t, 2, third.result.Restarts)

	stopping := train(func(j *Job) {
		trap(1, func(w who, message any) bool {
			_, ok := message.(*actor.Stopping)
			return ok && w.part == "shell tp"
		})(j)
		j.Hook = panicsAt(1, BeforeSend, 9)
	})
	require.ErrorContains(t, stopping.err, "failed on *actor.Stopping: panic: trap")
}

// kameo#335: mail that waits when an actor panics is lost. Here the third message of a step kills a rank whose mailbox holds
// more: its next life gets each of them, and uses each once.
func TestMailThatWaitedIsNotLost(t *testing.T) {
	train, quiet := twoRanks(t)
	var mu sync.Mutex
	seen := 0
	got := train(func(j *Job) {
		j.trap = func(w who, message any) {
			m, ok := message.(received)
			if !ok || w.rank != 1 || w.part != "shell tp" || m.m.Header.Step != 2 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen++; seen == 3 {
				panic("on the third message")
			}
		}
	})
	got.requireQuiet(t, quiet, 1)
	require.Equal(t, quiet.result.Ops, got.result.Ops, "each is used once")
	require.Positive(t, got.result.Replayed)
}

// protoactor-go#458: after one failed send a peer is never reached again. Here a rank is dead for a while, its peer goes on
// sending, and after the restart gets through: what came meanwhile is asked for.
func TestAPeerIsReachedAfterItsDeath(t *testing.T) {
	train, quiet := twoRanks(t)
	got := train(func(j *Job) {
		j.Hook = panicsAt(1, AfterSend, 8)
		j.Recovery.Budget.Backoff = []int64{150_000_000} // the peer sends into the void
	})
	got.requireQuiet(t, quiet, 1)
	require.GreaterOrEqual(t, got.restarts[0].Ms, 150.0)
	require.Positive(t, got.result.Replayed)
}
