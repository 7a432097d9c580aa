package sim

import (
	"errors"
	"fmt"
	"slices"

	"phalanx/messages"
	"phalanx/recovery"
)

// Virtual times, in microseconds.
const (
	turnMax   = 20         // a turn of a rank takes at most this long
	startMax  = 500        // from the beginning of a process until it takes part
	planeMax  = 500        // a request to the control plane, or its answer
	agentMax  = 1_500      // from a decision of a supervisor until a process begins
	patience  = 2_000      // until a rank asks for a message
	tickEvery = 1_000      // a waiting rank looks at its patience, a supervisor at its processes
	beatEvery = 1_000      // a process sends a sign of life
	quietMax  = 150_000    // without progress: it hangs
	calmMax   = 2_000_000  // after the last fault
	endMax    = 60_000_000 // whatever the faults are
)

// cluster is a run.
type cluster struct {
	job     *Job
	o       Options
	f       Faults // with what is left of each budget
	only    map[eventID]Event
	dice    *dice
	now     int64
	queue   queue
	made    int
	workers []*worker
	nodes   []*node // by rank
	ledger  *collector
	control
	links          []link  // by from·peers+to
	gone           []*life // to be unwound
	parted, fallen []bool  // windows and servers that have had their turn
	err            error
	trace          uint64
	// calm is when the last fault ends, moved when a present life last did something, or a fault ended.
	calm, moved int64
	durable     durable
	result      Result
}

// link is one direction between two peers.
type link struct {
	epoch int   // of both directions: what was sent in an earlier one is lost
	cut   int64 // until when nothing passes
}

func (j *Job) cluster(o Options) *cluster {
	c := &cluster{job: j, o: o, trace: 14695981039346656037}
	draw := newRand(o.Seed ^ 0x5eed)
	world := j.sizes.World()
	procs, supervisors, every := world, 1+2*draw.IntN(2), 1+draw.IntN(3)
	if draw.IntN(3) == 0 {
		procs = 1 + draw.IntN(world)
	}
	if o.Faults != nil {
		c.f = *o.Faults
	} else {
		c.f = Swarm(o.Seed)
	}
	if o.LogMax == 0 && draw.IntN(4) == 0 {
		c.o.LogMax = 1 + draw.Int64N(20_000)
	}
	c.o.Procs, c.o.Supervisors, c.o.Every = or(o.Procs, procs), or(o.Supervisors, supervisors), or(o.Every, every)
	c.f.DelayMax, c.late = max(c.f.DelayMax, 1), c.f.Supervisors > 0
	c.restrict(o.Only)
	c.parted, c.fallen = make([]bool, len(o.Windows)), make([]bool, len(o.Servers))
	peers := world + 1 + c.o.Supervisors
	c.dice, c.links = newDice(o.Seed, peers), make([]link, peers*peers)
	c.people()
	return c
}

func or(given, drawn int) int {
	if given != 0 {
		return given
	}
	return drawn
}

func (c *cluster) restrict(only []Event) {
	if only == nil {
		return
	}
	c.only = map[eventID]Event{}
	for _, e := range only {
		c.only[e.id()] = e
	}
}

// people makes everybody, and the beginning.
func (c *cluster) people() {
	world := c.job.sizes.World()
	for w := range c.o.Procs {
		c.workers = append(c.workers, &worker{c: c, index: w})
	}
	for rank := range world {
		w := c.workers[rank*c.o.Procs/world]
		n := newNode(c, rank, w)
		w.nodes, c.nodes = append(w.nodes, n), append(c.nodes, n)
	}
	c.records = make([]kept, c.o.Procs)
	for i := range c.o.Supervisors {
		c.supervisors = append(c.supervisors, newSupervisor(c, i))
	}
	c.ledger = newCollector(c)
}

// collector is the peer number of the collector of reports.
func (c *cluster) collector() int { return len(c.nodes) }

// after makes something happen.
func (c *cluster) after(delay int64, do func()) {
	c.made++
	c.queue.push(task{c.now + max(delay, 0), c.made, do})
}

// note adds to the trace.
func (c *cluster) note(words ...uint64) {
	for _, w := range words {
		c.trace = (c.trace ^ w) * 1099511628211
	}
	c.trace = mix(c.trace ^ uint64(c.now))
}

// broken is a promise that does not hold.
type broken struct {
	promise Invariant
	error
}

func (b *broken) Unwrap() error { return b.error }

func brokenBy(err error) Invariant {
	var b *broken
	if errors.As(err, &b) {
		return b.promise
	}
	return I5
}

func breaks(i Invariant, format string, args ...any) error {
	return &broken{i, fmt.Errorf(format, args...)}
}

// fail ends the run with the first promise that does not hold.
func (c *cluster) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// run lets things happen until every rank is done and everybody's reports are in.
func (c *cluster) run() error {
	defer c.stop()
	for c.err == nil && !c.ledger.m.Over() {
		if len(c.queue.tasks) == 0 {
			return breaks(I5, "nothing happens any more: %s", c.who())
		}
		t := c.queue.pop()
		c.now = t.at
		t.do()
		c.unwind()
		if c.err == nil && c.o.Check != nil {
			if err := c.o.Check(View{c}); err != nil {
				c.fail(&broken{Own, err})
			}
		}
		if c.now-c.moved > quietMax || c.now-c.calm > calmMax || c.now > endMax {
			c.fail(breaks(I5, "nobody has moved for %d µs, the last fault is %d µs ago: %s", c.now-c.moved, c.now-c.calm, c.who()))
		}
	}
	return c.err
}

func (c *cluster) stop() {
	for _, w := range c.workers {
		for _, p := range w.all {
			p.kill()
		}
	}
	c.unwind()
}

// unwind ends the programs of lives that are over, between two events: one that runs cannot be ended.
func (c *cluster) unwind() {
	for _, l := range c.gone {
		l.rank.Stop()
	}
	c.gone = nil
}

// who says where everybody stands.
func (c *cluster) who() string {
	text := ""
	for _, n := range c.nodes {
		if n.life == nil || n.life.dead() {
			text += fmt.Sprintf("rank %d is dead; ", n.rank)
			continue
		}
		l := n.life
		text += fmt.Sprintf("rank %d of incarnation %d is in step %d, done %v, waits for %v; ", n.rank, l.proc.inc, l.step, l.done, l.waiting())
	}
	for i, r := range c.records {
		text += fmt.Sprintf("worker %d has incarnation %d, by %s: %s; ", i, r.record.Incarnation, r.record.By, r.record.Cause)
	}
	return text + fmt.Sprintf("reports are in up to step %d", c.ledger.complete)
}

// link is what lies between two peers, in one direction.
func (c *cluster) link(from, to int) *link { return &c.links[from*c.dice.peers+to] }

// travel carries something from one peer to another, or not. damage is nil for what is checked by other means.
func (c *cluster) travel(from, to int, arrive func(damaged bool)) {
	l := c.link(from, to)
	x, nth := c.dice.throw(askLoss, from, to)
	e := Event{From: from, To: to, Nth: nth}
	if l.cut > c.now || c.cuts(from, to) {
		return
	}
	signs := max(from, to) > c.collector() // signs of life: what may go wrong with them is that they stay away for long
	hit := func(k Kind, rate int, throw uint64) bool {
		e.Kind = k
		_, ok := c.strikes(e, !signs && int(throw%1000) < rate, &c.f.Losses)
		return ok
	}
	if hit(Drop, c.f.DropRate, x) {
		return
	}
	times, damaged, late := c.suffers(from, to)
	if times == 1 && hit(Duplicate, c.f.DupRate, x>>10) {
		times = 2
	}
	damaged = damaged || hit(Corrupt, c.f.CorruptRate, x>>20)
	for range times {
		epoch := l.epoch
		c.after(1+late+c.dice.below(int64(c.f.DelayMax), askWay, from, to), func() {
			if l.epoch == epoch {
				arrive(damaged)
			}
		})
	}
}

// cuts decides whether what is sent now finds its link cut, or makes it begin anew.
func (c *cluster) cuts(from, to int) bool {
	x, nth := c.dice.throw(askLink, from, to)
	cut := Event{Kind: Cut, From: from, To: to, Nth: nth, Lasts: 1 + int64(x>>32)%max(c.f.CutMax, 1)}
	if cut, ok := c.strikes(cut, x%300 == 0, &c.f.Cuts); ok {
		c.link(from, to).cut = c.now + cut.Lasts
		return true
	}
	if max(from, to) > c.collector() {
		return false
	}
	if _, ok := c.strikes(Event{Kind: Reset, From: from, To: to, Nth: nth}, x>>10%300 == 0, &c.f.Resets); ok {
		c.reset(from, to, nth%2 == 0)
		return true
	}
	return false
}

// reset makes the link of two peers begin anew: what is on the way is lost, in one direction or in both, and both ends get
// to know.
func (c *cluster) reset(a, b int, both bool) {
	c.link(a, b).epoch++
	if both {
		c.link(b, a).epoch++
	}
	for _, end := range [2][2]int{{a, b}, {b, a}} {
		self, other := end[0], end[1]
		c.after(1+c.dice.below(int64(c.f.DelayMax), askWay, self, other), func() {
			if c.o.Shell != NeverAsk {
				c.each(self, func(p peer) { p.lost(other) })
			}
		})
	}
}

// peer is a life of a rank, or the collector.
type peer interface {
	receive(m recovery.Message)
	control(m recovery.Control)
	lost(other int)
}

// each finds those that hear what is sent to a peer: every life of a rank that goes on. A process that stands still hears
// it later.
func (c *cluster) each(to int, tell func(peer)) {
	if to == c.collector() {
		tell(c.ledger)
		return
	}
	for _, p := range c.nodes[to].worker.all {
		p.when(func() {
			if l := p.lifeOf(to); l != nil && !l.dead() {
				tell(l)
			}
		})
	}
}

// carry carries out what a machine wants of the network.
func (c *cluster) carry(from int, fx *recovery.Effects) {
	for _, m := range fx.Publish {
		c.result.Messages++
		to := int(m.Header.Dst)
		c.travel(from, to, func(damaged bool) { c.arrive(to, m, damaged) })
	}
	for _, m := range fx.Control {
		b := recovery.EncodeControl(m)
		c.travel(from, m.Dst, func(damaged bool) {
			if damaged {
				return // the link's own checksum
			}
			got, err := recovery.DecodeControl(b)
			if err != nil {
				c.fail(breaks(I3, "control message %v does not survive its encoding: %w", m, err))
				return
			}
			c.each(got.Dst, func(p peer) { p.control(got) })
		})
	}
}

// arrive is a data message at its destination. One that is damaged is as good as lost.
func (c *cluster) arrive(to int, m recovery.Message, damaged bool) {
	if damaged && len(m.Payload) > 0 {
		m.Payload = append([]byte(nil), m.Payload...)
		m.Payload[c.dice.below(int64(len(m.Payload)), askOdd, to, to)] ^= 1 << c.dice.below(8, askOdd, to, to)
	}
	if m.Header.CheckPayload(m.Payload) != nil && c.o.Shell != NoChecksum {
		return
	}
	c.each(to, func(p peer) { p.receive(m) })
}

// compare checks the end against the run without faults.
func (c *cluster) compare(want *outcome) error {
	for _, w := range c.workers {
		if inc := c.incarnation(w.index); inc > 1 && !w.touched && !c.late && !c.happened(Cut) {
			return breaks(I7, "worker %d was replaced %d times, and no fault hit it", w.index, inc-1)
		}
	}
	return c.ledger.compare(want)
}

// happened reports whether there was a fault of a kind.
func (c *cluster) happened(k Kind) bool {
	return slices.ContainsFunc(c.result.Events, func(e Event) bool { return e.Kind == k })
}

// outcome is what the run did, for comparison.
func (c *cluster) outcome() *outcome {
	o := &outcome{told: c.ledger.told}
	for _, n := range c.nodes {
		o.sent = append(o.sent, n.sent)
		o.kept = append(o.kept, n.kept)
		o.bytes = append(o.bytes, n.bytes)
	}
	return o
}

// outcome is what is compared.
type outcome struct {
	sent  []map[recovery.Edge][]fingerprint // by rank: every message, in order
	kept  []map[uint32]uint64               // by rank and step: hash of its state
	bytes [][]int64                         // by rank and step: payload sent to other ranks
	told  []map[int]report                  // by rank and step
}

type fingerprint struct{ step, crc uint32 }

func printOf(h *messages.Header) fingerprint { return fingerprint{h.Step, h.PayloadCRC} }
