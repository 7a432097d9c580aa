package plane

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen; no test depends on how long it takes.
const patience = 90 * time.Second

// node is a NATS server that can be started again on its port with its files.
type node struct {
	o *server.Options
	s *server.Server
}

func (n *node) launch(t *testing.T) {
	t.Helper()
	s, err := server.NewServer(n.o.Clone())
	require.NoError(t, err)
	s.Start()
	n.s = s
}

func (n *node) start(t *testing.T) {
	t.Helper()
	n.launch(t)
	s := n.s
	require.True(t, s.ReadyForConnections(patience))
	if n.o.Port == server.RANDOM_PORT {
		fmt.Sscanf(s.ClientURL()[strings.LastIndexByte(s.ClientURL(), ':')+1:], "%d", &n.o.Port)
	}
}

func (n *node) stop() {
	if n.s != nil {
		n.s.Shutdown()
		n.s.WaitForShutdown()
		n.s = nil
	}
}

func (n *node) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.o.Port) }

// single is one server with JetStream.
func single(t *testing.T) *node {
	n := &node{o: &server.Options{ServerName: "n0", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	n.start(t)
	t.Cleanup(n.stop)
	return n
}

// cluster is three of them.
func cluster(t *testing.T) []*node {
	t.Helper()
	var nodes []*node
	var routes []string
	for i := range 3 {
		n := &node{o: &server.Options{ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: t.TempDir(),
			NoLog: true, NoSigs: true, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: freePort(t)}}}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", n.o.Cluster.Port))
		nodes = append(nodes, n)
		t.Cleanup(n.stop)
	}
	for _, n := range nodes {
		n.o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		n.launch(t)
	}
	for _, n := range nodes {
		require.True(t, n.s.ReadyForConnections(patience))
	}
	return nodes
}

// freePort is a port that nobody listens at.
func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func urls(nodes []*node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.url())
	}
	return strings.Join(list, ",")
}

// within is a context that ends when a test has waited long enough for anything.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, o Options) *Plane {
	t.Helper()
	if o.Run == "" {
		o.Run = "test"
	}
	p, err := Open(within(t), o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// soon waits for a value.
func soon[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
