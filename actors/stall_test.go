package actors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/transport"
)

const patience = 10 * time.Second // of virtual time

// inBubble runs a job on virtual time and says how long it took. The network is made inside the bubble.
func inBubble(t *testing.T, j Job, change ...func(*memnet)) (err error, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet()
		for _, c := range change {
			c(n)
		}
		j.Network, j.StallTimeout = n, patience
		begun := time.Now()
		_, err = Run(context.Background(), j)
		took = time.Since(begun)
		time.Sleep(2 * time.Millisecond) // protoactor counts what came too late for that long, see quietly
	})
	return err, took
}

func requireStall(t *testing.T, j Job, change ...func(*memnet)) string {
	t.Helper()
	err, took := inBubble(t, j, change...)
	var s *StallError
	require.ErrorAs(t, err, &s)
	require.LessOrEqual(t, took, 2*patience)
	require.LessOrEqual(t, strings.Count(s.Text, "\n"), 9)
	require.Equal(t, "nothing has moved for 10s: "+s.Text, err.Error())
	return s.Text
}

func TestStallMissingCollective(t *testing.T) {
	text := requireStall(t, Job{Sizes: grid, Programs: byRank(func(rank int, c nn.Comm) {
		sum(c, mesh.TP, nn.TagEmbedding, at(1, nn.Forward, -1), 1)
		if rank != 3 {
			sum(c, mesh.TP, nn.TagRowOutput, at(1, nn.Forward, 0), 1)
		}
		sum(c, mesh.DP, nn.TagGradNorm, at(1, nn.Update, -1), 1)
		if rank == 3 {
			c.Recv(0, "more")
		}
	})})
	require.Equal(t, "deadlock: cycle: rank 3 waits for \"more\" of its program stage (last collective at step 1 microbatch 0 update)\n"+
		"waiting for these: rank 0, rank 2", text)
}

// TestLostConnectionIsNoStall: while the network makes a connection again everybody waits. It is the network that fails,
// and says why; if it recovers, a standstill afterwards is one, and says that messages may be lost.
func TestLostConnectionIsNoStall(t *testing.T) {
	waiting := Job{Sizes: tpOnly(2), Programs: byRank(func(rank int, c nn.Comm) {
		if rank == 0 {
			sum(c, mesh.TP, nn.TagRowOutput, at(1, nn.Forward, 0), 1)
		}
	})}
	gone := &transport.LinkError{Kind: transport.ErrConnection, Src: transport.Unknown, Dst: 1, Chan: transport.Unknown}
	lost := func(n *memnet) { n.trouble = gone }
	after := func(d time.Duration, then func(*memnet)) func(*memnet) {
		return func(n *memnet) { time.AfterFunc(d, func() { then(n) }) }
	}

	err, took := inBubble(t, waiting, lost, after(5*patience, func(n *memnet) { n.fail(1, gone) }))
	require.ErrorIs(t, err, transport.ErrConnection)
	require.ErrorContains(t, err, "rank 1 (tp 1) failed in link: rank 1: the connection is gone")
	require.GreaterOrEqual(t, took, 5*patience)

	err, took = inBubble(t, waiting, lost, after(5*patience, func(n *memnet) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.trouble, n.again = nil, 2
	}))
	require.ErrorContains(t, err, "nothing has moved for 10s, and the network has lost 2 connections and made them again: deadlock: rank 0 waits")
	require.GreaterOrEqual(t, took, 5*patience+patience/2)
	require.LessOrEqual(t, took, 7*patience)
}

func TestStallFinishedRank(t *testing.T) {
	text := requireStall(t, Job{Sizes: tpOnly(2), Programs: byRank(func(rank int, c nn.Comm) {
		if rank == 0 {
			sum(c, mesh.TP, nn.TagRowOutput, at(1, nn.Forward, 0), 1)
		}
	})})
	require.Equal(t, "deadlock: rank 0 waits in tp all_reduce row_output (step 1 microbatch 0 forward layer 0) for rank 1; "+
		"rank 1 has finished its program (before its first collective)", text)
}

func TestStallOppositeOrder(t *testing.T) {
	text := requireStall(t, Job{Sizes: grid, Programs: byRank(func(rank int, c nn.Comm) {
		axes := []mesh.Axis{mesh.TP, mesh.DP}
		if rank == 0 || rank == 3 {
			axes = []mesh.Axis{mesh.DP, mesh.TP}
		}
		for _, a := range axes {
			sum(c, a, nn.TagGradNorm, at(0, nn.Update, -1), 1)
		}
	})})
	require.Equal(t, strings.Join([]string{
		"deadlock: cycle: rank 0 waits in dp all_reduce grad_norm (step 0 microbatch 0 update) for rank 2;",
		"  rank 2 waits in tp all_reduce grad_norm (step 0 microbatch 0 update) for rank 3;",
		"  rank 3 waits in dp all_reduce grad_norm (step 0 microbatch 0 update) for rank 1;",
		"  rank 1 waits in tp all_reduce grad_norm (step 0 microbatch 0 update) for rank 0",
	}, "\n"), text)
}

func TestStallBetweenPrograms(t *testing.T) {
	text := requireStall(t, Job{Sizes: tpOnly(2), Programs: func(rank int, _ func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){
			func(c nn.Comm) { c.Recv(1, "loss") },
			func(c nn.Comm) {
				if rank == 0 {
					site := at(2, nn.Forward, 0)
					site.Depth = 1
					sum(c, mesh.TP, nn.TagEHProjInput, site, 1)
				}
			},
		}, nil
	}})
	require.Equal(t, strings.Join([]string{
		"deadlock: rank 0 program mtp.1 waits in tp all_reduce eh_proj_input (step 2 microbatch 0 mtp.1 forward layer 0) for rank 1 program mtp.1 (and 1 more); " +
			"rank 1 program mtp.1 has finished its program (before its first collective)",
		"waiting for these: rank 0",
	}, "\n"), text)
}

// A lost message is a stall too, whatever the link believes.
func TestStallLostMessage(t *testing.T) {
	text := requireStall(t, Job{Sizes: tpOnly(2), Programs: same(func(c nn.Comm) {
		for i := range 10 {
			sum(c, mesh.TP, nn.TagRowOutput, at(i, nn.Forward, 0), 1)
		}
	})}, func(n *memnet) {
		n.lose = func(m transport.Message) bool { return m.Header.Src == 1 && m.Header.Seq == 3 }
	})
	require.Contains(t, text, "rank 0 waits in tp all_reduce row_output (step 3 microbatch 0 forward layer 0) for rank 1")
}

func TestNoFalseAlarmWhileARankComputes(t *testing.T) {
	for _, slow := range []int{0, 1} { // the stage program, a depth
		err, took := inBubble(t, Job{Sizes: tpOnly(2), Programs: func(rank int, _ func(messages.Event)) ([]func(nn.Comm), error) {
			program := func(p int) func(nn.Comm) {
				return func(c nn.Comm) {
					for i := range 3 {
						if rank == 1 && p == slow {
							time.Sleep(5 * patience)
						}
						site := at(i, nn.Forward, 0)
						site.Depth = p
						sum(c, mesh.TP, nn.TagRowOutput, site, 1)
					}
				}
			}
			return []func(nn.Comm){program(0), program(1)}, nil
		}})
		require.NoError(t, err)
		require.Equal(t, 15*patience, took)
	}
}

func TestNoFalseAlarmOverASlowLink(t *testing.T) {
	err, took := inBubble(t, Job{Sizes: tpOnly(2), Programs: same(func(c nn.Comm) {
		for i := range 20 {
			sum(c, mesh.TP, nn.TagRowOutput, at(i, nn.Forward, 0), 1)
		}
	})}, func(n *memnet) {
		n.delay = func(m transport.Message) time.Duration { return time.Duration(m.Header.Src+1) * patience * 2 / 5 } // up to 0.8
	})
	require.NoError(t, err)
	require.Equal(t, 16*patience, took)
}

func TestNoFalseAlarmWhileProgramsAreMade(t *testing.T) {
	err, _ := inBubble(t, Job{Sizes: tpOnly(2), Programs: func(rank int, _ func(messages.Event)) ([]func(nn.Comm), error) {
		time.Sleep(time.Duration(rank) * 5 * patience)
		return []func(nn.Comm){func(c nn.Comm) { sum(c, mesh.TP, nn.TagFlags, at(0, nn.Update, -1), 1) }}, nil
	}})
	require.NoError(t, err)
}

// One rank is done long before the others; a depth outlives its stage program.
func TestNoFalseAlarmAtAQuietEnd(t *testing.T) {
	err, took := inBubble(t, Job{Sizes: mesh.Sizes{TP: 1, CP: 1, DP: 2, PP: 1}, Programs: func(rank int, _ func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){
			func(c nn.Comm) { c.Send(1, "go", 1) },
			func(c nn.Comm) { c.Recv(0, "go"); time.Sleep(time.Duration(rank) * 7 * patience) },
		}, nil
	}})
	require.NoError(t, err)
	require.Equal(t, 7*patience, took)
}

// A pause of the whole process must not look like silence: time that no round has seen counts as one period.
func TestPauseIsNoStall(t *testing.T) {
	w := newWatch(1, patience)
	now := time.Unix(0, 0)
	waits := collective.Status{State: collective.InReceive}
	round := func() bool { return w.program(programAnswer{round: w.ask(now), status: waits, parts: 1}) }
	require.False(t, round())
	now = now.Add(time.Hour)
	require.False(t, round())
	require.Equal(t, patience/2, w.quiet)
	now = now.Add(patience / 2)
	require.True(t, round())
}

func TestWatchStartsAnewWhenAnythingMoves(t *testing.T) {
	now := time.Unix(0, 0)
	w := newWatch(1, patience)
	progress, received, state := uint64(0), uint64(0), collective.InReceive
	round := func(answers int) (stalled bool) {
		now = now.Add(patience / 2)
		r := w.ask(now)
		if answers > 0 {
			stalled = w.program(programAnswer{round: r, status: collective.Status{State: state, Progress: progress}, parts: 2})
		}
		if answers > 1 {
			stalled = w.group(groupAnswer{round: r, axis: mesh.TP, received: received})
		}
		require.False(t, w.program(programAnswer{round: r - 1}), "an old answer is none")
		require.False(t, w.group(groupAnswer{round: r - 1}))
		return stalled
	}
	for _, change := range []func(){
		func() { progress++ }, func() { received++ }, func() { round(1) }, func() { round(0) },
		func() { state = collective.Running; round(2); state = collective.InReceive },
	} {
		require.False(t, round(2))
		require.False(t, round(2))
		change()
		require.False(t, round(2))
		require.False(t, round(2))
		require.True(t, round(2))
		change()
	}
	state = collective.Finished
	for range 5 {
		require.False(t, round(2), "nobody waits")
	}
}

// On a real clock too, with a network that has goroutines of its own.
func TestStallOnTheRealClock(t *testing.T) {
	n := newMemnet()
	n.delay = func(transport.Message) time.Duration { return time.Millisecond }
	_, err := runJob(t, Job{Sizes: tpOnly(2), Network: n, StallTimeout: 300 * time.Millisecond, Programs: byRank(func(rank int, c nn.Comm) {
		sum(c, mesh.TP, nn.TagEmbedding, at(0, nn.Forward, -1), 1)
		if rank == 1 {
			sum(c, mesh.TP, nn.TagRowOutput, at(0, nn.Forward, 0), 1)
		}
	})})
	var s *StallError
	require.ErrorAs(t, err, &s)
	require.Len(t, s.Statuses, 2)
}

// protoactor-go#1145 and #1139: a reply that comes when its question times out is lost, or is taken for the next one's; under the
// race detector, futures and timers race. Here a thousand questions go to a rank whose turns end around the moment at which the
// next question goes out, and whose mail comes around it too: no standstill is seen where there is none, every sum is
// right, nobody is asked twice in a round, and the standstill at the end is found.
func TestAnswersAroundTheirTimeout(t *testing.T) {
	const ops, period = 1500, patience / 2
	var mu sync.Mutex
	asked := map[string]map[int]int{} // by actor and round
	rng := rand.New(rand.NewPCG(5, 1))
	around := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return d + time.Duration(rng.IntN(3)-1)*time.Nanosecond
	}
	err, took := inBubble(t, Job{Sizes: tpOnly(2), Programs: byRank(func(rank int, c nn.Comm) {
		for i := range ops {
			if rank == 0 {
				time.Sleep(around(period / 2)) // computes
			}
			if got := sum(c, mesh.TP, nn.TagRowOutput, at(i, nn.Forward, 0), float32(rank+i)); got != float32(2*i+1) {
				panic(fmt.Sprintf("sum %d is %v", i, got))
			}
		}
		if rank == 0 {
			sum(c, mesh.TP, nn.TagRowOutput, at(ops, nn.Forward, 0), 1)
		}
	}), trap: func(w who, message any) {
		if m, ok := message.(ask); ok && w.rank >= 0 {
			mu.Lock()
			defer mu.Unlock()
			if asked[w.path] == nil {
				asked[w.path] = map[int]int{}
			}
			asked[w.path][m.round]++
		}
	}}, func(n *memnet) {
		n.delay = func(transport.Message) time.Duration { return around(period / 2) }
	})
	var s *StallError
	require.ErrorAs(t, err, &s)
	require.ErrorContains(t, err, "rank 0 waits in tp all_reduce row_output (step 1500 microbatch 0 forward layer 0) for rank 1")
	rounds := int(took / period)
	require.GreaterOrEqual(t, rounds, 1000)
	require.NotEmpty(t, asked)
	for path, in := range asked {
		require.GreaterOrEqual(t, len(in), rounds-10, path)
		for round, times := range in {
			require.Equal(t, 1, times, "%s was asked %d times in round %d", path, times, round)
		}
	}
}

// An answer to an earlier question is none to the present one.
func TestAnAnswerIsOfItsQuestion(t *testing.T) {
	w := newWatch(2, patience)
	now := time.Now()
	ask := func() int { now = now.Add(w.period()); return w.ask(now) }
	waits := func(round, rank int) bool {
		return w.program(programAnswer{round: round, status: collective.Status{Rank: rank, State: collective.InCollective}, parts: 1})
	}
	first := ask()
	require.False(t, waits(first, 0))
	second := ask()
	require.False(t, waits(first, 1))
	require.False(t, waits(second, 0))
	require.Equal(t, 1, w.complete, "rank 1 has not answered this question")
	require.False(t, waits(second, 1))
	require.Equal(t, 2, w.complete)
	for range 2 {
		round := ask()
		require.False(t, waits(round-1, 1))
		require.False(t, w.group(groupAnswer{round: round - 1, rank: 0}))
		require.False(t, waits(round, 0))
		require.Equal(t, round == second+2, waits(round, 1), "nothing has moved for two periods")
	}
}
