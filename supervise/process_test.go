//go:build unix

package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/transport/natslink"
	"phalanx/transport/natslink/plane"
)

// roles are what the test binary is besides.
var roles = map[string]func(){"worker": workerMain, "supervisor": supervisorMain, "server": serverMain}

func TestMain(m *testing.M) {
	if be := roles[os.Getenv(roleVariable)]; be != nil {
		be()
	}
	goleak.VerifyTestMain(m)
}

const (
	roleVariable = "PHALANX_TEST_ROLE"
	argsVariable = "PHALANX_TEST_ARGS"
	patience     = 90 * time.Second // for what must happen; nothing depends on how long it takes
	runName      = "test"
	hostName     = "h"
	leaseTTL     = time.Second
	slow         = time.Minute // between heartbeats, where nobody is to be suspected of silence
)

// workerMain is a worker that only gives signs of life, until the script has something else for its incarnation:
// "1.2:panic" is for incarnation 2 of worker 1, "1.*:panic" for all.
func workerMain() {
	args := strings.Split(os.Getenv(argsVariable), " ")
	url, script := args[0], args[3]
	w, _ := strconv.Atoi(args[1])
	inc, _ := strconv.Atoi(args[2])
	replicas, _ := strconv.Atoi(args[4])
	p, err := plane.Open(context.Background(), plane.Options{Run: runName, URL: url, Name: "worker", LeaseTTL: leaseTTL, Replicas: replicas})
	check(err)
	var progress atomic.Uint64
	_, err = p.Work(context.Background(), plane.WorkerOptions{Worker: w, Incarnation: uint32(inc), Host: hostName, Every: 20 * time.Millisecond,
		Report: func() ([]plane.RankBeat, uint64) {
			return []plane.RankBeat{{Rank: w, Step: uint32(progress.Load() / 4), Progress: progress.Load(), Op: "op"}}, 0
		},
		Fenced: func(error) { os.Exit(9) }})
	check(err)
	for _, line := range strings.Split(script, ",") {
		who, act, _ := strings.Cut(line, ":")
		if who == fmt.Sprintf("%d.%d", w, inc) || who == fmt.Sprintf("%d.*", w) {
			perform(act, &progress)
		}
	}
	for {
		time.Sleep(5 * time.Millisecond)
		progress.Add(1)
	}
}

func perform(act string, progress *atomic.Uint64) {
	for range 40 { // some steps first
		time.Sleep(5 * time.Millisecond)
		progress.Add(1)
	}
	switch act {
	case "panic":
		check(LastWords(plane.Words{Cause: plane.Panic, Site: "step 3 mtp.1.forward", Text: "boom"}))
		os.Exit(70)
	case "exit":
		os.Exit(3)
	case "end":
		os.Exit(0)
	case "final":
		check(LastWords(plane.Words{Text: "two ranks disagree", Final: true, Code: 1}))
		os.Exit(1)
	case "stop":
		check(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
	case "hang":
		select {}
	case "ignore":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	}
}

// supervisorMain supervises until it is killed.
func supervisorMain() {
	args := strings.Split(os.Getenv(argsVariable), " ")
	n, _ := strconv.Atoi(args[1])
	p, err := plane.Open(context.Background(), plane.Options{Run: runName, URL: args[0], Name: "supervisor", LeaseTTL: leaseTTL})
	check(err)
	s, err := New(p, Options{Workers: singles(n), Interval: slow, Budget: generous()})
	check(err)
	_, err = s.Run(context.Background())
	check(err)
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// singles are n workers with one rank each.
func singles(n int) (list []Worker) {
	for w := range n {
		list = append(list, Worker{Ranks: []int{w}, Host: hostName})
	}
	return list
}

// host is a server, an agent and n workers that are processes.
type host struct {
	t        *testing.T
	server   *natslink.Server
	url      string
	dir      string
	replicas int
	p        *plane.Plane
	n        int
	script   string
	mu       sync.Mutex
	pids     []int // of all workers there ever were
	records  []chan plane.Record
	exits    chan plane.Exit
	stop     func() // of the agent
}

func newHost(t *testing.T, n int, script string) *host {
	t.Helper()
	h := &host{t: t, url: "nats://127.0.0.1:0", n: n, script: script, exits: make(chan plane.Exit, 1000)}
	dir := t.TempDir()
	h.serve(dir)
	t.Cleanup(func() { h.server.Close() })
	h.run()
	return h
}

// run begins with an agent and a watch of every record.
func (h *host) run() {
	h.p = h.open()
	ctx, cancel := context.WithCancel(h.t.Context())
	var wait sync.WaitGroup
	for w := range h.n {
		c := make(chan plane.Record, 1000)
		h.records = append(h.records, c)
		wait.Go(func() { _ = h.p.WatchRecord(ctx, w, func(r plane.Record, _ plane.Revision) { c <- r }) })
	}
	h.t.Cleanup(func() { cancel(); wait.Wait() })
	h.agent()
}

// serve starts the server, the first time at a free port and later at the same.
func (h *host) serve(dir string) {
	s, err := natslink.StartServer(natslink.ServerOptions{Name: "n0", URL: h.url, StoreDir: dir})
	require.NoError(h.t, err)
	h.server = s
	if h.dir == "" {
		h.url, h.dir = s.URL(), dir
	}
}

func (h *host) open() *plane.Plane {
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	p, err := plane.Open(ctx, plane.Options{Run: runName, URL: h.url, LeaseTTL: leaseTTL, Replicas: h.replicas})
	require.NoError(h.t, err)
	h.t.Cleanup(p.Close)
	return p
}

// agent runs the agent until stop, which is called at the end at the latest.
func (h *host) agent() {
	var all []int
	for w := range h.n {
		all = append(all, w)
	}
	a, err := NewAgent(h.p, AgentOptions{Host: hostName, Workers: all, Start: h.start, Exited: func(e plane.Exit) { h.exits <- e }})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(h.t, <-done)
	})
	h.t.Cleanup(h.stop)
}

func (h *host) start(worker int, incarnation uint32) (Process, error) {
	p, err := h.command("worker", fmt.Sprintf("%s %d %d %s %d", h.url, worker, incarnation, h.script, h.replicas)).Start()
	if err == nil {
		h.mu.Lock()
		h.pids = append(h.pids, p.PID())
		h.mu.Unlock()
	}
	return p, err
}

func (h *host) command(role, args string) Command {
	return Command{Path: os.Args[0], Env: []string{roleVariable + "=" + role, argsVariable + "=" + args}, Stderr: os.Stderr}
}

// supervise runs a supervisor as a goroutine. Its end is waited for.
func (h *host) supervise(o Options) (stop func(), verdicts <-chan plane.Verdict) {
	o.Workers = singles(h.n)
	if o.Budget == nil {
		o.Budget = generous()
	}
	s, err := New(h.open(), o)
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(h.t.Context())
	c, done := make(chan plane.Verdict, 1), make(chan struct{})
	go func() {
		defer close(done)
		if v, err := s.Run(ctx); err == nil {
			c <- v
		}
	}()
	stop = func() { cancel(); <-done }
	h.t.Cleanup(stop)
	return stop, c
}

// record waits for an incarnation of a worker, and returns its record.
func (h *host) record(worker int, incarnation uint32) plane.Record {
	h.t.Helper()
	for end := time.After(patience); ; {
		select {
		case r := <-h.records[worker]:
			if r.Incarnation >= incarnation {
				return r
			}
		case <-end:
			require.FailNow(h.t, "no such record", "worker %d incarnation %d", worker, incarnation)
		}
	}
}

// beat waits for a heartbeat of an incarnation, or a later one, and returns its process.
func (h *host) beat(worker int, incarnation uint32) int {
	h.t.Helper()
	c := make(chan int, 1)
	stop, err := h.p.Beats(func(b plane.Beat) {
		if b.Worker == worker && b.Incarnation >= incarnation && len(b.Ranks) > 0 {
			select {
			case c <- b.PID:
			default:
			}
		}
	})
	require.NoError(h.t, err)
	defer stop()
	select {
	case pid := <-c:
		return pid
	case <-time.After(patience):
		require.FailNow(h.t, "no heartbeat", "worker %d incarnation %d", worker, incarnation)
		return 0
	}
}

// gone requires that none of the processes exists.
func (h *host) gone(pids ...int) {
	h.t.Helper()
	for _, pid := range pids {
		require.ErrorIs(h.t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d is left behind", pid)
	}
}

// A killed worker, one that panics and one that exits are replaced, with their reasons; the others are not.
func TestProcessesThatDie(t *testing.T) {
	t.Parallel()
	h := newHost(t, 4, "1.1:panic,2.1:exit")
	h.supervise(Options{Interval: slow})
	first := h.beat(0, 1)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	r := h.record(0, 2)
	require.Equal(t, plane.Killed, r.Cause)
	require.Equal(t, "signal SIGKILL", r.Text)
	require.Len(t, r.Deaths, 1)
	require.NotZero(t, r.Split().Total())
	t.Logf("killed: %+v", r.Split())
	second := h.beat(0, 2)
	require.NotEqual(t, first, second)
	h.gone(first)

	r = h.record(1, 2)
	require.Equal(t, plane.Panic, r.Cause)
	require.Equal(t, "boom", r.Text)
	require.Equal(t, "step 3 mtp.1.forward", r.Deaths[0].Site)
	r = h.record(2, 2)
	require.Equal(t, plane.Exited, r.Cause)
	require.Equal(t, "exit code 3", r.Text)
	h.beat(1, 2)
	h.beat(2, 2)
	require.EqualValues(t, 1, h.record(3, 1).Incarnation)

	require.Eventually(t, func() bool {
		list, err := h.p.Restarts(t.Context())
		return err == nil && len(list) == 3
	}, patience, 10*time.Millisecond)
	n, err := h.p.FalseAlarms(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	h.stop()
	h.gone(h.all()...)
}

// A stopped worker and one that hangs are replaced; the old processes are gone before the new ones begin.
func TestProcessesThatLiveOn(t *testing.T) {
	t.Parallel()
	h := newHost(t, 3, "0.*:stop,1.*:hang")
	h.supervise(Options{Interval: 50 * time.Millisecond, HungFirst: 2 * time.Second, HungMin: time.Second})
	r := h.record(0, 2)
	for r.Cause != plane.Silent { // a loaded machine may give other suspicions first
		r = h.record(0, 2)
	}
	t.Logf("stopped: %+v", r.Split())
	for h.record(1, 2).Cause != plane.Hung {
	}
	h.beat(0, 2)
	h.beat(1, 2)
	e := <-h.exits
	require.Equal(t, "SIGKILL", e.Signal)
	h.gone(e.PID)
	h.stop()
	h.gone(h.all()...)
}

// The agent ends all its processes, stopped ones and those that ignore signals too.
func TestAgentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	h := newHost(t, 3, "0.1:stop,1.1:ignore")
	stop, _ := h.supervise(Options{Interval: slow})
	for w := range 3 {
		h.beat(w, 1)
	}
	stop()
	require.Eventually(t, func() bool { return stoppedProcess(t, h.all()) }, patience, time.Millisecond)
	h.stop()
	require.Len(t, h.all(), 3)
	h.gone(h.all()...)
}

// stoppedProcess reports whether one of the processes is stopped.
func stoppedProcess(t *testing.T, pids []int) bool {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if os.IsNotExist(err) && !procHere() {
			return true // no /proc to look at: what the agent does then is the same
		}
		require.NoError(t, err)
		if _, rest, ok := strings.Cut(string(b), ") "); ok && rest[0] == 'T' {
			return true
		}
	}
	return false
}

func procHere() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// A worker that would fail again ends the run, and so do workers that have all ended; other supervisors hear of it.
func TestRunsThatEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "0.1:final")
	_, one := h.supervise(Options{Interval: slow})
	_, two := h.supervise(Options{Interval: slow})
	for _, c := range []<-chan plane.Verdict{one, two} {
		v := <-c
		require.Equal(t, 1, v.Code)
		require.Equal(t, "rank 0: two ranks disagree", v.Why)
	}

	h = newHost(t, 2, "0.1:end,1.1:end")
	_, one = h.supervise(Options{Interval: slow})
	require.Zero(t, <-one, "no verdict: they have ended of their own will")
}

// A worker that dies again and again uses up its restarts.
func TestRestartsUsedUp(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1, "0.1:exit,0.2:exit,0.3:exit")
	b := generous()
	b.RankMax = 2
	_, c := h.supervise(Options{Interval: slow, Budget: b})
	v := <-c
	require.Equal(t, 4, v.Code)
	require.Contains(t, v.Why, "rank 0 has died 3 times within recovery.restart_window_s, recovery.rank_restarts allows 2; the last: exit code 3")
	require.EqualValues(t, 3, h.record(0, 3).Incarnation)
}

// A program that does not exist is a death like others, not a hang.
func TestProcessThatDoesNotStart(t *testing.T) {
	t.Parallel()
	h := &host{t: t, url: "nats://127.0.0.1:0", n: 1}
	h.serve(t.TempDir())
	t.Cleanup(h.server.Close)
	h.p = h.open()
	a, err := NewAgent(h.p, AgentOptions{Host: hostName, Workers: []int{0}, Start: func(int, uint32) (Process, error) { return Command{Path: "/nowhere/phalanx"}.Start() }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b := generous()
	b.RankMax = 1
	_, c := h.supervise(Options{Interval: slow, Budget: b})
	v := <-c
	require.Equal(t, 4, v.Code)
	require.Contains(t, v.Why, "the process does not start")
	cancel()
	require.NoError(t, <-done)
}

// The only server goes and comes back with its files, while a worker dies. Nobody else is replaced for it.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "")
	h.supervise(Options{Interval: slow})
	pid := h.beat(1, 1)
	h.server.Close()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	e := <-h.exits
	require.Equal(t, pid, e.PID)
	h.serve(h.dir)
	r := h.record(1, 2)
	require.Equal(t, plane.Killed, r.Cause)
	require.Equal(t, e.AtNs, r.SignNs)
	h.beat(1, 2)
	h.beat(0, 1)
	require.EqualValues(t, 1, h.record(0, 1).Incarnation)
}

// Three supervisors, as goroutines: the leader ends while a worker is dead, and another one replaces the worker, once.
func TestLeaderEndsWhileAWorkerIsDead(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "")
	leader := make(chan int, 100)
	var stops []func()
	for i := range 3 {
		stop, _ := h.supervise(Options{Interval: slow, Event: func(e Event) {
			if e.Kind == Leading {
				leader <- i
			}
		}})
		stops = append(stops, stop)
	}
	h.beat(0, 1)
	for inc := uint32(1); inc <= 3; inc++ {
		l := <-leader
		pid := h.beat(1, inc)
		stops[l]()
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		if inc == 3 {
			break // nobody is left
		}
		r := h.record(1, inc+1)
		require.Equal(t, inc+1, r.Incarnation)
		require.Equal(t, plane.Killed, r.Cause)
		h.beat(1, inc+1)
	}
	require.EqualValues(t, 1, h.record(0, 1).Incarnation, "nobody else was replaced")
}

// Three supervisors as processes, whose leader is killed while a worker is dead: the lease runs out, and then another one
// replaces it.
func TestLeaderIsKilledWhileAWorkerIsDead(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "")
	supers := map[int]Process{}
	var wait sync.WaitGroup
	for range 3 {
		p, err := h.command("supervisor", fmt.Sprintf("%s %d", h.url, h.n)).Start()
		require.NoError(t, err)
		supers[p.PID()] = p
		wait.Go(func() { p.Wait() })
	}
	t.Cleanup(func() {
		for _, p := range supers {
			_ = p.Kill()
		}
		wait.Wait()
	})
	h.beat(0, 1)
	victim := h.beat(1, 1)
	var holder string
	require.Eventually(t, func() (ok bool) {
		who, err := h.p.Leader(t.Context())
		holder = who
		return err == nil
	}, patience, time.Millisecond)
	pid, err := strconv.Atoi(strings.Split(holder, "/")[1])
	require.NoError(t, err)
	require.Contains(t, supers, pid)
	require.NoError(t, supers[pid].Kill())
	require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
	r := h.record(1, 2)
	require.Equal(t, plane.Killed, r.Cause)
	if r.By != holder { // the old leader may just have done it
		require.Greater(t, r.LedNs, r.SignNs)
		require.NotZero(t, r.Split().Leaderless)
	}
	t.Logf("leader killed: %+v", r.Split())
	require.NotEqual(t, victim, h.beat(1, 2))
}

// all are the processes of all workers so far.
func (h *host) all() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pids)
}

// The server's power fails, and what it had acknowledged last is not on its disk: an earlier state of its files comes back.
// The supervisor knows better and writes the record again. No life is lost for it and no number is given twice.
func TestAcknowledgedIsNotOnDisk(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "")
	h.supervise(Options{Interval: slow})
	pid := h.beat(0, 1)
	h.server.Close()
	old := t.TempDir()
	require.NoError(t, os.CopyFS(old, os.DirFS(h.dir)))
	h.serve(h.dir)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.EqualValues(t, 2, h.record(0, 2).Incarnation)
	second := h.beat(0, 2)

	h.server.Close()
	h.serve(old)
	require.Eventually(t, func() bool {
		r, _, err := h.p.Record(t.Context(), 0)
		return err == nil && r.Incarnation == 2
	}, patience, 10*time.Millisecond)
	require.Equal(t, second, h.beat(0, 2), "it lives on")
	require.NoError(t, syscall.Kill(second, syscall.SIGKILL))
	r := h.record(0, 3)
	require.EqualValues(t, 3, r.Incarnation)
	require.Len(t, r.Deaths, 2)
	h.beat(0, 3)
}
