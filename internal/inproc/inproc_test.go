package inproc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

func tp(n int) mesh.Sizes { return mesh.Sizes{TP: n, CP: 1, DP: 1, PP: 1} }

// sum adds v over an axis.
func sum(c nn.Comm, a mesh.Axis, v ...int64) []int64 {
	b := tensor.Bytes(v)
	c.Do(&nn.Op{Axis: a, Kind: nn.AllReduce, DType: tensor.I64, Tag: nn.TagTokenCounts, Site: nn.Site{Phase: nn.Update, Layer: -1}, In: b, Out: b})
	return v
}

// each is one program on every rank.
func each(f func(c nn.Comm)) func(int) []func(nn.Comm) {
	return func(int) []func(nn.Comm) { return []func(nn.Comm){f} }
}

// Every axis, several programs, any order: the same sums, and one seed is one order.
func TestRunsToTheEndInAnyOrder(t *testing.T) {
	sizes := mesh.Sizes{TP: 2, CP: 3, DP: 2, PP: 1}
	var orders []string
	for _, o := range []Options{{Seed: 1}, {Seed: 1}, {Seed: 2}, {Seed: 2, Overtake: true}} {
		order, ended := "", 0
		o.Sent = func(h messages.Header, _ []byte) { order += fmt.Sprint(h.Src, h.Dst, h.Chan, " ") }
		err := Run(sizes, func(rank int) []func(nn.Comm) {
			return []func(nn.Comm){func(c nn.Comm) {
				c.Send(1, "v", int64(rank))
				require.Equal(t, []int64{int64(rank) + 7}, c.Recv(1, "back"))
				ended++
			}, func(c nn.Comm) {
				v := c.Recv(0, "v").(int64)
				require.Equal(t, []int64{66}, sum(c, mesh.DP, sum(c, mesh.CP, sum(c, mesh.TP, v)...)...))
				c.Send(0, "back", []int64{v + 7})
				ended++
			}}
		}, o)
		require.NoError(t, err)
		require.Equal(t, 24, ended)
		orders = append(orders, order)
	}
	require.Equal(t, orders[0], orders[1])
	require.NotEqual(t, orders[0], orders[2])
}

func TestPanicIsAnErrorWithItsStack(t *testing.T) {
	unwound := false
	err := Run(tp(2), each(func(c nn.Comm) {
		if c.Rank(mesh.TP) == 1 {
			panicsHere()
		}
		defer func() { unwound = true }()
		sum(c, mesh.TP, 1)
	}), Options{})
	var p *PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, 1, p.Rank)
	require.Contains(t, err.Error(), "rank 1 program stage panicked")
	require.Contains(t, err.Error(), "boom")
	require.Contains(t, string(p.Stack), "panicsHere")
	require.True(t, unwound, "the other programs are unwound")
}

func panicsHere() { panic("boom") }

func TestWrongOperationIsAnOpError(t *testing.T) {
	err := Run(tp(2), each(func(c nn.Comm) { c.Do(&nn.Op{Axis: mesh.TP, Kind: nn.AllReduce}) }), Options{})
	var e *collective.OpError
	require.ErrorAs(t, err, &e)
}

func TestMismatchIsAnError(t *testing.T) {
	err := Run(tp(2), each(func(c nn.Comm) { sum(c, mesh.TP, make([]int64, 1+c.Rank(mesh.TP))...) }), Options{})
	var e *collective.MismatchError
	require.ErrorAs(t, err, &e)
}

func TestDeadlockIsDiagnosed(t *testing.T) {
	err := Run(tp(2), each(func(c nn.Comm) {
		if c.Rank(mesh.TP) == 0 {
			sum(c, mesh.TP, 1)
		}
	}), Options{})
	var d *DeadlockError
	require.ErrorAs(t, err, &d)
	require.Contains(t, err.Error(), "rank 0 waits in tp all_reduce token_counts")
	require.Contains(t, err.Error(), "rank 1 has finished its program")
	require.Equal(t, []int{1}, d.Statuses[0].Missing)

	err = Run(tp(1), func(int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) { c.Recv(1, "a") }, func(c nn.Comm) { c.Recv(0, "b") }}
	}, Options{})
	require.ErrorAs(t, err, &d)
	require.Contains(t, err.Error(), "cycle")
}

func TestLeftoversAreErrors(t *testing.T) {
	err := Run(tp(1), func(int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) { c.Send(1, "a", 1); c.Send(1, "a", 2) }, func(c nn.Comm) { c.Recv(0, "a") }}
	}, Options{})
	require.EqualError(t, err, `inproc: all programs returned and 0 messages were never read; values that were never received: 1 "a" for rank 0 program mtp.1`)

	err = Run(tp(1), each(func(c nn.Comm) { c.Send(3, "a", 1) }), Options{})
	require.ErrorContains(t, err, `rank 0 program stage sends "a" to rank 0 program mtp.3, which does not exist`)
}

func TestEndlessProgramsAreStopped(t *testing.T) {
	j := newJob(tp(2), each(func(c nn.Comm) {
		for {
			sum(c, mesh.TP, 1)
		}
	}), Options{})
	defer j.stop()
	require.ErrorContains(t, j.run(1000), "no end after 1000 turns")
}

// A payload is the receiver's to overwrite once it has been read; a program's own memory is not.
func TestReadPayloadsAreOverwritten(t *testing.T) {
	for seed := range uint64(20) {
		require.NoError(t, Run(tp(3), each(func(c nn.Comm) {
			for i := range int64(5) {
				require.Equal(t, []int64{3*i + 3, 3}, sum(c, mesh.TP, i+int64(c.Rank(mesh.TP)), 1))
			}
		}), Options{Seed: seed, Overtake: true}))
	}
}

// A collective of the whole pipeline in code that the last stage alone runs ends as a deadlock that names both sides
// (PaddlePaddle/PaddleFleet#1550), and does not hang.
func TestBroadcastOfOneStageIsDiagnosed(t *testing.T) {
	sizes := mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: 2}
	site := nn.Site{Phase: nn.Forward, Layer: 1}
	err := Run(sizes, each(func(c nn.Comm) {
		b := []byte{1}
		if c.Rank(mesh.PP) == 0 {
			c.Do(&nn.Op{Axis: mesh.PP, Kind: nn.Put, DType: tensor.U8, Tag: nn.TagActivation, Site: site, In: b, To: []nn.Part{{Member: 1, Bytes: 1}}})
			c.Do(&nn.Op{Axis: mesh.PP, Kind: nn.Get, DType: tensor.U8, Tag: nn.TagActivationGrad, Site: site, Out: b, From: []nn.Part{{Member: 1, Bytes: 1}}})
			return
		}
		c.Do(&nn.Op{Axis: mesh.PP, Kind: nn.Get, DType: tensor.U8, Tag: nn.TagActivation, Site: site, Out: b, From: []nn.Part{{Member: 0, Bytes: 1}}})
		sum(c, mesh.PP, 1) // which depth this step? the first stage never asks
	}), Options{})
	var d *DeadlockError
	require.ErrorAs(t, err, &d)
	require.ErrorContains(t, err, "rank 0 waits in pp get activation_grad")
	require.ErrorContains(t, err, "rank 1 waits in pp all_reduce token_counts")
	require.ErrorContains(t, err, "cycle")
}
