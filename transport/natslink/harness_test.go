package natslink

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/messages"
	"phalanx/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen; no test depends on how long it takes.
const patience = 60 * time.Second

// rank is one rank of a test: its link, what it has received, and its failures.
type rank struct {
	link transport.Link
	mu   sync.Mutex
	some *sync.Cond
	in   []transport.Message
	errs []error
	lost []int    // peers, of a healing link
	said []string // control bodies, "src body"
}

func open(t *testing.T, n *Network, number int) *rank {
	r := &rank{}
	r.some = sync.NewCond(&r.mu)
	link, err := n.Open(number, transport.Handler{
		Receive: func(m transport.Message) { r.note(func() { r.in = append(r.in, m) }) },
		Fail:    func(err error) { r.note(func() { r.errs = append(r.errs, err) }) },
	})
	require.NoError(t, err)
	r.link = link
	return r
}

// heal opens a healing link.
func heal(t *testing.T, n *Network, number int) *rank {
	r := &rank{}
	r.some = sync.NewCond(&r.mu)
	link, err := n.Open(number, transport.Handler{
		Receive: func(m transport.Message) { r.note(func() { r.in = append(r.in, m) }) },
		Fail:    func(err error) { r.note(func() { r.errs = append(r.errs, err) }) },
		Lost:    func(peer int) { r.note(func() { r.lost = append(r.lost, peer) }) },
		Control: func(src int, b []byte) { r.note(func() { r.said = append(r.said, fmt.Sprintf("%d %s", src, b)) }) },
	})
	require.NoError(t, err)
	r.link = link
	return r
}

func (r *rank) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.some.Broadcast()
}

// until waits for a condition on what the rank has seen.
func (r *rank) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() { r.note(func() { late = true }) })
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		require.False(t, late, "%s: %d messages and %v after %v", what, len(r.in), r.errs, patience)
		r.some.Wait()
	}
}

// take waits for the next message.
func (r *rank) take(t *testing.T) transport.Message {
	t.Helper()
	r.until(t, "a message", func() bool { return len(r.in) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.in[0]
	r.in = r.in[1:]
	return m
}

// failure waits for the first failure.
func (r *rank) failure(t *testing.T) error {
	t.Helper()
	r.until(t, "a failure", func() bool { return len(r.errs) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errs[0]
}

// loses waits until the link has begun anew with a peer that many times.
func (r *rank) loses(t *testing.T, peer, times int) {
	t.Helper()
	r.until(t, fmt.Sprintf("%d losses with %d", times, peer), func() bool { return count(r.lost, peer) >= times })
}

func count(list []int, v int) (n int) {
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}

func (r *rank) control(t *testing.T, dst int, body string) {
	t.Helper()
	require.NoError(t, r.link.(transport.Controller).Control(dst, []byte(body)))
}

func (r *rank) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.in)
}

func (r *rank) quiet(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.errs)
}

func (r *rank) send(t *testing.T, dst, ch int, payload []byte) {
	t.Helper()
	require.NoError(t, r.link.Send(transport.Message{Header: messages.Header{Dst: uint16(dst), Chan: uint16(ch)}, Payload: payload}))
}

// start is an embedded network that ends with the test.
func start(t *testing.T, o Options) *Network {
	t.Helper()
	if o.URL == "" {
		o.Embedded = true
	}
	if o.Run == "" {
		o.Run = "test"
	}
	n, err := Start(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// external runs a NATS server as others run it: with its own defaults, on a port.
func external(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(patience))
	t.Cleanup(func() { stopServer(s) })
	return s
}

func stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

var noise = func() []byte {
	b := make([]byte, 41<<20)
	rand.NewChaCha8([32]byte{2}).Read(b)
	return b
}()

// payload is n bytes that belong to i.
func payload(i, n int) []byte { return bytes.Clone(noise[i:][:n]) }
