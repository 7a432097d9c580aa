package natslink

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/transport"
)

// The tests of this file are public bugs of brokers, with what a broker does by itself beside what a healing link and
// package recovery make of it.

// member is a rank as runs have it: a healing link below the machine of package recovery, and an owner that reads what
// it is handed.
type member struct {
	mu      sync.Mutex
	some    *sync.Cond
	machine *recovery.Rank
	link    transport.Link
	read    [][]byte
	hold    chan struct{} // what comes waits until it is closed
	errs    []error
}

// join begins a life of one of two ranks.
func join(t *testing.T, n *Network, rank int, hold chan struct{}) *member {
	m := &member{hold: hold}
	m.some = sync.NewCond(&m.mu)
	m.machine = recovery.New(recovery.Options{Rank: rank, World: 2, Incarnation: n.opts.Incarnation}, recovery.State{}, 0, []uint32{0})
	m.mu.Lock()
	defer m.mu.Unlock()
	link, err := n.Open(rank, transport.Handler{
		Receive: m.receive,
		Fail:    func(err error) { m.mu.Lock(); defer m.mu.Unlock(); m.errs = append(m.errs, err) },
		Lost:    func(peer int) { m.mu.Lock(); defer m.mu.Unlock(); m.do(m.machine.Lost(peer), nil) },
		Control: func(_ int, b []byte) {
			m.mu.Lock()
			defer m.mu.Unlock()
			c, err := recovery.DecodeControl(b)
			if err == nil {
				var fx recovery.Effects
				fx, err = m.machine.Control(c)
				m.do(fx, nil)
			}
			m.do(recovery.Effects{}, err)
		},
	})
	require.NoError(t, err)
	m.link = link
	m.do(m.machine.Start(), nil)
	return m
}

func (m *member) receive(x transport.Message) {
	if m.hold != nil {
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fx, err := m.machine.Receive(recovery.Message{Header: x.Header, Payload: slices.Clone(x.Payload)})
	m.link.Consumed(x)
	m.do(fx, err)
}

// do carries out what the machine wants. The caller has the lock.
func (m *member) do(fx recovery.Effects, err error) {
	for _, d := range fx.Deliver {
		m.read = append(m.read, d.Payload)
		m.some.Broadcast()
	}
	for _, p := range fx.Publish {
		p.Header.Incarnation = 0
		err = errors.Join(err, m.link.Send(transport.Message(p)))
	}
	for _, c := range fx.Control {
		err = errors.Join(err, m.link.(transport.Controller).Control(c.Dst, recovery.EncodeControl(c)))
	}
	if err != nil {
		m.errs = append(m.errs, err)
	}
	for _, d := range fx.Deliver {
		m.do(m.machine.Read(recovery.Edge{Peer: d.Header.Src, Chan: d.Header.Chan}), nil)
	}
}

func (m *member) send(dst int, payload []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.do(m.machine.Send(recovery.Message{Header: messages.Header{Dst: uint16(dst), Chan: 1}, Payload: payload}), nil)
}

// has waits for messages, and asks for them as a rank does that waits.
func (m *member) has(t *testing.T, count int, from uint16) [][]byte {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for began := time.Now(); len(m.read) < count; {
		require.Less(t, time.Since(began), patience, "%d messages", len(m.read))
		m.do(m.machine.Tick(time.Now().UnixNano(), []recovery.Edge{{Peer: from, Chan: 1}}), nil)
		m.mu.Unlock()
		time.Sleep(time.Millisecond)
		m.mu.Lock()
	}
	require.Empty(t, m.errs)
	return slices.Clone(m.read)
}

// sum adds the first bytes of shards.
func sum(shards [][]byte) (total int) {
	for _, s := range shards {
		total += int(s[0])
	}
	return total
}

// jet connects to a server's JetStream.
func jet(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	c, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	js, err := jetstream.New(c)
	require.NoError(t, err)
	return c, js
}

func ownServer(t *testing.T, dir string) *Server {
	s, err := StartServer(ServerOptions{Name: "one", URL: "nats://127.0.0.1:0", StoreDir: dir})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestExampleJ1 is nats-server#7564 and Jepsen's report on NATS 2.12.1: what JetStream acknowledges is on disk two minutes
// later, so that a power cut rolls it back. A run's own server syncs every write; and as no shard is ever kept by the broker,
// a server that comes back with the files of the beginning leaves no hole in what ranks have.
func TestExampleJ1(t *testing.T) {
	dir := t.TempDir()
	s := ownServer(t, dir)
	require.True(t, s.s.JetStreamConfig().SyncAlways)
	url := s.URL()
	_, js := jet(t, url)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	require.NoError(t, err)
	beginning := t.TempDir()
	require.NoError(t, os.CopyFS(beginning, os.DirFS(dir)))

	n := start(t, impatient(Options{URL: url, Run: "j1", Ranks: 2}))
	in, out := join(t, n, 1, nil), join(t, n, 0, nil)
	out.send(1, []byte{1})
	require.Equal(t, 1, sum(in.has(t, 1, 0)))
	_, err = kv.PutString(t.Context(), "written", "and acknowledged")
	require.NoError(t, err)
	s.Close()
	out.send(1, []byte{2})
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(beginning)))
	s, err = StartServer(ServerOptions{Name: "one", URL: url, StoreDir: dir})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	out.send(1, []byte{4})
	require.Equal(t, 7, sum(in.has(t, 3, 0)))
	_, js = jet(t, url)
	kv, err = js.KeyValue(t.Context(), "b")
	require.NoError(t, err)
	_, err = kv.Get(t.Context(), "written")
	require.ErrorIs(t, err, jetstream.ErrKeyNotFound, "the power cut was real")
}

// TestExampleJ3 is nats-server#7302: the broker's deduplication is a window of time. A shard that is sent again after it is
// stored twice, one that is sent again on purpose within it is swallowed. Ranks drop what they have by number, for
// ever, and get what they ask for.
func TestExampleJ3(t *testing.T) {
	s := ownServer(t, t.TempDir())
	_, js := jet(t, s.URL())
	stream := func(name string, window time.Duration) (publish func(id string) bool) {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, Duplicates: window})
		require.NoError(t, err)
		return func(id string) bool {
			ack, err := js.Publish(t.Context(), name, []byte{1}, jetstream.WithMsgID(id))
			require.NoError(t, err)
			return !ack.Duplicate
		}
	}
	publish := stream("an-hour", time.Hour)
	require.True(t, publish("asked for again"))
	require.False(t, publish("asked for again"), "swallowed: who asked waits for ever")
	publish = stream("a-moment", 100*time.Millisecond)
	require.True(t, publish("late"))
	for began := time.Now(); !publish("late"); time.Sleep(150 * time.Millisecond) { // until it is added twice
		require.Less(t, time.Since(began), patience)
	}

	life := func(inc uint32) *Network {
		return start(t, Options{URL: s.URL(), Run: "j3", Ranks: 2, Incarnation: inc})
	}
	in := join(t, life(1), 1, nil)
	out := join(t, life(1), 0, nil)
	for i := range 5 {
		out.send(1, []byte{1 << i})
	}
	require.Equal(t, 31, sum(in.has(t, 5, 0)))
	for inc := uint32(2); inc <= 3; inc++ { // the sender computes everything again, at any time
		out = join(t, life(inc), 0, nil)
		for i := range 5 {
			out.send(1, []byte{1 << i})
		}
	}
	out.send(1, []byte{32})
	require.Equal(t, 63, sum(in.has(t, 6, 0)))
	again := join(t, life(2), 1, nil) // the receiver asks for everything again, at once
	require.Equal(t, 63, sum(again.has(t, 6, 0)))
}

// TestExampleJ5 is nats.go#1083: a client that does not take what it subscribed to drops 64 MiB later, without an error
// anywhere but in a callback. A link lets nobody send so much (here 65 shards through a window of 16, each a sixteenth of
// the real size); and if a client drops all the same, it is counted and sent again.
func TestExampleJ5(t *testing.T) {
	s := external(t, func(o *server.Options) { o.MaxPayload, o.MaxPending = 2<<20, 256<<20 })
	hold, lost := make(chan struct{}), make(chan error, 1000)
	c, err := nats.Connect(s.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { lost <- err }))
	require.NoError(t, err)
	defer c.Close()
	sub, err := c.Subscribe("shards", func(*nats.Msg) { <-hold })
	require.NoError(t, err)
	for i := range 70 {
		require.NoError(t, c.Publish("shards", noise[i:][:1<<20]))
	}
	require.ErrorIs(t, <-lost, nats.ErrSlowConsumer)
	require.NoError(t, sub.Unsubscribe())
	close(hold)

	const size = 1 << 16
	shards := func(name string, count, pending int) (*Network, [][]byte) {
		n := start(t, Options{URL: s.ClientURL(), Run: name, Ranks: 2, PieceBytes: size / 4, CreditBytes: 16 * size})
		hold := make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release)
		in, out := join(t, n, 1, hold), join(t, n, 0, nil)
		if pending > 0 {
			require.NoError(t, in.link.(*link).pieces.SetPendingLimits(-1, pending))
		}
		for i := range count {
			out.send(1, payload(i, size))
		}
		if pending > 0 {
			require.Eventually(t, func() bool { return n.Stats().SlowConsumers > 0 }, patience, time.Millisecond)
			require.NoError(t, in.link.(*link).pieces.SetPendingLimits(-1, 64<<20))
		}
		release()
		return n, in.has(t, count, 0)
	}
	n, got := shards("paused", 65, 0)
	require.Zero(t, n.Stats().SlowConsumers)
	for i := range got {
		require.True(t, string(got[i]) == string(noise[i:][:size]), "shard %d", i)
	}
	n, got = shards("dropping", 8, size)
	require.Positive(t, n.Stats().Lost)
	for i := range got {
		require.True(t, string(got[i]) == string(noise[i:][:size]), "shard %d", i)
	}
}

// TestExampleJ6 is nats.go#63: a message above max_payload ends its connection, and with it those behind. 262144 float32
// are exactly 1 MiB, and their header is more. TestExactlyOneMebibyte sends them by an ordinary link.
func TestExampleJ6(t *testing.T) {
	s := external(t, nil)
	const size = 1<<20 + messages.HeaderSize
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "CONNECT {}\r\nPUB shards %d\r\n", size)
	require.NoError(t, err)
	said := ""
	for lines := bufio.NewScanner(c); lines.Scan(); { // until the server hangs up
		said += lines.Text() + "\n"
	}
	require.Contains(t, said, "-ERR 'Maximum Payload Violation'")

	n := start(t, Options{URL: s.ClientURL(), Run: "j6", Ranks: 2})
	in, out := join(t, n, 1, nil), join(t, n, 0, nil)
	for i, bytes := range []int{1 << 20, 10, 1 << 20} {
		out.send(1, payload(i, bytes))
	}
	for i, got := range in.has(t, 3, 0) {
		require.True(t, string(got) == string(noise[i:][:len(got)]), "shard %d", i)
	}
	require.Zero(t, n.Stats().Reconnects+n.Stats().Lost)
	require.GreaterOrEqual(t, n.Stats().Pieces, uint64(2*4+1))
}

// TestExampleJ8 is nats-server#6566, #4786, #4716: what a consumer holds and has not acknowledged comes again late, or
// not at all, and an acknowledgement of a delivery that is over counts for the next. Here a rank dies with three shards
// in its hands while a server of the cluster stops; its next life has them because it asks, each once; and credit that
// the dead one still gives is of another life.
func TestExampleJ8(t *testing.T) {
	urls, servers, again := nodes(t, 3)
	at := func(inc uint32, urls ...string) *Network {
		return start(t, Options{URL: strings.Join(urls, ","), Run: "j8", Ranks: 2, Incarnation: inc, CreditBytes: 1 << 20, MaxPending: ServerMaxPending(3, 0)})
	}
	sender := at(1, urls[0])
	out := join(t, sender, 0, nil)
	held := heal(t, at(1, urls[1], urls[2]), 1) // takes nothing
	for i := range 3 {
		out.send(1, payload(i, 400_000))
	}
	ask := recovery.EncodeControl(recovery.Control{Kind: recovery.Need, Src: 1, Incarnation: 1, Numbers: map[uint16]uint64{1: 0}})
	for began := time.Now(); held.waiting() < 2; time.Sleep(20 * time.Millisecond) { // the servers may not know each other yet
		held.control(t, 0, string(ask))
		require.Less(t, time.Since(began), patience)
	}
	inHand := []transport.Message{held.take(t), held.take(t)}
	servers[1].Close()

	in := join(t, at(2, urls[2]), 1, nil)
	in.has(t, 3, 0)
	for _, m := range inHand { // the dead one acknowledges
		held.link.Consumed(m)
	}
	again(1)
	require.Eventually(t, func() bool {
		held.control(t, 0, "a ghost") // its credits are not repeated
		return sender.Stats().Fenced > 0
	}, patience, time.Millisecond)
	for i := range 3 {
		out.send(1, payload(3+i, 400_000))
	}
	got := in.has(t, 6, 0)
	require.Len(t, got, 6)
	for i := range got {
		require.True(t, string(got[i]) == string(noise[i:][:400_000]), "shard %d", i)
	}
}
