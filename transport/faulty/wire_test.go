package faulty

import (
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/messages"
	"phalanx/transport"
)

// piece is an encoded frame of a step.
func piece(kind messages.Kind, step uint32, body string) []byte {
	h := messages.Header{Kind: kind, Step: step}
	h.Seal([]byte(body))
	f := make([]byte, messages.HeaderSize, messages.HeaderSize+len(body))
	h.Encode(f)
	return append(f, body...)
}

// TestAWireDoesItsShare counts what becomes of many frames.
func TestAWireDoesItsShare(t *testing.T) {
	const n = 20_000
	w := NewWire([]Rule{{From: 0, To: Any, Last: 9, Seed: 3, Drop: 0.1, Duplicate: 0.2, Reorder: 0.05, Corrupt: 0.15}}, 1)
	f := piece(messages.Data, 4, "some bytes")
	flights := 0
	for range n {
		out := w.Send(0, 1, f)
		flights += len(out)
		for _, x := range out {
			require.Len(t, x.Frame, len(f))
			if d := differs(f, x.Frame); d != 0 {
				require.Equal(t, 1, d, "bits that differ")
				_, _, err := messages.DecodeFrame(x.Frame)
				require.Error(t, err)
			}
		}
	}
	c := w.Counts()
	for share, got := range map[float64]uint64{0.1: c.Dropped, 0.2: c.Duplicated, 0.05: c.Reordered, 0.15: c.Corrupted} {
		require.InDelta(t, share*n, got, 6*140) // six standard deviations of at most √(n/4)·2
	}
	require.EqualValues(t, n-c.Dropped+c.Duplicated, flights)
	require.Zero(t, c.Delayed+c.Partitioned)
	require.Equal(t, f, piece(messages.Data, 4, "some bytes"), "the sender's frame is unharmed")
}

func differs(a, b []byte) (n int) {
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}

// TestAWireHasAWindow: other edges and other steps do not suffer; control frames do with the last message.
func TestAWireHasAWindow(t *testing.T) {
	met := 0
	w := NewWire([]Rule{{From: 2, To: 3, First: 5, Last: 6, Drop: 1, Met: func() { met++ }}}, 1)
	passes := func(src, dst int, kind messages.Kind, step uint32) bool {
		return len(w.Send(src, dst, piece(kind, step, ""))) == 1
	}
	require.True(t, passes(2, 3, messages.Data, 4))
	require.True(t, passes(2, 3, messages.Credit, 0))
	require.Zero(t, met)
	require.False(t, passes(2, 3, messages.Data, 5))
	require.Equal(t, 1, met)
	require.False(t, passes(2, 3, messages.Credit, 0))
	require.True(t, passes(2, 1, messages.Data, 5))
	require.True(t, passes(3, 2, messages.Data, 5))
	require.False(t, passes(2, 3, messages.Data, 6))
	require.True(t, passes(2, 3, messages.Data, 7))
	require.True(t, passes(2, 3, messages.Reset, 0))
	require.Equal(t, 2, met, "messages and control frames are two edges")
}

// TestAWireFollowsItsSeed: the same frames meet the same things in the same life, others in another one.
func TestAWireFollowsItsSeed(t *testing.T) {
	run := func(seed uint64, life uint32) (fate []int) {
		w := NewWire([]Rule{{From: Any, To: Any, Last: 9, Seed: seed, Drop: 0.3, Duplicate: 0.3}}, life)
		for range 64 {
			fate = append(fate, len(w.Send(0, 1, piece(messages.Data, 1, "x"))))
		}
		return fate
	}
	require.Equal(t, run(1, 1), run(1, 1))
	require.NotEqual(t, run(1, 1), run(2, 1))
	require.NotEqual(t, run(1, 1), run(1, 2))
}

// TestDelayKeepsOrder: later frames do not go before earlier ones.
func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWire([]Rule{{From: Any, To: Any, Last: 9, Seed: 1, Delay: 20 * time.Millisecond}}, 1)
		var last time.Time
		for range 100 {
			out := w.Send(0, 1, piece(messages.Data, 1, "x"))
			require.Len(t, out, 1)
			require.False(t, out[0].At.Before(last))
			last = out[0].At
			require.False(t, last.Before(time.Now()) || last.After(time.Now().Add(20*time.Millisecond)))
			time.Sleep(time.Millisecond)
		}
		require.EqualValues(t, 100, w.Counts().Delayed)
	})
}

// TestNothingOvertakesWhatWaits: messages of steps outside the window, which are sent again, wait behind those within.
func TestNothingOvertakesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWire([]Rule{{From: Any, To: Any, First: 5, Last: 9, Seed: 1, Delay: 20 * time.Millisecond}}, 1)
		at := func(step uint32) time.Time { return w.Send(0, 1, piece(messages.Data, step, "x"))[0].At }
		require.Zero(t, at(4))
		first := at(5)
		require.Equal(t, first, at(4))
		time.Sleep(20 * time.Millisecond)
		require.Zero(t, at(4))
	})
}

// TestPartitionEnds: it begins with the first frame of the window, on each edge, and lasts as long as it is told to.
func TestPartitionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWire([]Rule{{From: 0, To: Any, First: 2, Last: 3, Partition: time.Second}}, 1)
		send := func(dst int) []transport.Flight { return w.Send(0, dst, piece(messages.Data, 2, "x")) }
		time.Sleep(time.Hour)
		require.Empty(t, send(1))
		time.Sleep(999 * time.Millisecond)
		require.Empty(t, send(1))
		require.Empty(t, send(2))
		time.Sleep(time.Millisecond)
		require.Len(t, send(1), 1)
		require.Empty(t, send(2))
		require.EqualValues(t, 4, w.Counts().Partitioned)
	})
}
