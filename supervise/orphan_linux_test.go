package supervise

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/transport/natslink/plane"
)

func init() { roles["agent"] = agentMain }

// agentMain is an agent in a process of its own, with a supervisor. It prints the processes that it starts.
func agentMain() {
	args := strings.Split(os.Getenv(argsVariable), " ")
	n, _ := strconv.Atoi(args[1])
	p, err := plane.Open(context.Background(), plane.Options{Run: runName, URL: args[0], LeaseTTL: leaseTTL})
	check(err)
	h := &host{url: args[0], script: args[2], n: n}
	o := AgentOptions{Host: hostName, Start: h.start, Started: func(_ int, _ uint32, pid int) { fmt.Println(pid) }}
	for w := range n {
		o.Workers = append(o.Workers, w)
	}
	a, err := NewAgent(p, o)
	check(err)
	s, err := New(p, Options{Workers: singles(n), Interval: slow})
	check(err)
	go func() { check(a.Run(context.Background())) }()
	_, err = s.Run(context.Background())
	check(err)
	os.Exit(0)
}

// The agent's process is killed: the kernel ends its workers, a stopped one too.
func TestAgentIsKilled(t *testing.T) {
	t.Parallel()
	h := &host{t: t, url: "nats://127.0.0.1:0", n: 3}
	h.serve(t.TempDir())
	t.Cleanup(func() { h.server.Close() })
	h.p = h.open()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=agent", argsVariable+"="+h.url+" 3 0.*:stop")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for range 3 {
		require.True(t, lines.Scan())
		pid, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		h.pids = append(h.pids, pid)
	}
	for w := range 3 {
		h.beat(w, 1)
	}
	require.Eventually(t, func() bool { return stoppedProcess(t, h.pids) }, patience, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	for _, pid := range h.pids {
		require.Eventually(t, func() bool { return ended(pid) }, patience, time.Millisecond, "process %d is left behind", pid)
	}
}

// ended reports whether a process runs no more; nobody may have waited for it yet, since its parent is dead too.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == syscall.ESRCH
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z")
}

// Threads of this process end, as Go's do whose goroutine ends while it holds them. No child ends with them.
func TestThreadsThatEnd(t *testing.T) {
	var wait sync.WaitGroup
	var children []Process
	for range 8 {
		c, err := Command{Path: "sleep", Args: []string{"1000"}}.Start()
		require.NoError(t, err)
		children = append(children, c)
		for range 20 {
			wait.Go(func() {
				runtime.LockOSThread()
				syscall.Gettid()
			})
		}
		wait.Wait()
	}
	for _, c := range children {
		require.False(t, ended(c.PID()), "a child has ended with a thread")
		require.NoError(t, c.Kill())
		e := c.Wait()
		require.Equal(t, "SIGKILL", e.Signal)
		require.Nil(t, e.Words)
	}
}
