package actors

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
)

// With a clock, all programs of all ranks compute on one thread, whose time is counted up to every report; what is not
// computing is not in it. The race detector would see two turns at once: worked has no lock.
func TestAClockMeasuresOneThread(t *testing.T) {
	const steps, ranks = 10, 3
	var worked time.Duration
	threads := map[int]bool{}
	var compute atomic.Int64
	res, err := runJob(t, Job{Sizes: tpOnly(ranks), Compute: &compute, Clock: func() time.Duration { return worked },
		Listen: func(e messages.Event) {
			if r, ok := e.(messages.StepReport); ok {
				require.GreaterOrEqual(t, compute.Load(), int64(r.Step+1)*ranks*int64(time.Second), "told behind what it has cost")
			}
		},
		Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
			work := func() {
				threads[syscall.Gettid()] = true
				worked += time.Second / 2
			}
			stage := func(c nn.Comm) {
				for s := range steps {
					work()
					c.Recv(1, "done")
					sum(c, mesh.TP, nn.TagFlags, at(s, nn.Update, -1), 1)
					emit(messages.StepDone{Step: s, GradNorm: 1})
				}
			}
			depth := func(c nn.Comm) {
				for range steps {
					work()
					c.Send(0, "done", nil)
				}
			}
			return []func(nn.Comm){stage, depth}, nil
		}})
	require.NoError(t, err)
	require.Equal(t, steps, res.Steps)
	require.Len(t, threads, 1)
	require.Equal(t, int64(steps*ranks)*int64(time.Second), compute.Load())
	require.Equal(t, steps*ranks*time.Second, worked)
}

// A program that panics or ends its goroutine on that thread is a rank's failure like any other.
func TestAProgramFailsOnTheThread(t *testing.T) {
	var compute atomic.Int64
	for _, failing := range []func(){func() { panic("no more") }, runtime.Goexit} {
		_, err := runJob(t, Job{Sizes: tpOnly(2), Compute: &compute, Clock: func() time.Duration { return 0 }, Programs: byRank(func(rank int, c nn.Comm) {
			if sum(c, mesh.TP, nn.TagFlags, at(0, nn.Update, -1), 1); rank == 1 {
				failing()
			}
			sum(c, mesh.TP, nn.TagFlags, at(1, nn.Update, -1), 1)
		})})
		var e *RankError
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.Place.Rank)
	}
	_, err := Run(t.Context(), Job{Name: "j", Sizes: tpOnly(1), Network: newMemnet(), Programs: same(), Clock: func() time.Duration { return 0 }})
	require.ErrorContains(t, err, "a Clock needs Compute")
}
