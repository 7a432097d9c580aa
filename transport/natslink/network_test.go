package natslink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"phalanx/messages"
	"phalanx/transport"
)

// TestMessageLargerThanTheWindow sends 40 MiB through a window of 1 MiB, between small messages, to an owner that
// looks at a message only when it is complete.
func TestMessageLargerThanTheWindow(t *testing.T) {
	n := start(t, Options{CreditBytes: 1 << 20})
	in, out := open(t, n, 1), open(t, n, 0)
	sizes := []int{100, 40 << 20, 0, 3 << 20, 7}
	for i, size := range sizes {
		out.send(t, 1, 0, payload(i, size))
	}
	for i, size := range sizes {
		m := in.take(t)
		require.Equal(t, size, int(m.Header.Len))
		require.True(t, string(m.Payload) == string(noise[i:][:size]), "message %d has other bytes", i)
		require.Equal(t, messages.Checksum(m.Payload), m.Header.PayloadCRC, "of the whole payload")
		in.link.Consumed(m)
	}
	in.quiet(t)
	out.quiet(t)
	require.Positive(t, n.Stats().Credits)
	require.EqualValues(t, 43<<20+107, n.Stats().Bytes)
}

// TestExactlyOneMebibyte is a tensor of 262144 float32 at an external server with the default max_payload of 1 MiB,
// which counts headers, and the small messages behind it.
func TestExactlyOneMebibyte(t *testing.T) {
	s := external(t, nil)
	for _, piece := range []int{0, 1 << 20, 4 << 20} {
		t.Run(fmt.Sprintf("pieces of %d", piece), func(t *testing.T) {
			n := start(t, Options{URL: s.ClientURL(), PieceBytes: piece})
			in, out := open(t, n, 1), open(t, n, 0)
			out.send(t, 1, 0, payload(0, 1<<20))
			out.send(t, 1, 0, payload(1, 10))
			out.send(t, 1, 0, payload(2, 1<<20))
			for i, size := range []int{1 << 20, 10, 1 << 20} {
				m := in.take(t)
				require.True(t, string(m.Payload) == string(noise[i:][:size]))
				in.link.Consumed(m)
			}
			in.quiet(t)
			out.quiet(t)
			require.Zero(t, n.Stats().Reconnects)
		})
	}
}

// TestPiecesShrinkToTheServer: a server with a small max_payload gets small pieces, one with a tiny one is refused.
func TestPiecesShrinkToTheServer(t *testing.T) {
	for _, max := range []int32{4 << 10, 10_000} {
		s := external(t, func(o *server.Options) { o.MaxPayload = max })
		n := start(t, Options{URL: s.ClientURL()})
		in, out := open(t, n, 1), open(t, n, 0)
		out.send(t, 1, 0, payload(0, 100_000))
		m := in.take(t)
		require.True(t, string(m.Payload) == string(noise[:100_000]))
		in.link.Consumed(m)
		require.GreaterOrEqual(t, int(n.Stats().Pieces), 100_000/int(max))
		in.quiet(t)
	}
	s := external(t, func(o *server.Options) { o.MaxPayload = 4095 })
	_, err := Start(t.Context(), Options{URL: s.ClientURL(), Run: "test"})
	require.ErrorContains(t, err, "found max_payload 4095")
	require.ErrorContains(t, err, "expected at least 4096: raise max_payload of the server")
}

// TestSlowReceiver sends 70 messages of 1 MiB to an owner that takes none of them. The sender is never
// blocked, the receiver gets a window and at most one message more, and nothing is lost once the owner moves.
func TestSlowReceiver(t *testing.T) {
	const count, window = 70, 16
	n := start(t, Options{})
	in, out := open(t, n, 1), open(t, n, 0)
	for i := range count {
		out.send(t, 1, 0, payload(i, 1<<20))
	}
	in.until(t, "a full window", func() bool { return len(in.in) >= window-1 })
	l := out.link.(*link)
	for taken := range count {
		l.mu.Lock()
		w := l.out.edges[1].chans[0].window
		l.mu.Unlock()
		require.LessOrEqual(t, w.out-w.back, w.size)
		require.LessOrEqual(t, in.waiting(), window+1)
		m := in.take(t)
		require.True(t, string(m.Payload) == string(noise[taken:][:1<<20]), "message %d has other bytes", taken)
		in.link.Consumed(m)
	}
	in.quiet(t)
	out.quiet(t)
	require.Zero(t, n.Stats().SlowConsumers)
}

// TestOneFullChannelDoesNotStopAnother: the owner of a full channel waits for a message of another channel that was
// sent later on the same edge. One window for both would deadlock here.
func TestOneFullChannelDoesNotStopAnother(t *testing.T) {
	n := start(t, Options{CreditBytes: 1 << 20})
	in, out := open(t, n, 1), open(t, n, 0)
	for i := range 8 {
		out.send(t, 1, 7, payload(i, 1<<20))
	}
	out.send(t, 1, 8, []byte("this first"))
	var early []transport.Message
	for {
		m := in.take(t)
		if m.Header.Chan == 8 {
			in.link.Consumed(m)
			break
		}
		early = append(early, m)
	}
	require.Less(t, len(early), 4)
	for i := range 8 {
		var m transport.Message
		if i < len(early) {
			m = early[i]
		} else {
			m = in.take(t)
		}
		require.True(t, string(m.Payload) == string(noise[i:][:1<<20]))
		in.link.Consumed(m)
	}
	in.quiet(t)
}

// TestTwoProcesses: the embedded server of one network listens, and a second network, as in another process, joins.
func TestTwoProcesses(t *testing.T) {
	first := start(t, Options{Embedded: true, URL: "nats://127.0.0.1:0", Ranks: 2, CreditBytes: 1 << 20})
	second := start(t, Options{URL: first.URL(), Ranks: 2, CreditBytes: 1 << 20})
	a, b := open(t, first, 0), open(t, second, 1)
	var wg sync.WaitGroup
	for i, r := range []*rank{a, b} {
		wg.Go(func() {
			for k := range 5 {
				r.send(t, 1-i, k%2, payload(k, k<<19))
			}
		})
		wg.Go(func() {
			next := [2]int{0, 1}
			for range 5 {
				m := r.take(t)
				k := next[m.Header.Chan]
				next[m.Header.Chan] += 2
				if string(m.Payload) != string(noise[k:][:k<<19]) {
					t.Errorf("message %d has other bytes", k)
				}
				r.link.Consumed(m)
			}
		})
	}
	wg.Wait()
	a.quiet(t)
	b.quiet(t)
	require.ErrorIs(t, a.link.Send(transport.Message{Header: messages.Header{Dst: 2}}), transport.ErrMisuse)
	_, err := first.Open(2, transport.Handler{Receive: func(transport.Message) {}, Fail: func(error) {}})
	require.ErrorContains(t, err, "found rank 2, expected 0 to 1")
}

// TestBuffersAreReused: a steady stream of equal messages lives on a handful of buffers.
func TestBuffersAreReused(t *testing.T) {
	n := start(t, Options{})
	in, out := open(t, n, 1), open(t, n, 0)
	seen := map[*byte]bool{}
	for i := range 10 {
		out.send(t, 1, 0, payload(i, 1<<20))
		m := in.take(t)
		seen[&m.Payload[0]] = true
		in.link.Consumed(m)
	}
	require.LessOrEqual(t, len(seen), 2)
}

// TestKeptBuffers: what is kept is the owner's, although its credit is back, until it gives it back.
func TestKeptBuffers(t *testing.T) {
	n := start(t, Options{CreditBytes: 2 << 20})
	in, out := open(t, n, 1), open(t, n, 0)
	lender := in.link.(transport.Lender)
	var kept []transport.Message
	for i := range 5 { // more than the window
		out.send(t, 1, 0, payload(i, 1<<20))
		kept = append(kept, in.take(t))
		lender.Keep(kept[i])
	}
	seen := map[*byte]bool{}
	for i, m := range kept {
		require.True(t, string(m.Payload) == string(noise[i:][:1<<20]), "message %d was written over", i)
		seen[&m.Payload[0]] = true
	}
	require.Len(t, seen, 5)
	out.send(t, 1, 0, payload(9, 100))
	small := in.take(t)
	lender.Keep(small)
	lender.Recycle(small.Payload) // NATS's own: it stays away from the pool
	for _, m := range kept {
		lender.Recycle(m.Payload)
	}
	for i := range 5 {
		out.send(t, 1, 0, payload(i, 1<<20))
		m := in.take(t)
		seen[&m.Payload[0]] = true
		in.link.Consumed(m)
	}
	require.Len(t, seen, 5, "buffers that were given back are used again")
	in.quiet(t)
}

// TestInABubble: the network runs on virtual time, so tests of the layers above may.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := Start(context.Background(), Options{Embedded: true, Run: "bubble"})
		require.NoError(t, err)
		in, out := open(t, n, 1), open(t, n, 0)
		out.send(t, 1, 0, payload(0, 1<<20))
		time.Sleep(time.Hour)
		require.Equal(t, 1, in.waiting())
		in.link.Consumed(in.take(t))
		in.quiet(t)
		require.NoError(t, n.Close())
	})
}

func TestNameAndURL(t *testing.T) {
	n := start(t, Options{})
	require.Equal(t, "nats", n.Name())
	require.Empty(t, n.URL())
}
