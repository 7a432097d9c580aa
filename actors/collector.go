package actors

import (
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/transport"
)

// collectorName is the actor's, below the supervisor.
const collectorName = "collector"

// collector is the Collector actor: in the process that has no ranks it takes their reports and hands them to the stages,
// as if the ranks were here. It has a machine of recovery like any rank: what it lacks it asks for, and a step is committed
// when it has all reports of the steps before, so that none can be lost. It never dies: without it the run ends.
type collector struct {
	run     *run
	machine *recovery.Rank
	begun   []uint32 // by rank: the boundary it has reported last
	done    []bool   // by rank
	left    int
	lives   []uint32 // by rank: incarnation of the process that has been heard of last
	timer   *time.Timer
}

func newCollector(r *run) *collector {
	world := r.job.Sizes.World()
	return &collector{run: r, begun: make([]uint32, world), done: make([]bool, world), left: world, lives: make([]uint32, world),
		machine: recovery.New(recovery.Options{Rank: r.collector(), World: r.peers(), Incarnation: 1, Collector: r.collector()}, recovery.State{}, 0, []uint32{0})}
}

// Receive implements actor.Actor.
func (c *collector) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		c.run.mouths[c.run.collector()].listen()
		c.do(ctx, c.machine.Start())
		c.wait(ctx)
	case *actor.Stopping:
		c.timer.Stop()
	case received:
		mine := c.run.own(c.run.collector(), m.m)
		if mine.Header.Incarnation < c.lives[mine.Header.Src] {
			return // the next life has been told that there is no more
		}
		fx, err := c.machine.Receive(mine)
		c.settle(ctx, fx, err)
	case control:
		c.lives[m.c.Src] = max(c.lives[m.c.Src], m.c.Incarnation>>lifeBits)
		fx, err := c.machine.Control(m.c)
		c.settle(ctx, fx, err)
	case lost:
		c.do(ctx, c.machine.Lost(m.peer))
	case nudge:
		var waiting []recovery.Edge
		for rank := range c.done {
			if !c.done[rank] {
				waiting = append(waiting, recovery.Edge{Peer: uint16(rank), Chan: ReportChan})
			}
		}
		c.do(ctx, c.machine.Tick(time.Now().UnixNano(), waiting))
		c.timer.Reset(tickEvery)
	}
}

// tickEvery is how often machines look for what has not come.
const tickEvery = 25 * time.Millisecond

func (c *collector) wait(ctx actor.Context) {
	self, system := ctx.Self(), ctx.ActorSystem()
	c.timer = time.AfterFunc(tickEvery, func() { system.Root.Send(self, nudge{}) })
}

func (c *collector) settle(ctx actor.Context, fx recovery.Effects, err error) {
	if err != nil {
		c.run.fail(err)
		return
	}
	c.do(ctx, fx)
}

// do carries out what the machine wants. A collector has sent nothing that could be published again.
func (c *collector) do(ctx actor.Context, fx recovery.Effects) {
	for _, m := range fx.Deliver {
		c.take(ctx, m)
	}
	for _, m := range fx.Deliver { // what is read now comes behind the whole list
		c.do(ctx, c.machine.Read(recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}))
	}
	for _, t := range fx.Control {
		if err := c.run.talk(c.run.collector(), t, nil); err != nil {
			c.run.fail(err)
			return
		}
	}
}

// take takes a report, in the order in which its rank has made it.
func (c *collector) take(ctx actor.Context, m recovery.Message) {
	rank := int(m.Header.Src)
	n, err := readNote(m.Payload)
	if err != nil {
		c.run.fail(&RankError{Place: c.run.place(rank), Part: "report", Cause: err})
		return
	}
	stage := c.run.system.NewLocalPID(c.run.stagePath(c.run.stageOf(rank)))
	switch {
	case n.Begun != nil:
		c.boundary(ctx, rank, *n.Begun)
	case n.Done != nil && !c.done[rank]:
		c.done[rank] = true
		ctx.Send(stage, done{rank, counts{ops: n.Done.Ops}})
		if c.left--; c.left == 0 {
			c.do(ctx, c.machine.Finish())
		}
	default:
		if e := n.event(); e != nil {
			ctx.Send(stage, report{rank, e})
		}
	}
}

// boundary notes that a rank has reported all steps before one. The slowest rank says what can be committed, whichever steps
// ranks keep.
func (c *collector) boundary(ctx actor.Context, rank int, step uint32) {
	before := c.least()
	c.begun[rank] = max(c.begun[rank], step)
	for s := before + 1; s <= c.least(); s++ {
		c.do(ctx, c.machine.Saved(s))
	}
}

func (c *collector) least() uint32 {
	least := c.begun[0]
	for _, s := range c.begun {
		least = min(least, s)
	}
	return least
}

// reporter sends what a rank reports to the collector, behind what it has reported before. Programs of one rank call it one
// at a time: only the stage program reports.
type reporter struct {
	run    *run
	keeper *actor.PID
	life   uint32
	step   uint32 // that the stage program is in
}

func (r *reporter) emit(e messages.Event) {
	if n, ok := noteOf(e); ok {
		r.send(n)
	}
}

func (r *reporter) send(n note) {
	r.run.system.Root.Send(r.keeper, outgoing{r.life, n.message(r.run.collector(), r.step)})
}

// begin notes that a step begins.
func (r *reporter) begin(step uint32) {
	r.step = step
	r.send(note{Begun: &step})
}

// What links of a run of several processes tell.
type (
	// lost says that what was on its way from and to a peer is gone.
	lost struct{ peer int }
	// nudge lets a machine look for what has not come.
	nudge struct{}
	// missing are the edges on which a group's programs miss a message.
	missing struct {
		life  uint32
		axis  mesh.Axis
		edges []recovery.Edge
	}
	// askMissing wants them.
	askMissing struct{}
	// stored says that a snapshot is durable, or why it is not.
	stored struct {
		life, step uint32
		err        error
	}
)

// handler is what a link of this run is given.
func (r *run) handler(rank int) transport.Handler {
	h := transport.Handler{
		Receive: func(m transport.Message) { r.receive(rank, m) },
		Fail:    func(err error) { r.fail(&RankError{Place: r.place(rank), Part: "link", Cause: err}) },
	}
	if r.job.Part == nil {
		return h
	}
	to := &mouth{run: r, to: r.system.NewLocalPID(r.listenerPath(rank))}
	r.mouths[rank] = to
	h.Receive = func(m transport.Message) { to.say(received{m}) }
	h.Lost = func(peer int) { to.say(lost{peer}) }
	h.Control = func(src int, body []byte) {
		c, err := recovery.DecodeControl(body)
		if err != nil || c.Src != src || c.Dst != rank {
			r.log.Sugar().Warnf("rank %d drops a control message of rank %d: %v", rank, src, err)
			return
		}
		to.say(control{c})
	}
	return h
}

// mouth is where a link of a run of several processes speaks to its actor. Others may send before the actor is there.
type mouth struct {
	run   *run
	to    *actor.PID
	mu    sync.Mutex
	open  bool
	early []any
}

func (m *mouth) say(what any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		m.early = append(m.early, what)
		return
	}
	m.run.system.Root.Send(m.to, what)
}

// listen says that the actor is there.
func (m *mouth) listen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = true
	for _, what := range m.early {
		m.run.system.Root.Send(m.to, what)
	}
	m.early = nil
}

// own makes a received message the receiver's and gives the link its credit at once: what waits here is bounded by the
// steps that ranks are apart, and a message that is asked for must not wait behind it.
func (r *run) own(rank int, m transport.Message) recovery.Message {
	link := r.links[rank]
	if lender, ok := link.(transport.Lender); ok {
		lender.Keep(m)
		return recovery.Message{Header: m.Header, Payload: m.Payload}
	}
	payload := m.Payload
	if !r.given {
		payload = slices.Clone(payload)
	}
	link.Consumed(m)
	return recovery.Message{Header: m.Header, Payload: payload}
}

// listenerPath is the actor that has a machine.
func (r *run) listenerPath(rank int) string {
	if rank == r.collector() {
		return supervisorName + "/" + collectorName
	}
	return r.rankPath(rank)
}
