package sim

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"

	"phalanx/collective"
	"phalanx/recovery"
)

// hashOf tells states apart. No CRC does: a state ends in its own, and all such have the same.
func hashOf(b []byte) uint64 { return xxhash.Sum64(b) }

// record compares a message with what an earlier life, and the run without faults, have sent in its place (I3).
func (l *life) record(o collective.Outgoing) {
	n, c := l.n, l.n.c
	e := recovery.Edge{Peer: o.Header.Dst, Chan: o.Header.Chan}
	at, now := l.m.Sent(e)-1, printOf(&o.Header)
	if list := n.sent[e]; at < uint64(len(list)) {
		if list[at] != now {
			c.fail(breaks(I3, "rank %d sends %v as message %d of edge %s, an earlier life sent %v", n.rank, now, at, e, list[at]))
		}
		return
	}
	n.sent[e] = append(n.sent[e], now)
	n.bytes[o.Header.Step] += int64(len(o.Payload))
	if c.job.oracle != nil {
		if want := c.job.oracle.sent[n.rank][e]; at >= uint64(len(want)) || want[at] != now {
			c.fail(breaks(I3, "rank %d sends message %d of edge %s, which differs from that of a run without faults", n.rank, at, e))
		}
	}
}

// remember compares the state of a step with that of an earlier life, and of the run without faults (I3).
func (l *life) remember(state []byte) {
	n, c := l.n, l.n.c
	hash := hashOf(state)
	n.kept[l.step] = hash
	if c.job.oracle == nil {
		return
	}
	if want, ok := c.job.oracle.kept[n.rank][l.step]; ok && want != hash {
		c.fail(breaks(I3, "rank %d keeps a state of step %d with hash %016x, without faults it is %016x", n.rank, l.step, hash, want))
	}
}

// sink is something that lasts, written by a life (I8).
func (c *cluster) sink(l *life) {
	n, inc := l.n, l.proc.inc
	if inc < n.sinkBy {
		c.fail(breaks(I8, "incarnation %d of rank %d writes what lasts after incarnation %d has", inc, n.rank, n.sinkBy))
	}
	if inc == n.sinkBy && n.sinkProc != l.proc {
		c.fail(breaks(I8, "two processes write what lasts of rank %d as incarnation %d", n.rank, inc))
	}
	if now := c.incarnation(n.worker.index); now != inc {
		c.fail(breaks(I8, "incarnation %d of rank %d writes what lasts, the present one is %d", inc, n.rank, now))
	}
	n.sinkBy, n.sinkProc = inc, l.proc
}

// durable is when every disk, and the collector, had what of which step (I6).
type durable struct {
	by     []map[uint32]bool // by peer
	common []moment          // the last step that all had
	began  int64             // when the last rank came to its first step
}

type moment struct {
	at   int64
	step uint32
}

// note says that a peer has a step.
func (d *durable) note(c *cluster, peer int, step uint32) {
	if d.by == nil {
		for range c.collector() + 1 {
			d.by = append(d.by, map[uint32]bool{})
		}
	}
	d.by[peer][step] = true
	for _, has := range d.by {
		if !has[step] {
			return
		}
	}
	d.common = append(d.common, moment{c.now, step})
}

// before is the last step that all had at a time.
func (d *durable) before(at int64) (step uint32) {
	for _, m := range d.common {
		if m.at <= at {
			step = max(step, m.step)
		}
	}
	return step
}

// watchLog checks the log of a rank at the beginning of a step (I4, I6): it holds what was sent since the generation, and
// the generation follows what disks hold as fast as messages travel, if all of them arrive.
func (c *cluster) watchLog(l *life) {
	if c.job.oracle == nil {
		return
	}
	gen, n := l.m.Generation(), l.n
	from, stats := l.logFrom, l.m.Stats()
	if want := c.sentIn(n, int(from), len(n.bytes)-1); stats.LogBytes > want {
		c.fail(breaks(I6, "rank %d keeps %d bytes in its log at step %d, and has sent %d since step %d", n.rank, stats.LogBytes, l.step, want, from))
	}
	p := stats.Peak
	if want := c.sentIn(n, int(p.First), int(p.Last)); p.Bytes > want || p.Bytes < stats.LogBytes {
		c.fail(breaks(I6, "rank %d says that its log had at most %d bytes, of steps %d to %d in which it has sent %d; it has %d", n.rank, p.Bytes, p.First, p.Last, want, stats.LogBytes))
	}
	if c.quiet() {
		if all := c.durable.before(c.now - 2*int64(c.f.DelayMax) - turnMax); gen < all {
			c.fail(breaks(I6, "rank %d is at step %d with generation %d, and all disks have had step %d for long: %d bytes in its log", n.rank, l.step, gen, all,
				l.m.Stats().LogBytes))
		}
		c.watchDisks(l)
	}
}

// sentIn is the bytes that a rank sends in some steps of a run without faults, reports to the collector included.
func (c *cluster) sentIn(n *node, first, last int) (bytes int64) {
	for step := first; step <= last && step < len(n.bytes); step++ {
		bytes += c.job.oracle.bytes[n.rank][step] + n.told[step]
	}
	return bytes
}

// watchFloors checks that a log has everything from the generation on (I4).
func (c *cluster) watchFloors(l *life) {
	if c.job.oracle == nil {
		return
	}
	gen, all := l.m.Generation(), c.job.oracle.sent[l.n.rank]
	for _, e := range slices.SortedFunc(maps.Keys(all), func(a, b recovery.Edge) int { return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Chan, b.Chan)) }) {
		sent := all[e]
		least := sort.Search(len(sent), func(i int) bool { return sent[i].step >= gen })
		if floor := l.m.Floor(e); floor > uint64(least) {
			c.fail(breaks(I4, "rank %d has freed messages of edge %s up to %d at generation %d, which begins with message %d", l.n.rank, e, floor, gen, least))
			return
		}
	}
}

// watchDisks checks that ranks go on having steps in common, however slow their disks are (I6): at the latest when each has
// written a few times, and come by a few steps that it keeps.
func (c *cluster) watchDisks(l *life) {
	if l.step == 0 {
		c.durable.began = c.now
		return
	}
	last := c.durable.began
	if n := len(c.durable.common); n > 0 {
		last = max(last, c.durable.common[n-1].at)
	}
	bound := 6*(c.f.DiskMin+c.f.DiskMax+2*int64(c.f.DelayMax)) + 3*int64(c.o.Every)*((c.now-c.durable.began)/int64(l.step))
	if c.now-last > bound {
		c.fail(breaks(I6, "rank %d is at step %d, and for %d µs no step has come that all ranks have on their disks: %d bytes in its log", l.n.rank, l.step, c.now-last,
			l.m.Stats().LogBytes))
	}
}

// quiet reports whether nothing can be lost.
func (c *cluster) quiet() bool {
	f := &c.f
	return !f.lossy() && f.Resets == 0 && len(c.result.Events) == 0
}
