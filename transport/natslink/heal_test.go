package natslink

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"phalanx/messages"
	"phalanx/transport"
)

// arrives sends until something arrives: a message is lost when its edge begins anew later.
func arrives(t *testing.T, out, in *rank, dst int, text string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		out.send(t, dst, 0, []byte(text))
		for range 100 {
			in.mu.Lock()
			there := slices.ContainsFunc(in.in, func(m transport.Message) bool { return string(m.Payload) == text })
			in.mu.Unlock()
			if there {
				return
			}
			time.Sleep(time.Millisecond)
		}
		require.True(t, time.Now().Before(deadline), "%q does not arrive", text)
	}
}

// TestAnEdgeBeginsAnew spoils one piece of a message, in every way in which a link that does not heal would fail: both
// ends hear of it once, nothing of the message is delivered, and what is sent then arrives.
func TestAnEdgeBeginsAnew(t *testing.T) {
	flip := func(at int) func([]byte) [][]byte {
		return func(f []byte) [][]byte { f[at] ^= 4; return [][]byte{f} }
	}
	for name, c := range map[string]struct {
		harm    func(frame []byte) [][]byte
		piece   int64
		corrupt uint64
	}{
		"lost":         {drop, 2, 0},
		"last lost":    {drop, 3, 0},
		"header":       {flip(20), 1, 1},
		"version":      {flip(2), 1, 1},
		"payload":      {flip(messages.HeaderSize + 1000), 1, 1},
		"cut":          {func(f []byte) [][]byte { return [][]byte{f[:50]} }, 1, 1},
		"another name": {restep, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, impatient(Options{tamper: onPiece(c.piece, c.harm)}))
			in, out := heal(t, n, 1), heal(t, n, 0)
			out.send(t, 1, 5, payload(0, 1<<20))
			in.loses(t, 0, 1)
			out.loses(t, 1, 1)
			out.send(t, 1, 5, payload(7, 1<<20))
			require.Equal(t, payload(7, 1<<20), in.take(t).Payload)
			for _, r := range []*rank{in, out} {
				r.quiet(t)
				require.Len(t, r.lost, 1)
				require.Zero(t, r.waiting())
			}
			s := n.Stats()
			require.EqualValues(t, 1, s.Lost)
			require.Equal(t, c.corrupt, s.Corrupt)
		})
	}
}

// restep gives a piece a name that the pieces before it do not have.
func restep(f []byte) [][]byte {
	h, p, _ := messages.DecodeFrame(f)
	h.Step++
	return [][]byte{encodeFrame(nil, &h, p)}
}

// TestARepeatedPieceIsDropped: it does no harm, so nothing begins anew.
func TestARepeatedPieceIsDropped(t *testing.T) {
	n := start(t, Options{tamper: onPiece(1, func(f []byte) [][]byte { return [][]byte{f, slices.Clone(f)} })})
	in, out := heal(t, n, 1), heal(t, n, 0)
	out.send(t, 1, 0, payload(0, 1<<20))
	require.Equal(t, payload(0, 1<<20), in.take(t).Payload)
	require.Empty(t, in.lost)
	require.Zero(t, n.Stats().Lost)
}

// TestAQuietRunLosesNothing: a healing link that meets no fault is any link.
func TestAQuietRunLosesNothing(t *testing.T) {
	n := start(t, Options{Ranks: 2, CreditBytes: 1 << 20})
	in, out := heal(t, n, 1), heal(t, n, 0)
	for i := range 50 {
		out.send(t, 1, i%3, payload(i, 300_000))
	}
	for range 50 {
		in.link.Consumed(in.take(t))
	}
	require.Equal(t, []int{0, 0}, []int{len(in.lost), len(out.lost)})
	s := n.Stats()
	require.Zero(t, s.Lost+s.Dropped+s.Fenced+s.Corrupt+s.Foreign)
	require.EqualValues(t, 50, s.Messages)
}

// TestANewLifeReplacesTheOld: a rank begins a second life at the same server while the first still talks. Whoever has
// heard the second hears the first no more.
func TestANewLifeReplacesTheOld(t *testing.T) {
	s := external(t, nil)
	life := func(inc uint32) *Network {
		return start(t, impatient(Options{URL: s.ClientURL(), Ranks: 2, Incarnation: inc}))
	}
	other := heal(t, life(1), 0)
	first := heal(t, life(1), 1)
	first.send(t, 0, 0, []byte("one"))
	other.send(t, 1, 0, []byte("to the first life"))
	first.take(t)
	old := other.take(t)

	second := heal(t, life(2), 1)
	second.control(t, 0, "I am back")
	other.loses(t, 1, 1)
	other.until(t, "the greeting", func() bool { return slices.Equal(other.said, []string{"1 I am back"}) })
	arrives(t, other, second, 1, "to the second life")
	second.send(t, 0, 0, []byte("two"))
	m := other.take(t)
	require.Equal(t, "two", string(m.Payload))
	require.EqualValues(t, 2, m.Header.Incarnation)

	first.send(t, 0, 0, []byte("a ghost"))
	first.control(t, 0, "a ghost")
	mine := other.link.(*link).net
	require.Eventually(t, func() bool { return mine.Stats().Fenced >= 2 }, patience, time.Millisecond)
	other.link.Consumed(old) // of an edge that is no more: ignored
	other.link.Consumed(m)
	other.quiet(t)
	require.Zero(t, other.waiting())
	require.Len(t, other.said, 1)
}

// TestAPeerThatIsAwayCostsNothing: what is sent to it is thrown away once it has been silent for long, and it is
// heard when it comes.
func TestAPeerThatIsAwayCostsNothing(t *testing.T) {
	n := start(t, impatient(Options{}))
	out := heal(t, n, 0)
	out.send(t, 1, 0, payload(0, 1<<20))
	out.loses(t, 1, 1)
	for i := range 1000 {
		out.send(t, 1, 0, payload(i, 1000))
	}
	l := out.link.(*link)
	l.mu.Lock()
	require.False(t, l.out.edges[1].waits())
	l.mu.Unlock()
	require.EqualValues(t, 1000, n.Stats().Dropped) // all pieces of the first were on their way

	in := heal(t, n, 1)
	in.loses(t, 0, 1) // it asks for what it has missed
	arrives(t, out, in, 1, "and now")
	out.quiet(t)
}

// TestAServerComesBack stops the only server for longer than anything is kept. Everybody is told when it is back.
func TestAServerComesBack(t *testing.T) {
	s := external(t, nil)
	port := s.Addr().(*net.TCPAddr).Port
	n := start(t, impatient(Options{URL: s.ClientURL(), Ranks: 3}))
	in, out := heal(t, n, 1), heal(t, n, 0)
	arrives(t, out, in, 1, "before")
	stopServer(s)
	out.send(t, 1, 0, payload(0, 1<<20))
	out.loses(t, 1, 1)
	out.send(t, 1, 0, payload(1, 1<<20))
	require.ErrorContains(t, n.Trouble(), "for ranks [0 1]; trying again; look")
	external(t, func(o *server.Options) { o.Port = port })
	in.loses(t, 0, 1)
	in.loses(t, 2, 1) // which never was there, but may have been spoken to
	out.loses(t, 1, 2)
	arrives(t, out, in, 1, "after")
	in.control(t, 0, "a word")
	out.until(t, "the word", func() bool { return len(out.said) == 1 })
	in.quiet(t)
	out.quiet(t)
	require.Positive(t, n.Stats().Dropped)
}

// TestAServerIsAwaited: a link may be opened while its server is away, and a network started before it is there.
func TestAServerIsAwaited(t *testing.T) {
	s := external(t, nil)
	port := s.Addr().(*net.TCPAddr).Port
	url := s.ClientURL()
	stopServer(s)
	started := make(chan *Network, 1)
	go func() {
		n, err := Start(t.Context(), Options{URL: url, Run: "test", Await: true})
		if err != nil {
			t.Error(err)
		}
		started <- n
	}()
	s = external(t, func(o *server.Options) { o.Port = port })
	n := <-started
	require.NotNil(t, n)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	stopServer(s)
	in, out := heal(t, n, 1), heal(t, n, 0)
	external(t, func(o *server.Options) { o.Port = port })
	arrives(t, out, in, 1, "at last")
	in.quiet(t)
}

// TestStrangersAreIgnored: another build talks on our subjects, on both connections.
func TestStrangersAreIgnored(t *testing.T) {
	s := external(t, nil)
	ours := start(t, Options{URL: s.ClientURL(), Build: 1})
	in := heal(t, ours, 1)
	theirs := heal(t, start(t, Options{URL: s.ClientURL(), Build: 2}), 0)
	theirs.send(t, 1, 0, payload(0, 100))
	theirs.control(t, 1, "hello")
	require.Eventually(t, func() bool { return ours.Stats().Foreign >= 2 }, patience, time.Millisecond)
	in.quiet(t)
	require.Empty(t, in.said)
	require.Zero(t, in.waiting())
}

// TestDroppedPiecesHeal makes the client's own limit smaller than the window, which the limits never do.
func TestDroppedPiecesHeal(t *testing.T) {
	n := start(t, impatient(Options{}))
	hold := make(chan struct{})
	lost := make(chan int, 100)
	in, err := n.Open(1, transport.Handler{
		Receive: func(transport.Message) { <-hold },
		Fail:    func(err error) { t.Error(err) },
		Lost:    func(peer int) { lost <- peer },
	})
	require.NoError(t, err)
	out := heal(t, n, 0)
	require.NoError(t, in.(*link).pieces.SetPendingLimits(-1, 1<<20))
	for i := range 8 {
		out.send(t, 1, 0, payload(i, 1<<20))
	}
	require.Eventually(t, func() bool { return n.Stats().SlowConsumers > 0 }, patience, time.Millisecond)
	close(hold)
	require.Equal(t, 0, <-lost)
	out.quiet(t)
}

// TestControlBodies: of every size, in order, to itself too, and ahead of data that waits.
func TestControlBodies(t *testing.T) {
	n := start(t, Options{Ranks: 2, CreditBytes: 1 << 20})
	in, out := heal(t, n, 1), heal(t, n, 0)
	for i := range 8 {
		out.send(t, 1, 0, payload(i, 1<<20)) // more than anybody takes
	}
	var want []string
	for i, size := range []int{0, 1, 1000, pieceBytesDefault, pieceBytesDefault + 1, 3 << 20} {
		body := strings.Repeat(string(rune('a'+i)), size)
		out.control(t, 1, body)
		want = append(want, "0 "+body)
	}
	in.until(t, "all bodies", func() bool { return len(in.said) == len(want) })
	require.Equal(t, want, in.said)
	in.control(t, 1, "to myself")
	in.until(t, "my own", func() bool { return in.said[len(in.said)-1] == "1 to myself" })
	require.EqualValues(t, len(want)+1, n.Stats().Controls)

	c := out.link.(transport.Controller)
	require.ErrorIs(t, c.Control(2, nil), transport.ErrMisuse)
	require.ErrorIs(t, c.Control(-1, nil), transport.ErrMisuse)
	require.ErrorIs(t, c.Control(1, make([]byte, bodyBytesMax+1)), transport.ErrTooLarge)
	require.NoError(t, n.Close())
	require.ErrorIs(t, c.Control(1, nil), transport.ErrClosed)
}

// TestControlNeedsNoHealing: an ordinary link carries bodies too.
func TestControlNeedsNoHealing(t *testing.T) {
	n := start(t, Options{})
	said := make(chan string, 1)
	_, err := n.Open(1, transport.Handler{
		Receive: func(transport.Message) {}, Fail: func(err error) { t.Error(err) },
		Control: func(src int, b []byte) { said <- string(b) },
	})
	require.NoError(t, err)
	out := open(t, n, 0)
	out.control(t, 1, "a word")
	require.Equal(t, "a word", <-said)
}
