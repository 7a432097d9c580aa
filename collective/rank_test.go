package collective

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/nn"
)

// sums adds 1 over tp, n times, first being the number of the first.
func sums(first, n int) []func(nn.Comm) {
	return []func(nn.Comm){func(c nn.Comm) {
		for i := range n {
			c.Do(allReduce(mesh.TP, nn.TagFlags, site(first+i, -1), []float32{1}))
		}
	}}
}

// A rank by hand: what it sends, what it waits for, and that the answer lets the program go on.
func TestRankByHand(t *testing.T) {
	a, b := NewRank(at(2, 1, 1, 0), sums(0, 1)), NewRank(at(2, 1, 1, 1), sums(0, 1))
	defer a.Stop()
	defer b.Stop()
	require.Equal(t, []nn.Program{0}, a.Programs())
	q, fx, err := a.Resume(0)
	require.NoError(t, err)
	require.IsType(t, Collective{}, q)
	require.Len(t, fx.Send, 1)
	require.Empty(t, fx.Ready)
	waits := slices.Collect(a.Waits())
	require.Equal(t, []Wait{{Program: 0, Op: q.(Collective).Op, Peer: 1}}, waits)
	require.Equal(t, fx.Send[0].Header.Chan, waits[0].Chan())
	require.Equal(t, []int{1}, a.Statuses()[0].Missing)
	require.PanicsWithValue(t, "collective: rank 0 program stage is resumed and cannot go on", func() { a.Resume(0) })

	_, theirs, err := b.Resume(0)
	require.NoError(t, err)
	fx, err = a.Deliver(theirs.Send[0].Header, theirs.Send[0].Payload)
	require.NoError(t, err)
	require.Equal(t, []nn.Program{0}, fx.Ready)
	require.Equal(t, []Incoming{Incoming(theirs.Send[0])}, fx.Read)
	require.Empty(t, slices.Collect(a.Waits()))
	require.False(t, a.Over())
	q, _, _ = a.Resume(0)
	require.Equal(t, Done{}, q)
	require.True(t, a.Over())
}

// A value wakes the program that waits for it once; what nobody receives is named.
func TestRankValues(t *testing.T) {
	var got any
	r := NewRank(at(1, 1, 1, 0), []func(nn.Comm){func(c nn.Comm) {
		c.Send(2, "b", 1)
		c.Send(2, "a", 2)
		c.Send(2, "a", 3)
	}, nil, func(c nn.Comm) { got = c.Recv(0, "a") }})
	require.Equal(t, []nn.Program{0, 2}, r.Programs())
	_, fx, err := r.Resume(2)
	require.NoError(t, err)
	require.Empty(t, fx.Ready)
	_, fx, err = r.Resume(0)
	require.NoError(t, err)
	require.Equal(t, []nn.Program{2}, fx.Ready)
	require.Nil(t, got)
	_, _, err = r.Resume(2)
	require.NoError(t, err)
	require.Equal(t, 2, got)
	require.True(t, r.Over())
	require.Equal(t, []string{`1 "a" for rank 0 program mtp.2`, `1 "b" for rank 0 program mtp.2`}, r.Unreceived())
}

// A value for a program that is not there is an error where it is sent.
func TestRankSendsToNobody(t *testing.T) {
	for _, to := range []nn.Program{1, 2, 3} {
		r := NewRank(at(1, 1, 1, 0), []func(nn.Comm){func(c nn.Comm) { c.Send(to, "a", 1) }, nil})
		q, _, err := r.Resume(0)
		require.NoError(t, err)
		require.IsType(t, Panicked{}, q)
		require.EqualError(t, q.(Panicked).Value.(error), `rank 0 program stage sends "a" to rank 0 program `+ProgramName(to)+`, which does not exist`)
		require.False(t, r.Over())
	}
}

// A message of an axis that is not split is nobody's.
func TestRankWrongAxis(t *testing.T) {
	a, b := NewRank(at(2, 1, 1, 0), sums(0, 1)), NewRank(at(2, 1, 1, 1), sums(0, 1))
	defer a.Stop()
	defer b.Stop()
	_, fx, err := b.Resume(0)
	require.NoError(t, err)
	h := fx.Send[0].Header
	h.Chan = Channel(mesh.CP, 0)
	_, err = a.Deliver(h, fx.Send[0].Payload)
	var wrong *AddressError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "cp", wrong.Axis)
}

// A rank that begins at a state counts on from it: three operations of one message each are 0, 1 and 2.
func TestRankState(t *testing.T) {
	w := newWorld(mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 1}, func(int) []func(nn.Comm) { return sums(0, 3) })
	w.run(func(int) int { return 0 })
	require.True(t, w.allDone())
	again := NewRank(at(2, 1, 1, 0), sums(3, 1))
	defer again.Stop()
	again.Restore(w.ranks[0].State())
	_, fx, err := again.Resume(0)
	require.NoError(t, err)
	require.Equal(t, uint64(3), fx.Send[0].Header.Seq)
}

// Values of one name come in order, names apart, and the memory of what was taken is not kept.
func TestPorts(t *testing.T) {
	var p Ports
	for i, name := range []string{"a", "b", "a"} {
		p.Put(1, Sent{Name: name, V: i})
	}
	p.Put(2, Sent{Name: "a", V: 3})
	require.Equal(t, 4, p.Len())
	for _, want := range []int{0, 2} {
		v, there := p.Take(Receive{From: 1, Name: "a"})
		require.True(t, there)
		require.Equal(t, want, v)
	}
	_, there := p.Take(Receive{From: 1, Name: "a"})
	require.False(t, there)
	require.Equal(t, 2, p.Len())
	require.Len(t, p.values, 2)
}

// A program may send to itself: it can go on, once.
func TestRankSendsToItself(t *testing.T) {
	r := NewRank(at(1, 1, 1, 0), []func(nn.Comm){func(c nn.Comm) {
		c.Send(0, "a", 1)
		c.Recv(0, "a")
	}})
	_, fx, err := r.Resume(0)
	require.NoError(t, err)
	require.Equal(t, []nn.Program{0}, fx.Ready)
	_, fx, err = r.Resume(0)
	require.NoError(t, err)
	require.Empty(t, fx.Ready)
	require.True(t, r.Over())
}
