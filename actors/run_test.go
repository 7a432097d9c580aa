package actors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tpOnly(n int) mesh.Sizes { return mesh.Sizes{TP: n, CP: 1, DP: 1, PP: 1} }

// same gives every rank the same programs.
func same(programs ...func(nn.Comm)) func(int, func(messages.Event)) ([]func(nn.Comm), error) {
	return func(int, func(messages.Event)) ([]func(nn.Comm), error) { return programs, nil }
}

// byRank gives every rank one program that knows its rank.
func byRank(code func(rank int, c nn.Comm)) func(int, func(messages.Event)) ([]func(nn.Comm), error) {
	return func(rank int, _ func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) { code(rank, c) }}, nil
	}
}

// runJob runs and checks that nothing is left behind.
func runJob(t *testing.T, j Job) (*Result, error) {
	t.Helper()
	return runJobIn(t, context.Background(), j)
}

func runJobIn(t *testing.T, ctx context.Context, j Job) (*Result, error) {
	t.Helper()
	if j.Network == nil {
		j.Network = newMemnet()
	}
	if j.Name == "" {
		j.Name = t.Name()
	}
	res, err := Run(ctx, j)
	if n, ok := j.Network.(*memnet); ok {
		n.mu.Lock()
		require.Empty(t, n.misuse)
		n.mu.Unlock()
		if err == nil {
			require.Zero(t, n.unconsumed(), "messages not given back")
		}
	}
	goleak.VerifyNone(t)
	return res, err
}

func at(step int, p nn.Phase, layer int) nn.Site { return nn.Site{Step: step, Phase: p, Layer: layer} }

// sum is an all-reduce of one value.
func sum(c nn.Comm, a mesh.Axis, tag nn.Tag, s nn.Site, v float32) float32 {
	x := []float32{v}
	c.Do(&nn.Op{Axis: a, Kind: nn.AllReduce, DType: tensor.F32, Tag: tag, Site: s, In: tensor.Bytes(x), Out: tensor.Bytes(x)})
	return x[0]
}

func TestRunsAndCounts(t *testing.T) {
	res, err := runJob(t, Job{Sizes: tpOnly(3), Run: 7, Build: 9, Programs: byRank(func(rank int, c nn.Comm) {
		for step := range 5 {
			require.Equal(t, float32(3), sum(c, mesh.TP, nn.TagRowOutput, at(step, nn.Forward, 0), float32(rank)))
		}
	})})
	require.NoError(t, err)
	require.Equal(t, "result steps=0 collectives=5 bytes=120 duplicates=0", res.String())
	require.Equal(t, "tp all_reduce row_output depth=0 count=5 bytes=120", res.Ops[0].String())
}

func TestHeadersAreStamped(t *testing.T) {
	n := newMemnet()
	var mu sync.Mutex
	n.lose = func(m transport.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if m.Header.Run != 7 || m.Header.Build != 9 || m.Header.Kind != messages.Data || int(m.Header.Len) != len(m.Payload) {
			t.Errorf("wrong header %+v", m.Header)
		}
		return false
	}
	_, err := runJob(t, Job{Sizes: tpOnly(2), Network: n, Run: 7, Build: 9, Programs: same(func(c nn.Comm) {
		sum(c, mesh.TP, nn.TagFlags, at(0, nn.Update, -1), 1)
	})})
	require.NoError(t, err)
}

func TestOneRankAlone(t *testing.T) {
	res, err := runJob(t, Job{Sizes: tpOnly(1), Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) {
			for s := range 10 {
				sum(c, mesh.DP, nn.TagGradient, at(s, nn.Update, -1), 1)
				emit(messages.StepDone{Step: s, GradNorm: 1})
			}
		}}, nil
	}})
	require.NoError(t, err)
	require.Equal(t, 10, res.Steps)
	require.Empty(t, res.Ops)
}

// randomOps is a program of 200 collectives on three axes; everybody draws the same ones from the step's seed.
func randomOps(t require.TestingT, ops int, seed uint64) func(rank int, c nn.Comm) {
	return func(rank int, c nn.Comm) {
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := range ops {
			a := []mesh.Axis{mesh.TP, mesh.CP, mesh.DP}[rng.IntN(3)]
			kind := nn.OpKind(1 + rng.IntN(3))
			n := rng.IntN(50)
			if rng.IntN(20) == 0 {
				n = 20000 + rng.IntN(100) // two rounds
			}
			checkOp(t, c, a, kind, n*c.Size(a), i)
		}
	}
}

// checkOp does one collective of integers in float32 and compares every element with what it must be.
func checkOp(t require.TestingT, c nn.Comm, a mesh.Axis, kind nn.OpKind, n, step int) {
	size, me := c.Size(a), c.Rank(a)
	each := n / size
	val := func(member, i int) float32 { return float32((member+1)*1000 + i%97) }
	total := func(i int) (s float32) {
		for m := range size {
			s += val(m, i)
		}
		return s
	}
	in, out := make([]float32, n), make([]float32, n)
	for i := range in {
		in[i] = val(me, i)
	}
	want := total
	switch kind {
	case nn.ReduceScatter:
		out = out[:each]
		want = func(i int) float32 { return total(me*each + i) }
	case nn.AllGather:
		in = in[:each]
		want = func(i int) float32 { return val(i/each, i%each) }
	}
	c.Do(&nn.Op{Axis: a, Kind: kind, DType: tensor.F32, Tag: nn.TagGradient, Site: at(step, nn.Update, -1), In: tensor.Bytes(in), Out: tensor.Bytes(out)})
	for i, v := range out {
		if v != want(i) {
			require.Equal(t, want(i), v, "%s on %s element %d", kind, a, i)
		}
	}
}

func TestEightRanksRandomCollectives(t *testing.T) {
	for _, gives := range []bool{false, true} {
		n := newMemnet()
		n.gives = gives
		res, err := runJob(t, Job{Sizes: mesh.Sizes{TP: 2, CP: 2, DP: 2, PP: 1}, Network: n, Programs: byRank(randomOps(t, 200, 1))})
		require.NoError(t, err)
		var ops int64
		for _, o := range res.Ops {
			ops += o.Count
		}
		require.EqualValues(t, 200*4, ops) // every axis has four groups
	}
}

func TestEightRanksOverASlowUnevenNetwork(t *testing.T) {
	n := newMemnet()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(5, 5))
	n.delay = func(transport.Message) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.IntN(300)) * time.Microsecond
	}
	_, err := runJob(t, Job{Sizes: mesh.Sizes{TP: 2, CP: 2, DP: 2, PP: 1}, Network: n, Programs: byRank(randomOps(t, 60, 2))})
	require.NoError(t, err)
}

// TestProgramsOfARank is how they talk: sets go 0 → 1 → 2, losses come back to 0, collectives of
// every program meanwhile, steps are reported.
func TestProgramsOfARank(t *testing.T) {
	const depths, steps = 2, 20
	programs := func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		list := []func(nn.Comm){func(c nn.Comm) {
			for s := range steps {
				c.Send(1, "set", []int{s})
				total := sum(c, mesh.TP, nn.TagRowOutput, at(s, nn.Forward, 0), 1)
				for k := 1; k <= depths; k++ {
					total += c.Recv(nn.Program(k), "loss").(float32)
				}
				emit(messages.StepDone{Rank: rank, Step: s, GradNorm: float64(total), Sums: messages.Sums{Samples: 1}})
			}
		}}
		for k := 1; k <= depths; k++ {
			list = append(list, func(c nn.Comm) {
				for s := range steps {
					set := c.Recv(nn.Program(k-1), "set").([]int)
					require.Equal(t, s, set[0])
					if k < depths {
						c.Send(nn.Program(k+1), "set", set)
					}
					site := at(s, nn.Forward, 0)
					site.Depth = k
					c.Send(0, "loss", sum(c, mesh.TP, nn.TagVocabSum, site, float32(k)))
				}
			})
		}
		return list, nil
	}
	var events []string
	res, err := runJob(t, Job{Sizes: mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}, Programs: programs, Listen: func(e messages.Event) {
		if _, ok := e.(messages.Finished); !ok {
			events = append(events, e.String())
		}
	}})
	require.NoError(t, err)
	require.Len(t, events, steps)
	for s, e := range events {
		require.Equal(t, fmt.Sprintf("step report step=%d lm_tokens=0 grad_norm=8", s), e)
	}
	require.Len(t, res.Ops, 3)
	for _, o := range res.Ops {
		require.EqualValues(t, 2*steps, o.Count)
	}
}

func TestSelfSendAndUnknownProgram(t *testing.T) {
	_, err := runJob(t, Job{Sizes: tpOnly(1), Programs: same(func(c nn.Comm) {
		c.Send(0, "note", 1)
		c.Send(0, "note", 2)
		require.Equal(t, 1, c.Recv(0, "note"))
		require.Equal(t, 2, c.Recv(0, "note"))
	})})
	require.NoError(t, err)
	for _, code := range []func(nn.Comm){
		func(c nn.Comm) { c.Send(3, "x", 1); c.Recv(0, "y") },
		func(c nn.Comm) { c.Recv(3, "x") },
	} {
		_, err = runJob(t, Job{Sizes: tpOnly(1), Programs: same(code)})
		require.ErrorContains(t, err, "but there are only programs 0 to 0")
	}
}

func TestValuesNobodyTakes(t *testing.T) {
	_, err := runJob(t, Job{Sizes: tpOnly(1), Programs: same(
		func(c nn.Comm) {
			for range portValuesMax + 1 {
				c.Send(1, "x", 1)
			}
			c.Recv(1, "never")
		},
		func(c nn.Comm) { c.Recv(0, "other") },
	)})
	require.ErrorContains(t, err, "4096 values wait in rank 0 program mtp.1")
}

func TestMergedReports(t *testing.T) {
	var events []messages.Event
	_, err := runJob(t, Job{Sizes: mesh.Sizes{TP: 1, CP: 1, DP: 2, PP: 2}, Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) {
			for s := range 3 {
				sum(c, mesh.DP, nn.TagGradient, at(s, nn.Update, -1), 1)
				emit(messages.StepDone{Rank: rank, Step: s, GradNorm: 2, LR: 0.5, Sums: messages.Sums{LMLoss: []float64{1, 1e-17, 1e-17, -1}[rank], LMTokens: int64(rank), MTPLoss: []float64{1}, MTPTokens: []int64{2}}})
				if s == 1 {
					emit(messages.EvalDone{Rank: rank, Step: s, Sums: messages.Sums{Tokens: 10}})
				}
			}
		}}, nil
	}, Listen: func(e messages.Event) {
		if _, ok := e.(messages.Finished); !ok {
			events = append(events, e)
		}
	}})
	require.NoError(t, err)
	sums := messages.Sums{LMLoss: 0, LMTokens: 6, MTPLoss: []float64{4}, MTPTokens: []int64{8}}
	require.Equal(t, []messages.Event{ // ((1 + 1e-17) + 1e-17) − 1 = 0: rank order, not (r0+r1) + (r2+r3)
		messages.StepReport{Step: 0, Sums: sums, GradNorm: 2, LR: 0.5},
		messages.StepReport{Step: 1, Sums: sums, GradNorm: 2, LR: 0.5},
		messages.EvalReport{Step: 1, Sums: messages.Sums{Tokens: 40}},
		messages.StepReport{Step: 2, Sums: sums, GradNorm: 2, LR: 0.5},
	}, events)
}

func TestWrongJobsAreRefused(t *testing.T) {
	good := Job{Sizes: tpOnly(1), Programs: same(func(nn.Comm) {})}
	for says, change := range map[string]func(*Job){
		"found sizes tp 0":            func(j *Job) { j.Sizes.TP = 0 },
		"found 70000 ranks":           func(j *Job) { j.Sizes.DP = 70000 },
		"both Programs and Network":   func(j *Job) { j.Programs = nil },
		"found stall timeout -1s":     func(j *Job) { j.StallTimeout = -time.Second },
		"expected both Programs and ": func(j *Job) { j.Network = nil },
	} {
		j := good
		n := newMemnet()
		j.Network = n
		change(&j)
		_, err := Run(context.Background(), j)
		require.ErrorContains(t, err, says)
		require.Equal(t, j.Network != nil, n.closed, "Run closes the network in any case")
	}
}

// Ranks report their parts of a checkpoint in any order; the merged report has them in rank order, and the first failure.
func TestSavedPartsAreMerged(t *testing.T) {
	for _, failing := range []int{-1, 1} {
		var merged []messages.SaveReport
		_, err := runJob(t, Job{Sizes: tpOnly(3), Listen: func(e messages.Event) {
			if m, ok := e.(messages.SaveReport); ok {
				merged = append(merged, m)
			}
		}, Programs: func(rank int, emit func(messages.Event)) ([]func(nn.Comm), error) {
			return []func(nn.Comm){func(c nn.Comm) {
				for step := range 2 {
					sum(c, mesh.TP, nn.TagFlags, at(step, nn.Update, -1), 1)
					e := messages.Saved{Rank: rank, Step: step + 1, Part: []byte{byte(rank), byte(step)}}
					if rank >= failing && failing >= 0 {
						e.Part, e.Err = nil, fmt.Sprintf("disk %d", rank)
					}
					emit(e)
				}
			}}, nil
		}})
		require.NoError(t, err)
		require.Len(t, merged, 2)
		if failing < 0 {
			require.Equal(t, messages.SaveReport{Step: 2, Parts: [][]byte{{0, 1}, {1, 1}, {2, 1}}}, merged[1])
		} else {
			require.Equal(t, "rank 1: disk 1", merged[0].Err)
		}
	}
}
