package natslink

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"phalanx/messages"
	"phalanx/transport"
)

// impatient are options whose outages and probes take milliseconds.
func impatient(o Options) Options {
	o.tick, o.Outage = 5*time.Millisecond, 100*time.Millisecond
	return o
}

// onPiece tampers with the n-th data piece a network receives.
func onPiece(n int64, f func(frame []byte) [][]byte) func([]byte) [][]byte {
	var count atomic.Int64
	return func(frame []byte) [][]byte {
		if h, err := messages.Decode(frame); err == nil && h.Kind == messages.Data && count.Add(1)-1 == n {
			return f(slices.Clone(frame))
		}
		return [][]byte{frame}
	}
}

func drop([]byte) [][]byte { return nil }

func TestLostPieceIsSeenOnTheNext(t *testing.T) {
	n := start(t, Options{tamper: onPiece(2, drop)})
	in, out := open(t, n, 1), open(t, n, 0)
	out.send(t, 1, 5, payload(0, 1<<20))
	err := in.failure(t)
	require.ErrorIs(t, err, transport.ErrLost)
	require.ErrorContains(t, err, "rank 0→1 channel 0x0005: a piece was lost: found piece number 3, expected 2")
	require.Zero(t, in.waiting())
}

// TestLostLastPieceIsSeenBySilence: nothing follows that would show the gap, so a probe must.
func TestLostLastPieceIsSeenBySilence(t *testing.T) {
	o := impatient(Options{tamper: onPiece(3, drop)})
	o.Outage = patience
	n := start(t, o)
	in, out := open(t, n, 1), open(t, n, 0)
	out.send(t, 1, 5, payload(0, 1<<20))
	err := in.failure(t)
	require.ErrorIs(t, err, transport.ErrLost)
	require.ErrorContains(t, err, "found 3 pieces, expected 4, as many as were sent")
}

func TestRepeatedPieceIsRefused(t *testing.T) {
	n := start(t, Options{tamper: onPiece(1, func(f []byte) [][]byte { return [][]byte{f, slices.Clone(f)} })})
	in, out := open(t, n, 1), open(t, n, 0)
	out.send(t, 1, 0, payload(0, 1<<20))
	err := in.failure(t)
	require.ErrorIs(t, err, transport.ErrDisorder)
	require.ErrorContains(t, err, "found piece number 1 again, expected 2")
}

// TestDamageIsSeen flips one bit of header or payload on the way.
func TestDamageIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		at   int
		want error
	}{
		"header": {20, messages.ErrHeaderCRC}, "magic": {0, messages.ErrMagic}, "payload": {messages.HeaderSize + 1000, messages.ErrPayloadCRC},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, Options{tamper: onPiece(1, func(f []byte) [][]byte { f[c.at] ^= 4; return [][]byte{f} })})
			in, out := open(t, n, 1), open(t, n, 0)
			out.send(t, 1, 0, payload(0, 1<<20))
			err := in.failure(t)
			require.ErrorIs(t, err, transport.ErrCorrupt)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "rank 0→1")
			require.Zero(t, in.waiting())
		})
	}
	t.Run("cut", func(t *testing.T) {
		n := start(t, Options{tamper: onPiece(0, func(f []byte) [][]byte { return [][]byte{f[:50]} })})
		in, out := open(t, n, 1), open(t, n, 0)
		out.send(t, 1, 0, payload(0, 100))
		require.ErrorIs(t, in.failure(t), messages.ErrShort)
	})
}

// TestOneEdgeFailsAlone: after a loss from rank 0, rank 2 is still heard, and the failure is reported once.
func TestOneEdgeFailsAlone(t *testing.T) {
	n := start(t, Options{tamper: onPiece(0, drop)})
	in, out, other := open(t, n, 1), open(t, n, 0), open(t, n, 2)
	for i := range 10 {
		out.send(t, 1, 0, payload(i, 100))
	}
	require.ErrorIs(t, in.failure(t), transport.ErrLost)
	other.send(t, 1, 0, []byte("still here"))
	require.Equal(t, "still here", string(in.take(t).Payload))
	in.mu.Lock()
	defer in.mu.Unlock()
	require.Len(t, in.errs, 1)
}

// TestForeignMessages: a rank of another build, topology or run id hash talks on our subjects.
func TestForeignMessages(t *testing.T) {
	s := external(t, nil)
	for name, c := range map[string]struct {
		theirs Options
		want   string
	}{
		"build":    {Options{Build: 2}, "found build 0x2, expected 0x1"},
		"topology": {Options{Build: 1, Topology: 9}, "found topology 0x9, expected 0x0"},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := c.theirs
			theirs.URL, theirs.Run = s.ClientURL(), "foreign-"+name
			ours := start(t, Options{URL: s.ClientURL(), Run: theirs.Run, Build: 1})
			in := open(t, ours, 1)
			out := open(t, start(t, theirs), 0)
			out.send(t, 1, 0, payload(0, 100))
			err := in.failure(t)
			require.ErrorIs(t, err, transport.ErrForeign)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestSilentRank: nobody listens where the message goes.
func TestSilentRank(t *testing.T) {
	n := start(t, impatient(Options{}))
	out := open(t, n, 0)
	out.send(t, 1, 0, payload(0, 100))
	err := out.failure(t)
	require.ErrorIs(t, err, transport.ErrSilent)
	require.ErrorContains(t, err, "rank 0→1: the other rank does not answer: found 0 pieces acknowledged after")
}

// TestServerStaysAway: the failure comes after the outage limit, with the address.
func TestServerStaysAway(t *testing.T) {
	s := external(t, nil)
	n := start(t, impatient(Options{URL: s.ClientURL()}))
	in, out := open(t, n, 1), open(t, n, 0)
	out.send(t, 1, 0, payload(0, 100))
	in.link.Consumed(in.take(t))
	stopServer(s)
	for _, r := range []*rank{in, out} {
		err := r.failure(t)
		require.ErrorIs(t, err, transport.ErrConnection)
		require.ErrorContains(t, err, "no server at "+s.ClientURL()+" for 100ms")
	}
	out.send(t, 1, 0, payload(0, 100)) // is queued, does not block
}

// TestTroubleIsTold: a lost connection is named as long as it is lost.
func TestTroubleIsTold(t *testing.T) {
	s := external(t, nil)
	port := s.Addr().(*net.TCPAddr).Port
	n := start(t, Options{URL: s.ClientURL(), Outage: patience})
	open(t, n, 3)
	open(t, n, 0)
	require.NoError(t, n.Trouble())
	stopServer(s)
	require.Eventually(t, func() bool { return n.Trouble() != nil }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		return n.Trouble().Error() == "rank 0: the connection is gone: no server at "+s.ClientURL()+" for ranks [0 3]; trying again for at most 1m0s; "+
			"look whether the NATS server runs, then restart the run from its last checkpoint"
	}, patience, time.Millisecond)
	external(t, func(o *server.Options) { o.Port = port })
	require.Eventually(t, func() bool { return n.Trouble() == nil }, patience, time.Millisecond)
	require.NoError(t, n.Close())
	require.NoError(t, n.Trouble())
}

func TestEmbeddedServerDies(t *testing.T) {
	n := start(t, impatient(Options{}))
	in := open(t, n, 1)
	stopServer(n.server)
	require.ErrorIs(t, in.failure(t), transport.ErrConnection)
}

// TestServerRestarts kills an external server in the middle of traffic and starts it again. Either every message
// arrives, or a failure says that some did not; both ends keep still in neither case.
func TestServerRestarts(t *testing.T) {
	for round := range 2 {
		s := external(t, nil)
		port := s.Addr().(*net.TCPAddr).Port
		n := start(t, Options{URL: s.ClientURL(), tick: 5 * time.Millisecond, Outage: patience, CreditBytes: 1 << 20})
		in, out := open(t, n, 1), open(t, n, 0)
		const count = 200
		for i := range count {
			out.send(t, 1, 0, payload(i, 200_000))
		}
		for taken := 0; taken < count; taken++ {
			if taken == 20+round {
				stopServer(s)
				s = external(t, func(o *server.Options) { o.Port = port })
			}
			in.until(t, "a message or a failure", func() bool { return len(in.in)+len(in.errs) > 0 })
			if in.waiting() == 0 {
				err := in.failure(t)
				require.ErrorIs(t, err, transport.ErrLost)
				t.Logf("round %d, message %d: %v", round, taken, err)
				break
			}
			m := in.take(t)
			require.True(t, string(m.Payload) == string(noise[taken:][:200_000]), "message %d has other bytes", taken)
			in.link.Consumed(m)
		}
		require.Eventually(t, func() bool { return n.Stats().Reconnects == 4 }, patience, time.Millisecond)
		require.NoError(t, n.Close())
	}
}

// TestSlowConsumerIsReported makes the client's own limit smaller than the window, which the limits never do.
func TestSlowConsumerIsReported(t *testing.T) {
	n := start(t, Options{})
	release := make(chan struct{})
	failed := make(chan error, 10)
	in, err := n.Open(1, transport.Handler{
		Receive: func(transport.Message) { <-release },
		Fail:    func(err error) { failed <- err },
	})
	require.NoError(t, err)
	out := open(t, n, 0)
	require.NoError(t, in.(*link).pieces.SetPendingLimits(-1, 1<<20))
	for i := range 8 {
		out.send(t, 1, 0, payload(i, 1<<20))
	}
	err = <-failed
	close(release)
	require.ErrorIs(t, err, transport.ErrSlowConsumer)
	require.ErrorContains(t, err, "rank 1: the client dropped pieces")
	require.Positive(t, n.Stats().SlowConsumers)
}

func TestConsumedTwiceIsReported(t *testing.T) {
	n := start(t, Options{})
	in, out := open(t, n, 1), open(t, n, 0)
	out.send(t, 1, 0, payload(0, 100))
	m := in.take(t)
	in.link.Consumed(m)
	in.link.Consumed(m)
	require.ErrorIs(t, in.failure(t), transport.ErrMisuse)
}

// TestTooLargeIsRefused: the allocation is never touched, so it costs address space only.
func TestTooLargeIsRefused(t *testing.T) {
	n := start(t, Options{PieceBytes: pieceBytesMin})
	out := open(t, n, 0)
	err := out.link.Send(transport.Message{Header: messages.Header{Dst: 1}, Payload: make([]byte, 64<<20)})
	require.ErrorIs(t, err, transport.ErrTooLarge)
	require.ErrorContains(t, err, "found 67108864 bytes, expected at most 67107840 (65535 pieces of 1024)")
}
