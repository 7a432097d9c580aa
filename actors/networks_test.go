package actors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/transport"
	"phalanx/transport/direct"
	"phalanx/transport/faulty"
	"phalanx/transport/natslink"
)

// The tests in this file run over the real networks.

const runID = "actors"

// newNetwork is an open network. credit 0 is the link's default.
func newNetwork(t testing.TB, name string, credit int) transport.Network {
	if name == "direct" {
		return direct.New(transport.Identity{Run: messages.RunHash(runID), Build: 9})
	}
	n, err := natslink.Start(context.Background(), natslink.Options{Embedded: true, Run: runID, Build: 9, CreditBytes: credit})
	require.NoError(t, err)
	return n
}

func overEveryNetwork(t *testing.T, f func(t *testing.T, open func() transport.Network)) {
	for _, name := range []string{"direct", "nats"} {
		t.Run(name, func(t *testing.T) { f(t, func() transport.Network { return newNetwork(t, name, 128<<10) }) })
	}
}

func TestRandomCollectivesOverNetworks(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, open func() transport.Network) {
		n := open()
		_, err := runJob(t, Job{Sizes: mesh.Sizes{TP: 2, CP: 2, DP: 2, PP: 1}, Network: n, Run: messages.RunHash(runID), Build: 9,
			Programs: byRank(randomOps(t, 200, 3))})
		require.NoError(t, err)
	})
}

// Values larger than a NATS piece and than the window of a channel, two programs at once.
func TestLargeValuesOverNetworks(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, open func() transport.Network) {
		program := func(k int) func(nn.Comm) {
			return func(c nn.Comm) {
				x := make([]float32, 300<<10+k)
				for i := range 3 {
					for j := range x {
						x[j] = float32(c.Rank(mesh.TP) + j%7)
					}
					site := at(i, nn.Update, -1)
					site.Depth = k
					c.Do(&nn.Op{Axis: mesh.TP, Kind: nn.AllReduce, DType: tensor.F32, Tag: nn.TagGradient, Site: site, In: tensor.Bytes(x), Out: tensor.Bytes(x)})
					for j := range x {
						if x[j] != float32(3+3*(j%7)) {
							require.Equal(t, float32(3+3*(j%7)), x[j])
						}
					}
				}
			}
		}
		_, err := runJob(t, Job{Sizes: tpOnly(3), Network: open(), Programs: same(program(0), program(1))})
		require.NoError(t, err)
	})
}

func TestRunsOfAnotherBuildAreRefused(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, open func() transport.Network) {
		_, err := runJob(t, Job{Sizes: tpOnly(2), Network: open(), Build: 10, Programs: byRank(randomOps(t, 10, 3))})
		require.ErrorIs(t, err, transport.ErrForeign)
		require.ErrorContains(t, err, "failed in link")
	})
}

func TestFaultsOverNetworks(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, open func() transport.Network) {
		job := func(p faulty.Plan) Job {
			p.Seed = 1
			return Job{Sizes: mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}, Network: faulty.Wrap(open(), p), StallTimeout: 400 * time.Millisecond,
				Programs: byRank(randomOps(t, 60, 4))}
		}
		res, err := runJob(t, job(faulty.Plan{Duplicate: 0.3}))
		require.NoError(t, err)
		require.NotZero(t, res.Duplicates)

		_, err = runJob(t, job(faulty.Plan{Delay: 0.2, Wait: time.Millisecond}))
		require.NoError(t, err, "messages are named: their order does not matter")

		_, err = runJob(t, job(faulty.Plan{Drop: 0.02}))
		var s *StallError
		require.ErrorAs(t, err, &s)
		require.Contains(t, s.Text, " waits in ")

		_, err = runJob(t, job(faulty.Plan{Corrupt: 0.05}))
		require.ErrorIs(t, err, transport.ErrCorrupt)
		var r *RankError
		require.True(t, errors.As(err, &r) && r.Part == "link", "%v", err)
	})
}

func TestInterruptOverNetworks(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, open func() transport.Network) {
		ctx, cancel := context.WithCancel(context.Background())
		n := open()
		began := make(chan struct{})
		go func() { <-began; time.Sleep(20 * time.Millisecond); cancel() }()
		_, err := runJobIn(t, ctx, Job{Sizes: tpOnly(2), Network: n, Programs: byRank(func(rank int, c nn.Comm) {
			for i := 0; ; i++ {
				checkOp(t, c, mesh.TP, nn.AllReduce, 1000, i)
				if i == 10 && rank == 0 {
					close(began)
				}
			}
		})})
		require.ErrorIs(t, err, ErrInterrupted)
	})
}

// One step's all-reduces, as bytes per second and as time of one.
func BenchmarkAllReduce(b *testing.B) {
	for _, network := range []string{"direct", "nats"} {
		for _, size := range []struct {
			name string
			n    int
		}{{"1KiB", 256}, {"64KiB", 16 << 10}, {"16MiB", 4 << 20}} {
			b.Run(network+"/"+size.name, func(b *testing.B) {
				b.SetBytes(int64(4 * size.n))
				_, err := Run(context.Background(), Job{Sizes: tpOnly(4), Network: newNetwork(b, network, 0), Programs: byRank(func(rank int, c nn.Comm) {
					x := make([]float32, size.n)
					op := func(i int) {
						c.Do(&nn.Op{Axis: mesh.TP, Kind: nn.AllReduce, DType: tensor.F32, Tag: nn.TagGradient, Site: at(i, nn.Update, -1), In: tensor.Bytes(x), Out: tensor.Bytes(x)})
					}
					for i := range 3 {
						op(i)
					}
					if rank == 0 {
						b.ResetTimer()
					}
					for i := range b.N {
						op(3 + i)
					}
				})})
				require.NoError(b, err)
			})
		}
	}
}
