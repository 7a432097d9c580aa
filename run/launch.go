package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/actors"
	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/supervise"
	"phalanx/transport"
	"phalanx/transport/natslink"
	"phalanx/transport/natslink/plane"
)

// launch is a run of several processes, seen from the one that the user has started: it starts the others and follows their
// deaths, and is the collector. When it ends they all end.
type launch struct {
	j       *job
	dir     string // of the run
	own     bool   // dir is temporary
	release func() // dir, for other runs; nil: nobody else knows it
	spawn   *spawn
	log     *zap.Logger
	plane   *plane.Plane
	servers []*child
	minders []*child // supervisors
	cancel  context.CancelCauseFunc
	unmind  context.CancelFunc // servers
	minded  sync.WaitGroup
	wait    sync.WaitGroup

	mu          sync.Mutex
	watched     watched
	seen        map[int]uint32 // incarnation of the last recovery that was told, by rank
	at          map[int]string // by rank: where its last life was seen last
	restarts    int
	falseAlarms int
	recoveries  []Recovery
	telling     chan messages.Event // to the listener, which is called by one goroutine at a time
}

// Recovery is what one restart of a rank came to, in milliseconds.
type Recovery struct {
	Rank        int     `json:"rank"`
	Incarnation uint32  `json:"incarnation"`
	Cause       string  `json:"cause"`
	At          string  `json:"at,omitempty"`
	DetectionMs float64 `json:"detection_ms"`       // last sign of life → decision
	LeaderMs    float64 `json:"leaderless_ms"`      // of which there was no supervisor or no server
	BackoffMs   float64 `json:"backoff_ms"`         // waited on purpose
	RestartMs   float64 `json:"restart_ms"`         // decision → ranks ready
	ReplayMs    float64 `json:"replay_ms"`          // ready → where the rank had been
	Replayed    int     `json:"replayed"`           // messages that it was given
	Dropped     int     `json:"duplicates_dropped"` // messages that came twice
}

// hostName is this host's in records. All processes of a run are on one.
const hostName = "here"

// start starts everything. What has been started by an error is stopped.
func (j *job) launch(ctx context.Context) (l *launch, err error) {
	l = &launch{j: j, log: j.o.Logger, watched: watched{signs: map[int]sign{}, progress: map[int]uint64{}, alarms: map[string]bool{}}, seen: map[int]uint32{}, at: map[int]string{}, telling: make(chan messages.Event, 256)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.stop())
		}
	}()
	if err := j.processes(); err != nil {
		return l, err
	}
	if err := l.folder(); err != nil {
		return l, err
	}
	l.spawn = &spawn{Run: fmt.Sprintf("%s-%d", runName(&j.s), os.Getpid()), Build: buildID(&j.s), Procs: j.o.Procs, Dir: j.s.Dir, Out: j.o.Out,
		Host: hostName, Threads: threadsEach(&j.s, j.o.Procs), Copies: 1}
	if j.golden != "" {
		if l.spawn.Case, err = filepath.Abs(j.golden); err != nil {
			return l, err
		}
	}
	if err := l.places(); err != nil {
		return l, err
	}
	if err := l.spawn.write(l.dir, &j.s); err != nil {
		return l, err
	}
	if len(l.spawn.Servers) == 0 { // a server that is not there is told now, and not waited for
		n, err := natslink.Start(ctx, l.spawn.links(j, 1))
		if err != nil {
			return l, err
		}
		if err := n.Close(); err != nil {
			return l, err
		}
	}
	minding, stop := context.WithCancel(context.Background())
	l.unmind = stop
	for i := range l.spawn.Servers {
		l.servers = append(l.servers, l.keep(l.spawn.Servers[i].Name, "nats-server", l.dir, "--index", strconv.Itoa(i)))
		c := l.servers[i]
		l.minded.Go(func() { c.mind(minding, l.spawn.Servers[i].URL) })
	}
	if l.plane, err = plane.Open(ctx, l.spawn.plane(j, "launcher")); err != nil {
		return l, err
	}
	return l, nil
}

// processes fits the scenario to a run of several processes.
func (j *job) processes() error {
	world := j.s.Sizes().World()
	switch {
	case j.o.Procs > world:
		return &RefusedError{What: "--procs", Err: fmt.Errorf("found %s for %s, expected at most one for each", count(j.o.Procs, "process", "processes"), count(world, "rank", "ranks"))}
	case firstOf(j.o.NATS, j.s.Transport.URL) != "" && j.s.Transport.Servers > 1:
		return &RefusedError{What: "--nats", Err: errors.New("transport.servers asks for servers of the run's own, and the URL names somebody else's; remove one of them")}
	case j.s.Transport.Kind == "direct":
		return &RefusedError{What: "--procs", Err: errors.New("transport.kind is direct, and processes have no memory in common; use nats")}
	case j.routing != nil && j.s.Checkpoint.LoadRouting == "":
		return &RefusedError{What: "--procs", Err: errors.New("model.moe_enable_routing_replay records the routers' choices in one process; record without --procs, or play with checkpoint.load_routing")}
	}
	if j.s.Recovery.SnapshotEvery == 0 {
		j.s.Recovery.SnapshotEvery = snapshotEveryDefault
	}
	j.s.Checkpoint.Load, j.s.Checkpoint.CkptStep = "", 0
	if j.loadedFrom != "" { // what is the newest may change while the run goes on
		path, err := filepath.Abs(j.loadedFrom)
		if err != nil {
			return err
		}
		j.s.Checkpoint.Load = path
	}
	j.s.Variants, j.s.Transport.Servers, j.s.Recovery.Supervisors = nil, max(1, j.s.Transport.Servers), max(1, j.s.Recovery.Supervisors)
	return nil
}

// snapshotEveryDefault is the number of steps between snapshots of a run of several processes that does not say it.
const snapshotEveryDefault = 4

// folder makes the folder of the run, and takes it: no other run may have it.
func (l *launch) folder() (err error) {
	if l.j.o.Out == "" {
		l.dir, err = os.MkdirTemp("", "phalanx-run-*")
		l.own = err == nil
		return err
	}
	if l.dir, err = filepath.Abs(filepath.Join(l.j.o.Out, "processes")); err != nil {
		return err
	}
	if l.release, err = claim(l.dir); err != nil {
		return &RefusedError{What: "--out", Err: err}
	}
	old, err := os.ReadDir(l.dir)
	for _, e := range old { // of an earlier run: its snapshots are of no use to this one
		if e.Name() != claimFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(l.dir, e.Name())))
		}
	}
	return err
}

// places chooses the servers.
func (l *launch) places() error {
	t := l.j.s.Transport
	if url := firstOf(l.j.o.NATS, t.URL); url != "" {
		l.spawn.URL = url
		if strings.Count(url, ",") >= 2 {
			l.spawn.Copies = 3
		}
		return nil
	}
	n := t.Servers
	addresses, err := natslink.FreeAddresses(2 * n)
	if err != nil {
		return err
	}
	for i := range n {
		s := spawnServer{Name: fmt.Sprintf("nats-%d", i+1), URL: addresses[i]}
		if n > 1 {
			s.Cluster = addresses[n+i]
		}
		l.spawn.Servers = append(l.spawn.Servers, s)
	}
	l.spawn.URL, l.spawn.Copies = strings.Join(addresses[:n], ","), n
	return nil
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// train runs the workers and collects what they report.
func (l *launch) train(ctx context.Context) (*actors.Result, error) {
	ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	network, err := natslink.Start(ctx, l.spawn.links(l.j, 1))
	if err != nil {
		return nil, err
	}
	if err := l.watch(ctx); err != nil {
		return nil, errors.Join(err, network.Close())
	}
	aj := l.j.actorJob(network)
	aj.Part, aj.Hook = &actors.Part{}, nil
	listen := l.j.listen
	var one sync.Mutex
	aj.Listen = func(e messages.Event) {
		one.Lock()
		defer one.Unlock()
		listen(e)
		if step, ok := e.(messages.StepReport); ok {
			l.serverFaults(step.Step + 2)
		}
	}
	l.wait.Go(func() { l.look(ctx) })
	l.serverFaults(l.j.first() + 1)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for e := range l.telling {
			one.Lock()
			listen(e)
			one.Unlock()
		}
	}()
	result, err := actors.Run(ctx, aj)
	l.plane.Stop("the run is over")
	l.countAlarms(ctx)
	l.cancel(errRunOver)
	l.wait.Wait()
	close(l.telling)
	<-told
	if verdict := (*VerdictError)(nil); errors.As(context.Cause(ctx), &verdict) {
		err = verdict
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if result == nil {
		result = &actors.Result{}
	}
	result.Restarts = l.restarts
	for _, r := range l.recoveries {
		result.Replayed += uint64(r.Replayed)
		result.Duplicates += uint64(r.Dropped)
	}
	return result, err
}

// countAlarms asks how often a process was suspected that lived.
func (l *launch) countAlarms(run context.Context) {
	ctx, cancel := context.WithTimeout(run, recordPatience)
	defer cancel()
	n, err := l.plane.FalseAlarms(ctx)
	if err != nil && run.Err() == nil {
		l.log.Warn("false alarms are not counted", zap.Error(err))
	}
	l.mu.Lock()
	l.falseAlarms = n
	l.mu.Unlock()
}

var errRunOver = errors.New("the run is over")

// VerdictError is the end of a run that its supervisors have decided.
type VerdictError struct {
	Code int // exit code
	Why  string
}

func (e *VerdictError) Error() string { return e.Why }

// watch starts the agent, the supervisors, and what listens to them.
func (l *launch) watch(ctx context.Context) error {
	stop, err := l.plane.Beats(l.heard)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stop)
	agent, err := supervise.NewAgent(l.plane, supervise.AgentOptions{Host: hostName, Workers: upTo(l.spawn.Procs), Start: l.startWorker,
		Started: l.started, Logger: l.log})
	if err != nil {
		return err
	}
	l.wait.Go(func() {
		if err := agent.Run(ctx); err != nil {
			l.log.Error("workers are left", zap.Error(err))
		}
	})
	l.wait.Go(func() {
		_ = l.plane.WatchVerdict(ctx, func(v plane.Verdict) { l.cancel(&VerdictError{v.Code, v.Why}) })
	})
	if n := l.j.s.Recovery.Supervisors; n > 1 {
		for i := range n {
			l.minders = append(l.minders, l.keep(fmt.Sprintf("supervisor-%d", i+1), "supervisor", l.dir, "--index", strconv.Itoa(i)))
		}
		return nil
	}
	s, err := supervise.New(l.plane, l.spawn.supervisor(l.j, "launcher"))
	if err != nil {
		return err
	}
	l.wait.Go(func() {
		if _, err := s.Run(ctx); err != nil && ctx.Err() == nil {
			l.log.Error("the supervisor has ended", zap.Error(err))
		}
	})
	return nil
}

// supervisor are the options of a supervisor of the run.
func (s *spawn) supervisor(j *job, name string) supervise.Options {
	r := &j.s.Recovery
	b := recovery.NewBudget()
	b.RankMax, b.JobMax, b.Window = r.RankRestarts, r.JobRestarts, int64(r.RestartWindowS*float64(time.Second))
	o := supervise.Options{Budget: b, Interval: time.Duration(r.HeartbeatMs) * time.Millisecond, Logger: j.o.Logger}
	for w := range s.Procs {
		o.Workers = append(o.Workers, supervise.Worker{Ranks: s.ranksOf(w, j.s.Sizes().World()), Host: s.Host})
	}
	return o
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// startWorker starts a process of the run.
func (l *launch) startWorker(worker int, incarnation uint32) (supervise.Process, error) {
	return l.command(fmt.Sprintf("worker-%d", worker), "worker", l.dir, "--worker", strconv.Itoa(worker), "--incarnation", strconv.FormatUint(uint64(incarnation), 10))
}

// command starts this program again, as one of its verbs.
func (l *launch) command(name string, args ...string) (supervise.Process, error) {
	self, err := l.j.o.self()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(l.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var to io.Writer = log
	return supervise.Command{Path: self[0], Args: append(append([]string(nil), self[1:]...), args...), Stdout: to, Stderr: to}.Start()
}

// started counts restarts.
func (l *launch) started(worker int, incarnation uint32, pid int) {
	if incarnation == 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restarts++
}

// heard takes a heartbeat: the newest of every worker is kept, and a recovery is told once.
func (l *launch) heard(b plane.Beat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.watched.signs[b.Worker]; ok {
		if b.Incarnation < last.beat.Incarnation {
			return
		}
		if b.Incarnation > last.beat.Incarnation {
			for _, r := range last.beat.Ranks {
				l.at[r.Rank] = fmt.Sprintf("step %d %s", r.Step+1, r.Op)
			}
		}
	}
	for _, a := range l.watched.take(b, time.Now()) {
		l.wait.Go(func() { l.tell("alarm " + a) })
	}
	for _, r := range b.Ranks {
		if r.Recovered != nil && l.seen[r.Rank] < b.Incarnation {
			l.seen[r.Rank] = b.Incarnation
			e, at := *r.Recovered, strings.TrimSpace(l.at[r.Rank])
			l.wait.Go(func() { l.recovered(b.Worker, r.Rank, b.Incarnation, e, at) })
		}
	}
}

// recovered tells of a rank that is where it was when it died.
func (l *launch) recovered(worker, rank int, incarnation uint32, e plane.Recovered, at string) {
	ctx, cancel := context.WithTimeout(context.Background(), recordPatience)
	defer cancel()
	record, _, err := l.plane.Record(ctx, worker)
	out := Recovery{Rank: rank, Incarnation: incarnation, Cause: string(e.Cause), At: at, RestartMs: ms(e.RestartNs), ReplayMs: ms(e.ReplayNs),
		Replayed: int(e.Replayed), Dropped: int(e.Dropped)}
	if err == nil && record.Incarnation == incarnation {
		s := record.Split()
		out.LeaderMs, out.BackoffMs = ms(int64(s.Leaderless+s.Broker)), ms(int64(s.Backoff))
		out.DetectionMs = ms(int64(s.Detection)) + out.LeaderMs
	}
	l.mu.Lock()
	l.recoveries = append(l.recoveries, out)
	l.mu.Unlock()
	l.telling <- messages.Restarted{Rank: rank, Incarnation: incarnation, Cause: out.Cause, At: firstOf(at, "its beginning"), Replayed: out.Replayed,
		Dropped: out.Dropped, Ms: out.total()}
}

// recordPatience is how long the end of a run waits for the record of a restart: servers may be away.
const recordPatience = 2 * time.Second

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// stop ends everything that has been started.
func (l *launch) stop() error {
	if l.cancel != nil {
		l.cancel(errRunOver)
	}
	l.wait.Wait()
	if l.plane != nil {
		if len(l.spawn.Servers) == 0 { // somebody else's servers go on
			ctx, cancel := context.WithTimeout(context.Background(), recordPatience)
			if err := l.plane.Erase(ctx); err != nil {
				l.log.Warn("the run's records stay with the servers", zap.Error(err))
			}
			cancel()
		}
		l.plane.Close()
	}
	if l.unmind != nil {
		l.unmind()
	}
	l.minded.Wait()
	var ends sync.WaitGroup
	for _, c := range append(l.minders, l.servers...) {
		ends.Go(c.end)
	}
	ends.Wait()
	if l.release != nil {
		l.release()
	}
	if l.own {
		return os.RemoveAll(l.dir)
	}
	return nil
}

// network is what a report calls the transport.
func (l *launch) network() string {
	return fmt.Sprintf("nats, %s, %s", count(l.spawn.Procs, "process", "processes"), count(max(1, len(l.spawn.Servers)), "server", "servers"))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

var _ transport.Network = (*natslink.Network)(nil)
