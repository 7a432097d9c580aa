package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/transport"
)

const (
	// stopGrace is how long the end of a run waits for turns that still compute. With the rest of the way it keeps
	// an interrupted run below a second.
	stopGrace = 700 * time.Millisecond
	// interruptClose is how long an interrupted run waits for its network to close; it goes on closing afterwards.
	interruptClose = 200 * time.Millisecond
	// closeGrace is the same for other runs: a broker in this process takes its time.
	closeGrace = 15 * time.Second
	// consequencesMax bounds the failures listed after the first one: with many ranks they are all alike.
	consequencesMax = 32
)

const supervisorName = "run"

// run is what the actors of one run share. Everything in it is fixed before the first actor starts, or atomic, or
// under mu.
type run struct {
	job        Job
	log        *zap.Logger
	system     *actor.ActorSystem
	supervisor *actor.PID
	workers    workers
	links      []transport.Link
	groups     [][]*actor.PID  // by rank and axis; nil: not split
	computed   []atomic.Int64  // by rank: nanoseconds of its programs' turns; of a run of several processes
	mouths     []*mouth        // by rank; of a run of several processes
	peaks      []recovery.Peak // by rank, of logs; under mu
	desk       *desk           // where programs compute when it is measured; nil: with their actors
	given      bool            // a received payload is the receiver's for good

	stopping atomic.Bool   // programs unwind at their next call
	steps    atomic.Int64  // merged step reports
	replayed atomic.Uint64 // messages that ranks were given again
	dropped  atomic.Uint64 // messages that came again and were dropped by keepers
	restarts atomic.Int64  // ranks that were started again
	over     chan struct{} // closed when the outcome is known
	gone     chan struct{} // closed when the supervisor, and so every actor, has stopped

	mu           sync.Mutex
	ended        bool
	result       *Result
	err          error
	consequences []error
	turns        map[string]time.Time // programs that compute, since when
}

// Run runs the programs of all ranks to their end, or to the first failure: a *RankError, *StallError,
// *DivergenceError, *ReportError or *InterruptedError. When it returns everything is stopped and the network closed,
// except what an interrupted run reports as still computing: that ends with its turn.
func Run(ctx context.Context, job Job) (*Result, error) {
	job, err := job.complete()
	if err != nil {
		if job.Network != nil {
			err = errors.Join(err, job.Network.Close())
		}
		return nil, err
	}
	r := newRun(job)
	if err := r.open(ctx); err != nil {
		r.end(nil, err)
		return r.shutdown()
	}
	if err := r.spawn(); err != nil {
		r.end(nil, err)
		return r.shutdown()
	}
	select {
	case <-r.over:
	case <-ctx.Done():
		r.end(nil, r.interrupted(ctx.Err()))
	}
	return r.shutdown()
}

func newRun(job Job) *run {
	r := &run{job: job, log: job.Logger.With(zap.String("run", job.Name)), over: make(chan struct{}), gone: make(chan struct{}),
		turns: map[string]time.Time{}, system: actor.NewActorSystemWithConfig(quietly())}
	r.desk = newDesk(job.Clock, job.Compute, r.gone)
	g, ok := job.Network.(giver)
	r.given = ok && g.GivesPayloads()
	return r
}

// giver is a network whose received payloads belong to the receiver for good. The groups use them again.
type giver interface{ GivesPayloads() bool }

// trouble is what the network is at pains with; nil: nothing.
func (r *run) trouble() error {
	if n, ok := r.job.Network.(transport.Troubled); ok {
		return n.Trouble()
	}
	return nil
}

// reconnects is how many connections of the network were lost and came back.
func (r *run) reconnects() uint64 {
	if n, ok := r.job.Network.(transport.Counter); ok {
		return n.Stats().Reconnects
	}
	return 0
}

// open opens every rank's link. Messages find their group by its path; none comes before the barrier opens.
func (r *run) open(ctx context.Context) error {
	ranks := r.local()
	if r.collects() {
		ranks = []int{r.collector()}
	}
	r.computed = make([]atomic.Int64, r.peers())
	if r.job.Recovery != nil && !r.collects() {
		r.peaks = make([]recovery.Peak, r.job.Sizes.World())
	}
	r.links, r.groups, r.mouths = make([]transport.Link, r.peers()), make([][]*actor.PID, r.peers()), make([]*mouth, r.peers())
	for _, rank := range r.local() {
		r.groups[rank] = r.groupsOf(r.rankPath(rank))
	}
	for _, rank := range ranks {
		if err := ctx.Err(); err != nil {
			return r.interrupted(err)
		}
		link, err := r.job.Network.Open(rank, r.handler(rank))
		if err != nil {
			return &RankError{Place: r.place(rank), Part: "link", Cause: fmt.Errorf("cannot open: %w", err)}
		}
		r.links[rank] = link
	}
	return nil
}

// groupsOf is the groups below a Rank actor, by axis; nil: not split.
func (r *run) groupsOf(path string) []*actor.PID {
	groups := make([]*actor.PID, mesh.AxisCount)
	for _, a := range r.split() {
		groups[a] = r.system.NewLocalPID(path + "/" + a.String())
	}
	return groups
}

// receive hands a message of the link to the group of its axis, with recovery to the rank's keeper.
func (r *run) receive(rank int, m transport.Message) {
	if r.job.Recovery != nil {
		r.system.Root.Send(r.system.NewLocalPID(r.rankPath(rank)), received{m})
		return
	}
	axis := int(m.Header.Chan >> 8)
	if axis >= len(r.groups[rank]) || r.groups[rank][axis] == nil {
		r.misaddressed(rank, m.Header)
		return
	}
	r.system.Root.Send(r.groups[rank][axis], received{m})
}

// misaddressed ends the run at a message that is for no group of a rank.
func (r *run) misaddressed(rank int, h messages.Header) {
	err := &collective.AddressError{Self: r.place(rank), Axis: mesh.Axis(h.Chan >> 8).String(), Header: h}
	r.fail(&RankError{Place: r.place(rank), Part: "link", Cause: err})
}

// spawn starts the tree. The supervisor does the rest.
func (r *run) spawn() error {
	r.log.Info("run starts", zap.Int("ranks", r.job.Sizes.World()), zap.String("network", r.job.Network.Name()))
	w := who{path: supervisorName, rank: -1, part: "shell supervisor"}
	props := r.props(w, func() actor.Actor { return newSupervisor(r) }, actor.WithGuardian(decider{r}))
	if r.isOver() {
		return nil // a link has failed already
	}
	r.supervisor = r.system.NewLocalPID(supervisorName)
	if _, err := r.system.Root.SpawnNamed(props, supervisorName); err != nil {
		close(r.gone)
		return fmt.Errorf("actors: the supervisor does not start: %w", err)
	}
	return nil
}

// failRank reports the failure of a rank by way of its stage, behind the rank's reports.
func (r *run) failRank(err *RankError) {
	r.system.Root.Send(r.system.NewLocalPID(r.stagePath(r.stageOf(err.Place.Rank))), failed{err})
}

// end fixes the outcome, once; later failures are consequences.
func (r *run) end(result *Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.ended:
		r.ended, r.result, r.err = true, result, err
		close(r.over)
		r.log.Info("run ends", zap.Error(err))
	case err != nil && len(r.consequences) < consequencesMax:
		r.consequences = append(r.consequences, err)
		r.log.Info("after the end", zap.Error(err))
	}
}

// fail is end with a failure.
func (r *run) fail(err error) { r.end(nil, err) }

// isOver says whether the outcome is known.
func (r *run) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// shutdown stops the actors, then closes the network, and makes the outcome.
func (r *run) shutdown() (*Result, error) {
	r.stopping.Store(true)
	interrupted, _ := r.err.(*InterruptedError) // fixed by end
	if r.supervisor == nil {
		close(r.gone) // it was never started
	} else {
		r.system.Root.Stop(r.supervisor)
	}
	select {
	case <-r.gone:
	case <-time.After(stopGrace):
		busy := r.busy()
		if interrupted != nil {
			interrupted.Busy = busy
		} else {
			r.fail(fmt.Errorf("still computing %s after the end: %v", stopGrace, busy))
		}
	}
	grace := closeGrace
	if interrupted != nil {
		grace = interruptClose
	}
	if err := closeWithin(r.job.Network, grace); err != nil && interrupted == nil {
		r.fail(fmt.Errorf("network %s: %w", r.job.Network.Name(), err))
	}
	r.system.Shutdown()
	r.workers.close()
	return r.outcome()
}

// closeWithin does not wait for ever.
func closeWithin(n transport.Network, limit time.Duration) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return fmt.Errorf("not closed after %s", limit)
	}
}

// tally adds to a result what is counted while the run goes on.
func (r *run) tally(to *Result) {
	to.Duplicates += r.dropped.Load()
	to.Replayed, to.Restarts, to.Steps = r.replayed.Load(), int(r.restarts.Load()), int(r.steps.Load())
}

// held notes the most that the log of a life of a rank has held; true if that is more than is known.
func (r *run) held(rank int, p recovery.Peak) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Bytes <= r.peaks[rank].Bytes {
		return false
	}
	r.peaks[rank] = p
	return true
}

// outcome is what Run returns; of a failed run the result is what it came to. What fails after a good end fails the run, except a link: nobody needs it any more.
func (r *run) outcome() (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result == nil {
		r.result = &Result{}
		r.tally(r.result)
	}
	r.result.Logs = slices.Clone(r.peaks)
	if r.err == nil {
		i := slices.IndexFunc(r.consequences, func(err error) bool {
			e, ok := err.(*RankError)
			return !ok || e.Part != "link"
		})
		if i >= 0 {
			return r.result, r.consequences[i]
		}
	}
	if e, ok := r.err.(*RankError); ok {
		e.Consequences = slices.Clone(r.consequences)
	}
	return r.result, r.err
}

func (r *run) interrupted(cause error) *InterruptedError {
	return &InterruptedError{Cause: cause, Steps: int(r.steps.Load())}
}

// turnBegan notes that a program computes; the returned function, that its turn has ended.
func (r *run) turnBegan(name string) (ended func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[name] = time.Now()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.turns, name)
	}
}

// busy is the programs that compute, in order.
func (r *run) busy() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.turns))
	for name, since := range r.turns {
		names = append(names, fmt.Sprintf("%s for %s", name, time.Since(since).Round(time.Millisecond)))
	}
	slices.Sort(names)
	return names
}

// place is where a rank stands; its programs unwind when the run stops.
func (r *run) place(rank int) collective.Place {
	return collective.Place{Rank: rank, Sizes: r.job.Sizes, Stopped: r.stopping.Load}
}

// split is the axes that have groups.
func (r *run) split() []mesh.Axis {
	var axes []mesh.Axis
	for _, a := range mesh.Axes() {
		if r.job.Sizes.Of(a) > 1 {
			axes = append(axes, a)
		}
	}
	return axes
}

// stageOf is the stage that owns a rank: pp is the slowest axis, so a stage's ranks follow each other.
func (r *run) stageOf(rank int) int { return r.job.Sizes.Coord(rank).PP }

func (r *run) stagePath(stage int) string { return fmt.Sprintf("%s/stage.%d", supervisorName, stage) }

func (r *run) rankPath(rank int) string {
	return fmt.Sprintf("%s/rank.%d", r.stagePath(r.stageOf(rank)), rank)
}
