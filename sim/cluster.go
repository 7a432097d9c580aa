package sim

import (
	"container/heap"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"reflect"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/recovery"
)

// Virtual times, in microseconds.
const (
	turnMax    = 20      // a turn of a rank takes at most this long
	restartMax = 3_000   // from a death to the next life
	startMax   = 500     // from the beginning of a life until it takes part
	patience   = 2_000   // until a rank asks for a message
	tickEvery  = 1_000   // a waiting rank looks at its patience
	quietMax   = 400_000 // without progress after the last fault: it hangs
)

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// event is what happens at a time.
type event struct {
	at  int64
	seq int // events of one time go in the order in which they were made
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// cluster is a run.
type cluster struct {
	job    *Job
	o      Options
	rng    *rand.Rand
	now    int64
	queue  events
	made   int
	nodes  []*node
	err    error
	cuts   map[[2]int]int64 // from, to: until when nothing passes
	trace  hash.Hash64
	result Result
	last   int64 // time of the last progress or fault
}

func (j *Job) cluster(o Options) *cluster {
	if o.Every == 0 {
		o.Every = 1
	}
	c := &cluster{job: j, o: o, rng: newRand(o.Seed, 2), cuts: map[[2]int]int64{}, trace: fnv.New64a()}
	for rank := range j.sizes.World() {
		n := &node{c: c, rank: rank, disk: map[uint32]snapshot{}, reports: map[int]messages.Sums{}, sent: map[recovery.Edge][]fingerprint{}}
		c.nodes = append(c.nodes, n)
		c.after(0, n.begin)
	}
	return c
}

// after makes something happen.
func (c *cluster) after(delay int64, do func()) {
	c.made++
	heap.Push(&c.queue, event{c.now + delay, c.made, do})
}

func (c *cluster) chance(perThousand int) bool {
	return perThousand > 0 && c.rng.IntN(1000) < perThousand
}

// note adds to the trace.
func (c *cluster) note(format string, args ...any) { fmt.Fprintf(c.trace, format+"\n", args...) }

func (c *cluster) traceHash() string { return fmt.Sprintf("%016x", c.trace.Sum64()) }

// fail breaks a promise.
func (c *cluster) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// run lets things happen until every rank is done.
func (c *cluster) run() error {
	defer c.stop()
	for c.err == nil && !c.over() {
		if len(c.queue) == 0 {
			return errors.New("nothing happens any more and not every rank is done")
		}
		e := heap.Pop(&c.queue).(event)
		c.now = e.at
		e.do()
		if c.err == nil && c.o.Check != nil {
			c.fail(c.o.Check(c.now, c.steps()))
		}
		if c.now-c.last > quietMax {
			c.fail(fmt.Errorf("no rank has moved for %d µs: %s", c.now-c.last, c.who()))
		}
	}
	return c.err
}

func (c *cluster) over() bool {
	for _, n := range c.nodes {
		if n.life == nil || !n.life.done {
			return false
		}
	}
	return true
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.kill()
	}
}

func (c *cluster) steps() []int {
	steps := make([]int, len(c.nodes))
	for i, n := range c.nodes {
		steps[i] = -1
		if n.life != nil {
			steps[i] = int(n.life.step)
		}
	}
	return steps
}

// who says where everybody stands.
func (c *cluster) who() string {
	text := ""
	for _, n := range c.nodes {
		if n.life == nil {
			text += fmt.Sprintf("rank %d is dead; ", n.rank)
			continue
		}
		text += fmt.Sprintf("rank %d, life %d, step %d, done %v, waits for %v; ", n.rank, n.inc, n.life.step, n.life.done, n.life.waiting())
	}
	return text
}

// travel carries something from one rank to another, or not.
func (c *cluster) travel(from, to int, arrive func()) {
	if c.cuts[[2]int{from, to}] > c.now || c.chance(c.o.Faults.DropRate) {
		return
	}
	if p := &c.o.Faults; p.Partitions > 0 && c.rng.IntN(300) == 0 {
		p.Partitions--
		c.cuts[[2]int{from, to}] = c.now + int64(c.rng.IntN(max(p.PartitionMax, 1)))
		c.last = max(c.last, c.cuts[[2]int{from, to}])
		return
	}
	times := 1
	if c.chance(c.o.Faults.DupRate) {
		times = 2
	}
	for range times {
		c.after(1+int64(c.rng.IntN(max(c.o.Faults.DelayMax, 1))), arrive)
	}
}

// outcome is what the run did, for comparison.
func (c *cluster) outcome() *outcome {
	o := &outcome{}
	for _, n := range c.nodes {
		o.final, o.sent, o.sums = append(o.final, n.final), append(o.sent, n.sent), append(o.sums, n.sums())
	}
	return o
}

// compare checks the end against the run without faults.
func (c *cluster) compare(want *outcome) error {
	for r, n := range c.nodes {
		if n.final != want.final[r] {
			return fmt.Errorf("rank %d ended with state %.16s…, without faults it is %.16s…", r, n.final, want.final[r])
		}
		if got := n.sums(); !reflect.DeepEqual(got, want.sums[r]) {
			return fmt.Errorf("rank %d reported %+v in all, without faults it is %+v", r, got, want.sums[r])
		}
	}
	return nil
}

// axisOf is the axis of a message.
func axisOf(h messages.Header) mesh.Axis { return mesh.Axis(h.Chan >> 8) }
