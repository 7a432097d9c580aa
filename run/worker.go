package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/actors"
	"phalanx/internal/golden"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/recovery"
	"phalanx/snapshot"
	"phalanx/supervise"
	"phalanx/tensor/kernel"
	"phalanx/transport/natslink"
	"phalanx/transport/natslink/plane"
)

// WorkerOptions say which process of a run this is.
type WorkerOptions struct {
	Dir         string // of the run
	Worker      int
	Incarnation uint32
	End         recovery.End // that was proposed when this process was started
	Logger      *zap.Logger
	// Exit ends this process at once, where it stands.
	Exit func(code int)
}

// ExitPanic is the exit code of a worker in which a rank has panicked. Its supervisor starts another.
const ExitPanic = 70

// Work runs some ranks of a run until the context ends. It does not end by itself: ranks that are done serve the others. An
// error is a failure that would come again; it has been left as last words.
func Work(ctx context.Context, o WorkerOptions) error {
	err := work(ctx, o)
	if err == nil || errors.Is(err, plane.ErrFenced) || errors.Is(err, plane.ErrOrphaned) || errors.Is(err, context.Canceled) {
		return err
	}
	code := ExitCode(err)
	if folder := (*FolderError)(nil); errors.As(err, &folder) {
		code = ExitFailed // of a run that has lost its folder
	}
	return errors.Join(err, supervise.LastWords(plane.Words{Cause: plane.Exited, Text: err.Error(), Final: true, Code: code}))
}

func work(ctx context.Context, o WorkerOptions) error {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	sp, s, err := readSpawn(o.Dir)
	if err != nil {
		return err
	}
	if err := sp.one("--worker", o.Worker, sp.Procs); err != nil {
		return err
	}
	w := &worker{o: o, spawn: sp, status: &actors.Status{}, gate: newSharedGate(sp.ranksOf(o.Worker, s.Sizes().World()), o.End)}
	if w.job, err = newJob(s, Options{Out: sp.Out, Logger: o.Logger, worker: true}); err != nil {
		return err
	}
	defer w.job.close()
	if w.job.faults, err = newFaults(s.Faults, filepath.Join(o.Dir, spawnFaults)); err != nil {
		return err
	}
	w.job.saver.parts = filepath.Join(o.Dir, spawnParts)
	if sp.Case != "" {
		c, err := golden.Load(sp.Case)
		if err != nil {
			return err
		}
		defer c.Close()
		w.job.verifies(c)
	}
	defer w.job.endRecording()
	kernel.SetThreads(sp.Threads)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.plane, err = plane.Open(ctx, sp.plane(w.job, fmt.Sprintf("worker %d.%d", o.Worker, o.Incarnation))); err != nil {
		return err
	}
	defer w.plane.Close()
	w.life, err = w.plane.Work(ctx, plane.WorkerOptions{Worker: o.Worker, Incarnation: o.Incarnation, Host: sp.Host,
		Every: time.Duration(s.Recovery.HeartbeatMs) * time.Millisecond, Report: w.report, Alarms: w.status.Alarms, Links: w.links, Claim: w.gate.claim, Fenced: func(err error) { cancel(err) }})
	if err != nil {
		return err
	}
	defer w.life.Close()
	if w.life.Record().Cause == plane.Panic {
		w.job.bundle = filepath.Join(o.Dir, bundleDir)
	}
	stop, err := w.plane.Ends(w.gate.heard)
	if err != nil {
		return err
	}
	defer stop()
	if err := w.train(ctx); !errors.Is(err, actors.ErrInterrupted) {
		return err
	}
	return context.Cause(ctx)
}

// worker is one process of a run.
type worker struct {
	o      WorkerOptions
	spawn  *spawn
	job    *job
	plane  *plane.Plane
	life   *plane.Worker
	status *actors.Status
	gate   *sharedGate

	mu      sync.Mutex
	began   time.Time // when the ranks were there
	network *natslink.Network
}

// plane is how a process of the run reaches the control plane.
func (s *spawn) plane(j *job, name string) plane.Options {
	return plane.Options{Run: s.Run, URL: s.URL, Login: j.login(), Replicas: s.Copies, Name: name, Logger: j.o.Logger}
}

// links are the options of this process's links. The collector is a rank more.
func (s *spawn) links(j *job, incarnation uint32) natslink.Options {
	ranks := j.s.Sizes().World() + 1
	o := natslink.Options{URL: s.URL, PieceBytes: j.s.Transport.PieceBytes, Login: j.login(),
		Run: s.Run, Build: s.Build, Incarnation: incarnation, Ranks: ranks, Wire: wire(j.s.Faults, incarnation, j.faults.met), Logger: j.o.Logger}
	if len(s.Servers) > 0 {
		o.MaxPending = natslink.ServerMaxPending(ranks, 0)
	}
	return o
}

// train runs the ranks.
func (w *worker) train(ctx context.Context) error {
	links := w.spawn.links(w.job, w.o.Incarnation)
	links.Await = true // a life that begins while the server is away is none of the run's failures
	network, err := natslink.Start(ctx, links)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.began, w.network = time.Now(), network
	w.mu.Unlock()
	aj := w.job.actorJob(network)
	aj.Part = &actors.Part{Ranks: w.spawn.ranksOf(w.o.Worker, w.job.s.Sizes().World()), Incarnation: w.o.Incarnation,
		Stores: func(rank int) (actors.Store, error) { return w.store(ctx, rank) }, Status: w.status, Die: w.die, Tell: w.life.Beat, Gate: w.gate}
	_, err = actors.Run(ctx, aj)
	return err
}

// store is where the snapshots of a rank are.
func (w *worker) store(ctx context.Context, rank int) (actors.Store, error) {
	return snapshot.Open(filepath.Join(w.o.Dir, spawnSnapshots), snapshot.Options{
		Rank: rank, Incarnation: w.o.Incarnation, Build: w.spawn.Build, Keep: w.job.s.Recovery.Recording,
		Fence: func() error { return w.life.Check(ctx) },
		Hook:  w.job.faults.onDisk(rank),
		Warn:  func(err error) { w.o.Logger.Warn("a snapshot is left out", zap.Error(err)) },
	})
}

// die ends this process at a panic in a rank.
func (w *worker) die(err *actors.RankError, site string) {
	if words := supervise.LastWords(plane.Words{Cause: plane.Panic, Site: site, Text: err.Error()}); words != nil {
		w.o.Logger.Warn("no last words", zap.Error(words))
	}
	fmt.Fprintf(os.Stderr, "%v\n%s", err, err.Stack)
	w.o.Exit(ExitPanic)
}

// links is what the links of this process have healed.
func (w *worker) links() plane.Links {
	w.mu.Lock()
	n := w.network
	w.mu.Unlock()
	if n == nil {
		return plane.Links{}
	}
	s := n.Stats()
	return plane.Links{Lost: s.Lost, Corrupt: s.Corrupt, Fenced: s.Fenced}
}

// report is what a heartbeat says.
func (w *worker) report() ([]plane.RankBeat, uint64) {
	w.mu.Lock()
	began := w.began
	w.mu.Unlock()
	var beats []plane.RankBeat
	for _, r := range w.status.Ranks() {
		b := plane.RankBeat{Rank: r.Rank, Step: uint32(r.Step), Progress: r.Progress, WaitsFor: r.WaitsFor, Op: r.Op, Done: r.Done, Holds: w.gate.waiting(r.Rank),
			WaitedNs: int64(r.Waited()), ComputeNs: int64(r.Compute)}
		if e := r.Recovered; e != nil {
			record := w.life.Record()
			b.Recovered = &plane.Recovered{Cause: record.Cause, Replayed: uint64(e.Replayed), Dropped: uint64(e.Dropped),
				RestartNs: max(0, began.UnixNano()-record.At.UnixNano()), ReplayNs: int64(e.Ms * float64(time.Millisecond))}
		}
		if p := r.Log; p.Bytes > 0 {
			b.Log = &plane.Log{Bytes: p.Bytes, First: p.First, Last: p.Last}
		}
		beats = append(beats, b)
	}
	return beats, uint64(residentNow())
}

// shown takes what a rank of another process has shown.
func (j *job) shown(e messages.Shards) error {
	if e.What == observed {
		return unshipObservations(e, j.record.For(e.Rank))
	}
	views, err := unshipShards(e)
	if err == nil {
		j.gathering(e.What, e.Step).Add(e.Rank, views)
	}
	return err
}

// remote is what programs show where the report is made in another process.
func (j *job) remote(rank int, env *model.Env) {
	emit := env.Emit
	env.Shards = func(what string, step int, views []model.ShardView) {
		if what != "grads" || j.keepsGrads(step) {
			emit(shipShards(rank, what, step, views))
		}
	}
	if j.observes != nil {
		s := &shipper{rank: rank, wants: j.observes}
		env.Observer = s
		boundary := env.Boundary
		env.Boundary = func(step int, local func() []byte) {
			if e, any := s.take(); any {
				emit(e)
			}
			boundary(step, local)
		}
	}
}
