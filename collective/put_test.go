package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc/property"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

func putSite(i int) nn.Site {
	return nn.Site{Step: i / 7, Microbatch: i % 7, Phase: nn.Forward, Layer: 1}
}

func put(to int, b []byte, i int) *nn.Op {
	return &nn.Op{Axis: mesh.PP, Kind: nn.Put, DType: tensor.U8, Tag: nn.TagActivation, Site: putSite(i), In: b, To: []nn.Part{{Member: to, Bytes: len(b)}}}
}

func get(from int, out []byte, i int) *nn.Op {
	return &nn.Op{Axis: mesh.PP, Kind: nn.Get, DType: tensor.U8, Tag: nn.TagActivation, Site: putSite(i), Out: out, From: []nn.Part{{Member: from, Bytes: len(out)}}}
}

// letter is message i from one member to another: of i%5 bytes, so that some are empty.
func letter(from, to, i int) []byte {
	return bytes.Repeat([]byte{byte(1 + from*31 + to*7 + i)}, i%5)
}

// Each member puts messages to all others and takes theirs in an order of its own, with reductions of the same axis in
// between, under any order of delivery: each arrives whole under its name, and nothing is waited for in vain.
func TestPutsAreTakenByName(t *testing.T) {
	property.Check(t, 200, func(t *rapid.T) {
		size := rapid.IntRange(2, 4).Draw(t, "size")
		n := rapid.IntRange(1, 30).Draw(t, "messages")
		seed := rapid.Uint64().Draw(t, "seed")
		w := newWorld(mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: size}, func(rank int) []func(nn.Comm) {
			return []func(nn.Comm){func(c nn.Comm) {
				rng := rand.New(rand.NewPCG(seed, uint64(rank)))
				for _, at := range rng.Perm(n * size) {
					if to := at / n; to != rank {
						c.Do(put(to, letter(rank, to, at%n), at%n))
					}
				}
				nn.AllReduceInto(c, mesh.PP, nn.TagFlags, putSite(0), nn.Sum, []int64{1})
				for _, at := range rng.Perm(n * size) {
					from, i := at/n, at%n
					if from == rank {
						continue
					}
					out := make([]byte, len(letter(from, rank, i)))
					c.Do(get(from, out, i))
					if !bytes.Equal(out, letter(from, rank, i)) {
						panic(fmt.Sprintf("rank %d got %x for message %d of %d", rank, out, i, from))
					}
				}
			}}
		})
		w.mangle, w.anyOrder = rapid.Bool().Draw(t, "mangle"), rapid.Bool().Draw(t, "any order")
		order := rand.New(rand.NewPCG(seed, 99))
		w.run(order.IntN)
		require.NoError(t, w.err)
		for _, s := range w.statuses() {
			require.Equal(t, Finished, s.State, "%s", s)
		}
		require.Equal(t, w.sent, w.released)
	})
}

// two is the groups of both members of a pipeline of two.
func two() (first, second *Group) {
	s := mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: 2}
	return NewGroup(Place{Rank: 0, Sizes: s}, mesh.PP), NewGroup(Place{Rank: 1, Sizes: s}, mesh.PP)
}

func begun(t *testing.T, g *Group, op *nn.Op) Outgoing {
	out, done, err := g.Begin(0, op)
	require.NoError(t, err)
	require.NotNil(t, done, "a put waits for nobody")
	return out[0]
}

func TestPutErrors(t *testing.T) {
	var (
		twice *NameTwiceError
		size  *PayloadError
		ahead *AheadError
		other *DivergenceError
		wrong *OpError
	)
	a, b := two()
	first, again := begun(t, a, put(1, []byte{1}, 0)), begun(t, a, put(1, []byte{1}, 0))
	_, _, err := b.Deliver(first.Header, first.Payload)
	require.NoError(t, err)
	_, _, err = b.Deliver(first.Header, first.Payload)
	require.NoError(t, err, "a duplicate is dropped")
	require.EqualValues(t, 1, b.Dropped())
	_, _, err = b.Deliver(first.Header, []byte{2})
	require.ErrorAs(t, err, &other)
	_, _, err = b.Deliver(again.Header, again.Payload)
	require.ErrorAs(t, err, &twice)

	a, b = two()
	first = begun(t, a, put(1, []byte{1}, 0))
	_, _, err = b.Begin(0, get(0, make([]byte, 2), 0))
	require.NoError(t, err)
	require.Equal(t, []int{0}, b.Missing(0))
	_, _, err = b.Begin(0, get(0, make([]byte, 2), 1))
	require.ErrorAs(t, err, &wrong, "a program is in one operation at a time")
	_, _, err = b.Deliver(first.Header, first.Payload)
	require.ErrorAs(t, err, &size)

	a, b = two()
	for i := range PutsMax + 1 {
		m := begun(t, a, put(1, nil, i))
		_, _, err = b.Deliver(m.Header, m.Payload)
		require.Equal(t, i == PutsMax, err != nil)
	}
	require.ErrorAs(t, err, &ahead)
	require.Equal(t, PutsMax, b.PutsWaiting())

	both := put(1, nil, 0)
	both.From = []nn.Part{{Member: 1}}
	_, _, err = a.Begin(0, both)
	require.ErrorAs(t, err, &wrong)
}

// A put counts once, at its sender.
func TestPutsAreCounted(t *testing.T) {
	a, b := two()
	m := begun(t, a, put(1, []byte{1, 2, 3}, 0))
	_, _, err := b.Deliver(m.Header, m.Payload)
	require.NoError(t, err)
	out := make([]byte, 3)
	_, done, err := b.Begin(0, get(0, out, 0))
	require.NoError(t, err)
	require.NotNil(t, done)
	require.Equal(t, []byte{1, 2, 3}, out)
	require.Equal(t, []OpCount{{Axis: mesh.PP, Tag: nn.TagActivation, Kind: nn.Put, Count: 1, Bytes: 3}}, SumCounts(a.Counts(), b.Counts()))
	require.Equal(t, messages.Data, m.Header.Kind)
}
