package natslink

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// nodes starts the servers of a cluster, and gives a way to start one of them again.
func nodes(t *testing.T, n int) (urls []string, servers []*Server, again func(i int)) {
	addresses, err := FreeAddresses(2 * n)
	require.NoError(t, err)
	urls, routes := addresses[:n], addresses[n:]
	var dirs []string
	servers = make([]*Server, n)
	again = func(i int) {
		s, err := StartServer(ServerOptions{Name: fmt.Sprint("nats-", i), URL: urls[i], StoreDir: dirs[i],
			Cluster: "test", ClusterURL: routes[i], Routes: routes, Ranks: 3})
		require.NoError(t, err)
		servers[i] = s
	}
	for i := range n {
		dirs = append(dirs, t.TempDir())
		again(i)
	}
	t.Cleanup(func() {
		for _, s := range servers {
			s.Close()
		}
	})
	return urls, servers, again
}

// TestACluster runs traffic between ranks at three servers, the first two at one each and the third at any, while each
// server in turn is closed and started again.
func TestACluster(t *testing.T) {
	urls, servers, again := nodes(t, 3)
	w := newTraffic(3, 2, 48, func(src, dst, ch, i int) int { return i * 400 * (ch + 1) })
	for i, url := range []string{urls[0], urls[1], strings.Join(urls, ",")} {
		w.clients[i].live(t, Options{URL: url, tick: 20 * time.Millisecond, MaxPending: ServerMaxPending(3, 0)}, false)
	}
	next, down, looks := 0, -1, 0
	w.run(t, func(done float64) {
		switch {
		case down >= 0:
			if looks++; looks == 40 {
				again(down)
				down = -1
			}
		case next < 3 && done*4 > float64(next+1):
			servers[next].Close()
			down, looks = next, 0
			next++
		}
	})
	require.Equal(t, 3, next)
	require.Positive(t, w.stats().Reconnects)
}

// TestServerKeepsRecords: what JetStream has acknowledged is there after a restart, and options that cannot be are
// refused.
func TestServerKeepsRecords(t *testing.T) {
	o := ServerOptions{Name: "one", URL: "nats://127.0.0.1:0", StoreDir: t.TempDir()}
	put := func(url string, f func(jetstream.JetStream)) {
		c, err := nats.Connect(url)
		require.NoError(t, err)
		defer c.Close()
		js, err := jetstream.New(c)
		require.NoError(t, err)
		f(js)
	}
	s, err := StartServer(o)
	require.NoError(t, err)
	put(s.URL(), func(js jetstream.JetStream) {
		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
		require.NoError(t, err)
		_, err = kv.PutString(t.Context(), "key", "value")
		require.NoError(t, err)
	})
	s.Close()
	s, err = StartServer(o)
	require.NoError(t, err)
	put(s.URL(), func(js jetstream.JetStream) {
		kv, err := js.KeyValue(t.Context(), "b")
		require.NoError(t, err)
		e, err := kv.Get(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, "value", string(e.Value()))
	})
	s.Close()

	for want, bad := range map[string]ServerOptions{
		"found server name \"\"":                       {URL: o.URL, StoreDir: o.StoreDir},
		"and store \"\"":                               {URL: o.URL, Name: "x"},
		"found cluster \"c\", address \"\"":            {URL: o.URL, Name: "x", StoreDir: o.StoreDir, Cluster: "c"},
		"for the embedded server to listen at":         {Name: "x", StoreDir: o.StoreDir},
		"found nats://nonsense for the embedded":       {Name: "x", StoreDir: o.StoreDir, URL: o.URL, Cluster: "c", ClusterURL: "nonsense", Routes: []string{o.URL}},
		"found nats://x for the embedded server to li": {Name: "x", StoreDir: o.StoreDir, URL: o.URL, Cluster: "c", ClusterURL: o.URL, Routes: []string{"nats://x"}},
	} {
		_, err := StartServer(bad)
		require.ErrorContains(t, err, want)
	}
}

// TestAStockServerIsKilled runs traffic at the NATS server that others run, as a process, and kills it in the middle.
func TestAStockServerIsKilled(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "nats-server.exe")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "github.com/nats-io/nats-server/v2")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	address, err := FreeAddresses(1)
	require.NoError(t, err)
	host, port, err := listenAddress(address[0])
	require.NoError(t, err)
	run := func() *exec.Cmd {
		c := exec.Command(program, "--addr", host, "--port", fmt.Sprint(port), "--jetstream", "--store_dir", dir)
		require.NoError(t, c.Start())
		return c
	}
	server := run()
	t.Cleanup(func() { kill(server) })

	w := newTraffic(2, 2, 48, func(src, dst, ch, i int) int { return i * 1400 })
	for _, c := range w.clients {
		c.live(t, Options{URL: address[0], tick: 20 * time.Millisecond, Await: true}, false)
	}
	killed := 0
	w.run(t, func(done float64) {
		if int(done*4) > killed {
			killed++
			kill(server)
			server = run()
		}
	})
	require.Equal(t, 3, killed)
	require.GreaterOrEqual(t, w.stats().Reconnects, uint64(4))
}

func kill(c *exec.Cmd) {
	_ = c.Process.Signal(os.Kill)
	_ = c.Wait()
}
