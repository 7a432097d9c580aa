package actors

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/transport"
)

var errBoom = errors.New("boom")

// grid is 2 tp × 2 dp.
var grid = mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}

func explode() { panic(errBoom) }

func TestPanicInADepthEndsTheRun(t *testing.T) {
	var begun, unwound atomic.Int32
	programs := func(rank int, _ func(messages.Event)) ([]func(nn.Comm), error) {
		depth := func(k int) func(nn.Comm) {
			return func(c nn.Comm) {
				begun.Add(1)
				defer unwound.Add(1)
				site := at(4, nn.Backward, 0)
				site.Depth = k
				sum(c, mesh.TP, nn.TagEHProjInput, site, 1)
				if rank == 3 && k == 2 {
					explode()
				}
				c.Recv(0, "never")
			}
		}
		return []func(nn.Comm){func(c nn.Comm) { begun.Add(1); defer unwound.Add(1); c.Recv(1, "never") }, depth(1), depth(2)}, nil
	}
	_, err := runJob(t, Job{Sizes: grid, Programs: programs})
	var e *RankError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, errBoom)
	require.Regexp(t, `^rank 3 \(tp 1 dp 1\) failed in program mtp\.2, last collective at step 4 microbatch 0 mtp\.2 backward layer 0: `+
		`panic: boom \[actors\.explode fail_test\.go:\d+\]$`, err.Error())
	require.Equal(t, "program mtp.2", e.Part)
	require.Equal(t, 2, e.Site.Depth)
	require.Contains(t, string(e.Stack), "actors.explode")
	require.Empty(t, e.Consequences)
	require.Equal(t, begun.Load(), unwound.Load(), "the deferred functions of every program that has begun run")
}

func TestRuntimeErrorsNameTheirPlace(t *testing.T) {
	_, err := runJob(t, Job{Sizes: tpOnly(1), Programs: same(func(nn.Comm) {
		var x []int
		_ = x[len(x)+2]
	})})
	require.Regexp(t, `^rank 0 failed in program stage, before its first collective: panic: runtime error: index out of range \[2\] with length 0 \[actors\.TestRuntimeErrorsNameTheirPlace\.func1 fail_test\.go:\d+\]$`, err.Error())
}

func TestWrongOperationIsTheProgramsFault(t *testing.T) {
	_, err := runJob(t, Job{Sizes: tpOnly(2), Programs: same(func(c nn.Comm) { c.Do(&nn.Op{Axis: mesh.TP}) })})
	var wrong *collective.OpError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "failed in program stage")
}

func TestProgramsThatCannotBeMade(t *testing.T) {
	for says, make := range map[string]func(int, func(messages.Event)) ([]func(nn.Comm), error){
		"rank 1 (tp 1) failed in programs: boom":                                     func(r int, _ func(messages.Event)) ([]func(nn.Comm), error) { return nil, errBoom },
		"rank 1 (tp 1) failed in programs: panic: boom [actors.explode fail_test.go": func(r int, _ func(messages.Event)) ([]func(nn.Comm), error) { explode(); return nil, nil },
		"rank 1 (tp 1) failed in programs: found 0 programs, expected 1 to 256":      func(r int, _ func(messages.Event)) ([]func(nn.Comm), error) { return nil, nil },
	} {
		_, err := runJob(t, Job{Sizes: tpOnly(2), Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
			if rank == 1 {
				return make(rank, emit)
			}
			return []func(nn.Comm){func(c nn.Comm) { sum(c, mesh.TP, nn.TagFlags, at(0, nn.Update, -1), 1) }}, nil
		}})
		require.ErrorContains(t, err, says)
	}
}

func TestMismatchEndsTheRun(t *testing.T) {
	_, err := runJob(t, Job{Sizes: tpOnly(2), StallTimeout: time.Minute, Programs: byRank(func(rank int, c nn.Comm) {
		sum(c, mesh.TP, nn.TagEmbedding, at(3, nn.Forward, -1), 1)
		tag := nn.TagRowOutput
		if rank == 1 {
			tag = nn.TagColumnInput
		}
		sum(c, mesh.TP, tag, at(3, nn.Forward, 1), 1)
	})})
	var m *collective.MismatchError
	require.ErrorAs(t, err, &m)
	require.Contains(t, err.Error(), fmt.Sprintf("rank %d (tp %d) failed in group tp: rank %d (tp %d) is in tp all_reduce sum ", m.Self.Rank, m.Self.Rank, m.Self.Rank, m.Self.Rank))
	require.Contains(t, err.Error(), "at step 3 microbatch 0 forward layer 1; rank ")
}

func TestShellsThatPanic(t *testing.T) {
	for _, c := range []struct {
		path, message string
		when          func(any) bool
		says          string
	}{
		{"run/stage.0/rank.1", "Started", is[*actor.Started], "rank 1 (tp 1 dp 0) failed in shell rank.1: actor run/stage.0/rank.1 failed on *actor.Started: panic: trap [actors"},
		{"run/stage.0/rank.1", "receive", is[start], "actor run/stage.0/rank.1 failed on start: panic: trap"},
		{"run/stage.0/rank.1", "Stopping", is[*actor.Stopping], "actor run/stage.0/rank.1 failed on *actor.Stopping: panic: trap"},
		{"run/stage.0/rank.1", "Stopped", is[*actor.Stopped], "actor run/stage.0/rank.1 failed on *actor.Stopped: panic: trap"},
		{"run/stage.0/rank.1", "Terminated", is[*actor.Terminated], "actor run/stage.0/rank.1 failed on *actor.Terminated: panic: trap"},
		{"run/stage.0/rank.2/dp", "Started", is[*actor.Started], "rank 2 (tp 0 dp 1) failed in shell dp: actor run/stage.0/rank.2/dp failed on *actor.Started: panic: trap"},
		{"run/stage.0/rank.2/dp", "receive", is[received], "actor run/stage.0/rank.2/dp failed on received dp all_reduce sum grad_norm F32[1] at step 0 microbatch 0 update seq=0 from="},
		{"run/stage.0/rank.2/dp", "Stopping", is[*actor.Stopping], "actor run/stage.0/rank.2/dp failed on *actor.Stopping: panic: trap"},
		{"run/stage.0/rank.0/mtp.1", "Started", is[*actor.Started], "rank 0 (tp 0 dp 0) failed in shell mtp.1: actor run/stage.0/rank.0/mtp.1 failed on *actor.Started: panic: trap"},
		{"run/stage.0/rank.0/mtp.1", "receive", is[completed], "actor run/stage.0/rank.0/mtp.1 failed on completed tp all_reduce sum flags"},
		{"run/stage.0", "Started", is[*actor.Started], "actor run/stage.0 failed on *actor.Started: panic: trap"},
		{"run/stage.0", "receive", is[ready], "actor run/stage.0 failed on ready rank="},
		{"run/stage.0", "Stopping", is[*actor.Stopping], "actor run/stage.0 failed on *actor.Stopping: panic: trap"},
		{"run", "Started", is[*actor.Started], "actor run failed on *actor.Started: panic: trap"},
		{"run", "receive", is[done], "actor run failed on done of=0: panic: trap"},
		{"run", "Stopping", is[*actor.Stopping], "actor run failed on *actor.Stopping: panic: trap"},
		{"run", "Stopped", is[*actor.Stopped], "actor run failed on *actor.Stopped: panic: trap"},
	} {
		t.Run(c.path+" "+c.message, func(t *testing.T) {
			var hits atomic.Int32
			begun := time.Now()
			_, err := runJob(t, Job{Sizes: grid, StallTimeout: time.Minute,
				Programs: same(
					func(c nn.Comm) { sum(c, mesh.DP, nn.TagGradNorm, at(0, nn.Update, -1), 1) },
					func(c nn.Comm) { sum(c, mesh.TP, nn.TagFlags, at(0, nn.Update, -1), 1) },
				),
				trap: func(w who, m any) {
					if w.path == c.path && c.when(m) && hits.Add(1) == 1 {
						panic("trap")
					}
				}})
			require.ErrorContains(t, err, c.says)
			var shell *ShellError
			require.ErrorAs(t, err, &shell)
			require.Contains(t, string(shell.Stack), "fail_test.go")
			require.Less(t, time.Since(begun), time.Minute, "no waiting for a zombie")
		})
	}
}

func is[T any](m any) bool { _, ok := m.(T); return ok }

func TestPanicInAListener(t *testing.T) {
	_, err := runJob(t, Job{Sizes: tpOnly(2), Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(nn.Comm) { emit(messages.StepDone{Rank: rank}) }}, nil
	}, Listen: func(messages.Event) { explode() }})
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "actor run failed on ")
}

func TestFirstFailureWinsOthersAreConsequences(t *testing.T) {
	gate := make(chan struct{})
	_, err := runJob(t, Job{Sizes: tpOnly(2), Programs: byRank(func(rank int, c nn.Comm) {
		if rank == 1 {
			<-gate // computes until the first has failed
			panic("second")
		}
		defer func() { time.AfterFunc(50*time.Millisecond, func() { close(gate) }) }()
		panic("first")
	})})
	var e *RankError
	require.ErrorAs(t, err, &e)
	require.Equal(t, 0, e.Place.Rank)
	require.ErrorContains(t, err, "panic: first")
	require.NotContains(t, err.Error(), "second")
}

func TestLinkFailures(t *testing.T) {
	n := newMemnet()
	forever := byRank(func(rank int, c nn.Comm) {
		for i := 0; ; i++ {
			sum(c, mesh.TP, nn.TagFlags, at(i, nn.Forward, 0), 1)
			if i == 20 && rank == 0 {
				n.fail(1, errBoom)
			}
		}
	})
	_, err := runJob(t, Job{Sizes: tpOnly(2), Network: n, Programs: forever})
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "rank 1 (tp 1) failed in link: boom")

	n = newMemnet()
	n.openErr = errBoom
	_, err = runJob(t, Job{Sizes: tpOnly(2), Network: n, Programs: forever})
	require.ErrorContains(t, err, "rank 1 (tp 1) failed in link: cannot open: boom")

	n = newMemnet()
	n.closeErr = errBoom
	res, err := runJob(t, Job{Sizes: tpOnly(2), Network: n, Programs: same(func(nn.Comm) {})})
	require.ErrorContains(t, err, "network memory: boom")
	require.NotNil(t, res)
}

func TestMessageForNobody(t *testing.T) {
	n := newMemnet()
	_, err := runJob(t, Job{Sizes: tpOnly(2), Network: n, Programs: byRank(func(rank int, c nn.Comm) {
		if rank == 0 {
			n.mu.Lock()
			h := n.handlers[1]
			n.mu.Unlock()
			h.Receive(transport.Message{Header: messages.Header{Dst: 1, Chan: collective.Channel(mesh.DP, 0)}})
		}
		c.Recv(0, "never")
	})})
	require.ErrorContains(t, err, "rank 1 (tp 1) failed in link: the dp group of rank 1 (tp 1) got a message of rank 0 for rank 1 on channel 0x0300")
}

// emitNorms reports one step with a norm for each rank.
func emitNorms(norms ...float64) func(int, func(messages.Event)) ([]func(nn.Comm), error) {
	return func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) { emit(messages.StepDone{Rank: rank, Step: 6, GradNorm: norms[rank]}) }}, nil
	}
}

func TestDivergentGradNorms(t *testing.T) {
	_, err := runJob(t, Job{Sizes: grid, Programs: emitNorms(1, 1, math.Nextafter(1, 2), 2)})
	var d *DivergenceError
	require.ErrorAs(t, err, &d)
	require.Equal(t, []int{2, 3}, d.Differ)
	require.EqualError(t, err, "replicas have diverged at step 6: grad_norm is 1 on rank 0 (tp 0 dp 0) and 1.0000000000000002 on rank 2 (tp 0 dp 1) "+
		"(ranks [2 3] differ from rank 0); it must be the same bits on every rank")

	_, err = runJob(t, Job{Sizes: grid, Programs: emitNorms(0, math.Copysign(0, -1), 0, 0)})
	require.ErrorAs(t, err, &d)

	other := math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)
	_, err = runJob(t, Job{Sizes: grid, Programs: emitNorms(math.NaN(), other, math.NaN(), other)})
	require.NoError(t, err, "one NaN is like another")
}

func TestStepsNotReportedByAll(t *testing.T) {
	_, err := runJob(t, Job{Sizes: mesh.Sizes{TP: 1, CP: 1, DP: 2, PP: 2}, Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) {
			if rank != 3 {
				emit(messages.StepDone{Rank: rank, Step: 2})
			}
		}}, nil
	}})
	require.EqualError(t, err, "step 2 was reported by ranks [2] and not by ranks [3], although all have finished")

	_, err = runJob(t, Job{Sizes: tpOnly(1), Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) { emit(messages.StepDone{}); emit(messages.StepDone{}) }}, nil
	}})
	require.NoError(t, err, "with one rank every report is complete")

	_, err = runJob(t, Job{Sizes: tpOnly(2), Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) {
			if rank == 1 {
				emit(messages.EvalDone{Rank: 1, Step: 3})
				emit(messages.EvalDone{Rank: 1, Step: 3})
			}
			c.Recv(0, "never")
		}}, nil
	}})
	require.EqualError(t, err, "validation after step 3 was reported twice by rank 1, expected one report of each rank")

	_, err = runJob(t, Job{Sizes: mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 2}, Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) {
			if rank > 1 {
				emit(messages.StepDone{Rank: rank, Step: 2})
			}
		}}, nil
	}})
	require.EqualError(t, err, "step 2 was reported by ranks [2 3] and not by ranks [0 1], although all have finished")

	_, err = runJob(t, Job{Sizes: tpOnly(2), Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) {
			if rank == 1 {
				c.Recv(0, "never")
			}
			for s := range reportsAheadMax + 1 {
				emit(messages.StepDone{Step: s})
			}
		}}, nil
	}})
	require.ErrorContains(t, err, "step 0 was reported by ranks [0] and not by ranks [1], although others are 4096 steps further")
}

func TestCancel(t *testing.T) {
	for name, code := range map[string]func(nn.Comm){
		"waiting": func(c nn.Comm) { c.Recv(0, "never") },
		"exchanging": func(c nn.Comm) {
			for i := 0; ; i++ {
				sum(c, mesh.TP, nn.TagFlags, at(i, nn.Forward, 0), 1)
			}
		},
		"never suspending": func(c nn.Comm) {
			for i := 0; ; i++ {
				sum(c, mesh.DP, nn.TagFlags, at(i, nn.Forward, 0), 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			_, err := runJobIn(t, ctx, Job{Sizes: tpOnly(2), Programs: same(code)})
			require.ErrorIs(t, err, ErrInterrupted)
			require.ErrorIs(t, err, context.Canceled)
			require.EqualError(t, err, "interrupted after 0 steps: context canceled")
		})
	}
}

func TestCancelledBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n := newMemnet()
	_, err := runJobIn(t, ctx, Job{Sizes: tpOnly(2), Network: n, Programs: same(func(nn.Comm) { t.Error("ran") })})
	require.ErrorIs(t, err, ErrInterrupted)
	require.Empty(t, n.handlers)
	require.True(t, n.closed)
}

func TestCancelDoesNotWaitForALongTurn(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	release, computing := make(chan struct{}), make(chan struct{})
	n := newMemnet()
	n.slow = 400 * time.Millisecond
	go func() { <-computing; cancel() }()
	var after bool
	_, err := Run(ctx, Job{Sizes: tpOnly(2), Network: n, Programs: byRank(func(rank int, c nn.Comm) {
		if rank == 1 {
			close(computing)
			<-release // a turn that computes, and longer than Run
			sum(c, mesh.DP, nn.TagFlags, at(0, nn.Forward, 0), 1)
			after = true
		}
		c.Recv(0, "never")
	})})
	require.ErrorIs(t, err, ErrInterrupted)
	require.Regexp(t, `^interrupted after 0 steps: context canceled; still computing: rank 1 \(tp 1\) program stage for \d+(\.\d+)?m?s$`, err.Error())
	close(release)
	goleak.VerifyNone(t) // the turn ends, then everything does
	require.False(t, after, "a stopped rank goes no further than its next call")
}

// Two rounds and one round, several programs: bytes of every sort are counted once.
func TestCountsOverRanks(t *testing.T) {
	res, err := runJob(t, Job{Sizes: grid, Programs: same(func(c nn.Comm) {
		x := make([]float32, collective.SmallBytes)
		c.Do(&nn.Op{Axis: mesh.DP, Kind: nn.AllReduce, DType: tensor.F32, Tag: nn.TagGradient, Site: at(0, nn.Update, -1), In: tensor.Bytes(x), Out: tensor.Bytes(x)})
	})})
	require.NoError(t, err)
	require.Equal(t, []collective.OpCount{{Axis: mesh.DP, Tag: nn.TagGradient, Kind: nn.AllReduce, Count: 2, Bytes: 4 * int64(len(make([]float32, collective.SmallBytes))*4)}}, res.Ops)
}

func TestErrorsAreOneLine(t *testing.T) {
	for _, err := range []error{
		&RankError{Cause: errBoom, Part: "link"}, &InterruptedError{Cause: errBoom, Busy: []string{"x"}}, &PanicError{Value: 1},
		&ShellError{Cause: &PanicError{}}, &DivergenceError{}, &ReportError{},
	} {
		require.False(t, strings.Contains(err.Error(), "\n"))
	}
}
