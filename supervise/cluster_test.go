//go:build unix

package supervise

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/transport/natslink"
	"phalanx/transport/natslink/plane"
)

// serverMain is one NATS server of a cluster.
func serverMain() {
	args := strings.Split(os.Getenv(argsVariable), " ")
	s, err := natslink.StartServer(natslink.ServerOptions{Name: args[0], StoreDir: args[1], URL: args[2], Cluster: "c", ClusterURL: args[3], Routes: strings.Split(args[4], ",")})
	check(err)
	defer s.Close()
	select {}
}

// servers are NATS servers that are processes.
type servers struct {
	t         *testing.T
	h         *host
	args      []string
	running   []Process
	addresses []string
}

func newServers(t *testing.T, h *host, n int) *servers {
	all, err := natslink.FreeAddresses(2 * n)
	require.NoError(t, err)
	s := &servers{t: t, h: h, running: make([]Process, n), addresses: all[:n]}
	for i := range n {
		s.args = append(s.args, fmt.Sprintf("n%d %s %s %s %s", i, t.TempDir(), all[i], all[n+i], strings.Join(all[n:], ",")))
		s.start(i)
	}
	t.Cleanup(func() {
		for i := range n {
			s.kill(i)
		}
	})
	return s
}

func (s *servers) start(i int) {
	p, err := s.h.command("server", s.args[i]).Start()
	require.NoError(s.t, err)
	s.running[i] = p
}

func (s *servers) kill(i int) {
	if p := s.running[i]; p != nil {
		require.NoError(s.t, p.Kill())
		p.Wait()
		s.running[i] = nil
	}
}

// killsVariable asks for more of what takes long. Of so many kills, one in ten is of a server.
const killsVariable = "PHALANX_SOAK_KILLS"

// Of three NATS servers one after the other is killed, and a worker with it, under two supervisors. Every worker lives
// again, every incarnation is there once, and every restart is kept. An election takes up to ten seconds, so the usual
// test kills one.
func TestServersAreKilled(t *testing.T) {
	t.Parallel()
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv(killsVariable)); err == nil {
		rounds = max(3, n/10)
	}
	h := &host{t: t, n: 2, exits: make(chan plane.Exit, 1000)}
	s := newServers(t, h, 3)
	h.url, h.replicas = strings.Join(s.addresses, ","), 3
	h.run()
	for range 2 {
		h.supervise(Options{Interval: slow})
	}
	for round := range rounds {
		worker, inc := round%2, uint32(round/2+1)
		pid := h.beat(worker, inc)
		s.kill(round % 3)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		r := h.record(worker, inc+1)
		require.Equal(t, inc+1, r.Incarnation)
		require.Equal(t, plane.Killed, r.Cause)
		require.NotEqual(t, pid, h.beat(worker, inc+1))
		t.Logf("server %d killed: %+v", round%3, r.Split())
		s.start(round % 3)
	}
	require.Eventually(t, func() bool {
		list, err := h.p.Restarts(t.Context())
		return err == nil && len(list) == rounds
	}, patience, 10*time.Millisecond)
	h.stop()
	h.gone(h.all()...)
}
