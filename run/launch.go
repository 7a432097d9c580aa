package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/supervise"
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
	kept    func() // of Options.OnAbandon; nil: nobody cares
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
	ending      *recovery.Ending
	seen        map[int]uint32 // incarnation of the last recovery that was told, by rank
	at          map[int]string // by rank: where its last life was seen last
	over        bool           // heartbeats that come now are nobody's business
	restarts    int
	lives       map[int]uint32 // the newest incarnation of each worker that was started again
	falseAlarms int
	recoveries  []Recovery
	unused      []UnusedFault       // of a run that has come to its end
	failed      error               // to read what a rank has shown; the listener's
	telling     chan messages.Event // to the listener, which is called by one goroutine at a time
	news        chan struct{}       // there is something in it when ending has something new for the workers
}

// hostName is this host's in records. All processes of a run are on one.
const hostName = "here"

// launch starts servers, and the control plane at them. After an error it has stopped what it had started.
func (j *job) launch(ctx context.Context) (l *launch, err error) {
	l = &launch{j: j, log: j.o.Logger, watched: watched{signs: map[int]sign{}, progress: map[int]uint64{}, alarms: map[string]bool{}, logs: map[int]recovery.Peak{}},
		seen: map[int]uint32{}, lives: map[int]uint32{}, at: map[int]string{}, telling: make(chan messages.Event, 256),
		ending: recovery.NewEnding(j.o.Procs, uint32(j.s.Train.TrainIters)), news: make(chan struct{}, 1)}
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
	if l.own && j.o.OnAbandon != nil {
		l.kept = j.o.OnAbandon(l.abandon)
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
	case cmp.Or(j.o.NATS, j.s.Transport.URL) != "" && j.s.Transport.Servers > 1:
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
const snapshotEveryDefault = 2

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
	if url := cmp.Or(l.j.o.NATS, t.URL); url != "" {
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

// startWorker starts a process of the run.
func (l *launch) startWorker(worker int, incarnation uint32) (supervise.Process, error) {
	args := []string{"worker", l.dir, "--worker", strconv.Itoa(worker), "--incarnation", strconv.FormatUint(uint64(incarnation), 10)}
	if e := l.end(); e.Round > 0 {
		args = append(args, "--end", e.String())
	}
	return l.command(fmt.Sprintf("worker-%d", worker), args...)
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
	return supervise.Command{Path: self[0], Args: slices.Concat(self[1:], args), Stdout: log, Stderr: log, Temp: l.dir}.Start()
}

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
	if l.kept != nil {
		defer l.kept()
	}
	if l.own {
		return os.RemoveAll(l.dir)
	}
	return nil
}

// abandon removes the temporary folder while processes still write into it: they end with this one, and find it no more.
func (l *launch) abandon() {
	gone := l.dir + ".gone"
	if os.Rename(l.dir, gone) == nil {
		_ = os.RemoveAll(gone) // nobody is left to be told
	}
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
