package collective

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(tp, cp, dp, rank int) Place {
	return Place{Rank: rank, Sizes: mesh.Sizes{TP: tp, CP: cp, DP: dp, PP: 1}}
}

func site(step, layer int) nn.Site { return nn.Site{Step: step, Phase: nn.Forward, Layer: layer} }

// allReduce is a float32 sum of n elements on an axis.
func allReduce(a mesh.Axis, tag nn.Tag, s nn.Site, x []float32) *nn.Op {
	return &nn.Op{Axis: a, Kind: nn.AllReduce, DType: tensor.F32, Tag: tag, Site: s, In: tensor.Bytes(x), Out: tensor.Bytes(x)}
}

func TestRoutineSuspendsAndResumes(t *testing.T) {
	op := allReduce(mesh.TP, nn.TagRowOutput, site(3, 1), []float32{1})
	r := NewRoutine(at(2, 1, 1, 1), 0, func(c nn.Comm) {
		require.Equal(t, 2, c.Size(mesh.TP))
		require.Equal(t, 1, c.Rank(mesh.TP))
		c.Send(1, "hidden", "h")
		c.Do(op)
		c.Send(2, "labels", "l")
		require.Equal(t, 42, c.Recv(1, "loss"))
	})
	require.Equal(t, Status{Rank: 1}, r.Status())

	require.Equal(t, Collective{op}, r.Resume(nil))
	require.Equal(t, []Sent{{1, "hidden", "h"}}, r.Outbox())
	s := r.Status()
	require.Equal(t, InCollective, s.State)
	require.Equal(t, "tp all_reduce row_output", s.Op)
	require.Equal(t, site(3, 1), s.Site)
	require.EqualValues(t, 0, s.Progress)

	require.Equal(t, Receive{1, "loss"}, r.Resume(nil))
	require.Equal(t, []Sent{{2, "labels", "l"}}, r.Outbox())
	require.Empty(t, r.Outbox())
	require.Equal(t, `rank 1 waits for "loss" of program mtp.1 after 1 operations`, r.Status().String())

	require.Equal(t, Done{}, r.Resume(42))
	require.Equal(t, Done{}, r.Resume(nil))
	require.Equal(t, Finished, r.Status().State)
	r.Stop()
	require.Equal(t, Done{}, r.Resume(nil))
}

func TestUnsplitAxisCompletesAtOnce(t *testing.T) {
	out := make([]float32, 2)
	r := NewRoutine(at(1, 1, 1, 0), 0, func(c nn.Comm) {
		for _, k := range []nn.OpKind{nn.AllReduce, nn.ReduceScatter, nn.AllGather} {
			clear(out)
			c.Do(&nn.Op{Axis: mesh.EP, Kind: k, DType: tensor.F32, Tag: nn.TagFlags, Site: site(0, -1),
				In: tensor.Bytes([]float32{1, 2}), Out: tensor.Bytes(out)})
			require.Equal(t, []float32{1, 2}, out)
		}
	})
	require.Equal(t, Done{}, r.Resume(nil))
	require.EqualValues(t, 3, r.Status().Progress)
}

func TestPanicIsKeptWithItsStack(t *testing.T) {
	boom := errors.New("boom")
	r := NewRoutine(at(1, 1, 1, 0), 2, func(c nn.Comm) {
		c.Do(allReduce(mesh.TP, nn.TagFlags, nn.Site{Step: 4, Phase: nn.Backward, Depth: 2, Layer: 0}, nil))
		explode(boom)
	})
	q := r.Resume(nil).(Panicked)
	require.Equal(t, boom, q.Value)
	require.Contains(t, string(q.Stack), "collective.explode")
	require.Equal(t, "panicked at step 4 microbatch 0 mtp.2 backward layer 0: boom", q.String())
	require.IsType(t, Panicked{}, r.Resume(nil), "an ended program stays ended")
}

func explode(v any) { panic(v) }

func TestGoexitIsAFailureNotAHang(t *testing.T) {
	r := NewRoutine(at(1, 1, 1, 0), 0, func(nn.Comm) { runtime.Goexit() })
	require.Equal(t, errGoexit, r.Resume(nil).(Panicked).Value)
}

func TestWrongOpPanicsWhereItStands(t *testing.T) {
	for _, c := range []struct {
		change func(*nn.Op)
		says   string
	}{
		{func(op *nn.Op) { op.Kind = 9 }, "kind 9 is unknown"},
		{func(op *nn.Op) { op.Tag = 1024 }, "tag 1024 does not fit a message name, expected 1 to 1023"},
		{func(op *nn.Op) { op.Reduce = 3 }, "reduction 3 is unknown"},
		{func(op *nn.Op) { op.DType = 99 }, "element type DType(99) is unknown"},
		{func(op *nn.Op) { op.DType = tensor.Bool }, "no sum of BOOL"},
		{func(op *nn.Op) { op.DType, op.Reduce = tensor.BF16, nn.Max }, "no max of BF16"},
		{func(op *nn.Op) { op.Site.Step = -1 }, "step -1 does not fit"},
		{func(op *nn.Op) { op.Site.Phase = 0 }, "phase 0 does not fit"},
		{func(op *nn.Op) { op.Site.Layer = 0xffff }, "layer 65535 does not fit a message name, expected -1 to 65534"},
		{func(op *nn.Op) { op.Out = op.Out[:4] }, "Out has 4 bytes, expected 8: member 0 of 2 of a value of 8 bytes"},
		{func(op *nn.Op) { op.In = op.In[:7] }, "In has 7 and Out 8 bytes, expected multiples of 4"},
		{func(op *nn.Op) { op.Kind = nn.AllGather }, "In has 8 bytes, expected 4: member 0 of 2 of a value of 8 bytes"},
	} {
		op := allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1, 2})
		c.change(op)
		r := NewRoutine(at(2, 1, 1, 0), 0, func(c nn.Comm) { c.Do(op) })
		q := r.Resume(nil).(Panicked)
		var wrong *OpError
		require.ErrorAs(t, q.Value.(error), &wrong)
		require.Contains(t, wrong.Error(), c.says)
	}
}

func TestStopUnwinds(t *testing.T) {
	var deferred, after bool
	r := NewRoutine(at(2, 1, 1, 0), 0, func(c nn.Comm) {
		defer func() { deferred = true }()
		c.Recv(1, "never")
		after = true
	})
	r.Resume(nil)
	r.Stop()
	r.Stop()
	require.True(t, deferred)
	require.False(t, after)
	require.Equal(t, Stopped{}, r.Resume(nil))

	NewRoutine(at(2, 1, 1, 0), 0, func(nn.Comm) { t.Error("ran") }).Stop()
}

func TestStopCannotBeSwallowed(t *testing.T) {
	swallow := func(f func()) {
		defer func() { _ = recover() }()
		f()
	}
	for name, code := range map[string]func(nn.Comm){
		"once": func(c nn.Comm) { swallow(func() { c.Recv(1, "x") }) },
		"for ever": func(c nn.Comm) {
			for {
				swallow(func() { c.Recv(1, "x") })
			}
		},
		"other panic":  func(c nn.Comm) { swallow(func() { c.Recv(1, "x") }); panic("late") },
		"asks a defer": func(c nn.Comm) { defer c.Send(1, "x", 1); defer c.Recv(1, "y"); c.Recv(1, "x") },
		"goexit":       func(c nn.Comm) { defer runtime.Goexit(); c.Recv(1, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRoutine(at(2, 1, 1, 0), 0, code)
			require.Equal(t, Receive{1, "x"}, r.Resume(nil))
			r.Stop()
			require.Equal(t, Stopped{}, r.Resume(nil))
		})
	}
}

// A program that never suspends is ended by Place.Stopped.
func TestStoppedRankEndsAProgramThatNeverSuspends(t *testing.T) {
	calls := 0
	place := at(1, 1, 1, 0)
	place.Stopped = func() bool { calls++; return calls > 5 }
	r := NewRoutine(place, 0, func(c nn.Comm) {
		for {
			c.Do(allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1}))
		}
	})
	require.Equal(t, Stopped{}, r.Resume(nil))
	require.EqualValues(t, 5, r.Status().Progress)
}

func TestRequestsPrintInOneLine(t *testing.T) {
	op := allReduce(mesh.TP, nn.TagRowOutput, site(3, 1), []float32{1})
	for _, s := range []string{
		Collective{op}.String(), Receive{2, "x"}.String(), Done{}.String(), Stopped{}.String(), Sent{1, "x", 2}.String(),
		Panicked{Value: "x"}.String(), Completion{0, op}.String(), OpCount{}.String(), Status{}.String(),
	} {
		require.NotEmpty(t, s)
		require.NotContains(t, s, "\n")
	}
	require.True(t, strings.HasPrefix(Collective{op}.String(), "collective tp all_reduce sum row_output F32[1] at step 3"))
}

func BenchmarkResume(b *testing.B) {
	r := NewRoutine(at(2, 1, 1, 0), 0, func(c nn.Comm) {
		for {
			c.Recv(1, "x")
		}
	})
	for b.Loop() {
		r.Resume(nil)
	}
	r.Stop()
}
