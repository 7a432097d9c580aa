package sim

import (
	"fmt"
	"slices"

	"phalanx/collective"
	"phalanx/nn"
	"phalanx/recovery"
)

// turn lets one program of the rank go on until it waits.
func (l *life) turn() {
	c := l.n.c
	i := c.rng.IntN(len(l.ready))
	w := l.ready[i]
	l.ready = slices.Delete(l.ready, i, i+1)
	r := l.routines[w.program]
	q := r.Resume(w.reply)
	l.pending[w.program] = q
	c.last = max(c.last, c.now)
	c.note("%d turn %d/%d %s", c.now, l.n.rank, w.program, q)
	for _, s := range r.Outbox() {
		k := port{s.To, w.program, s.Name}
		l.ports[k] = append(l.ports[k], s.V)
		l.wake(s.To)
	}
	if l.due != nil && !l.save() {
		return
	}
	switch q := q.(type) {
	case collective.Collective:
		g := l.groups[q.Op.Axis]
		out, done, err := g.Begin(w.program, q.Op)
		l.after(g, out, done, err)
	case collective.Receive:
		l.wake(w.program)
	case collective.Done:
		l.ended()
	case collective.Panicked:
		c.fail(fmt.Errorf("rank %d: %s\n%s", l.n.rank, q, q.Stack))
	}
}

// after carries out what a group wants.
func (l *life) after(g *collective.Group, out []collective.Outgoing, done *collective.Completion, err error) {
	if err != nil {
		l.n.c.fail(fmt.Errorf("rank %d: %w", l.n.rank, err))
		return
	}
	for _, o := range out {
		if !l.send(o) {
			return
		}
	}
	if done != nil {
		l.pending[done.Program] = nil
		l.ready = append(l.ready, wake{done.Program, nil})
	}
	for _, m := range g.Released() {
		if l.dead {
			return
		}
		l.do(l.m.Read(recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}))
	}
}

// send gives a message to the machine; false if the rank died.
func (l *life) send(o collective.Outgoing) bool {
	if l.crash("before-send") {
		return false
	}
	o.Header.Seal(o.Payload)
	fx := l.m.Send(recovery.Message{Header: o.Header, Payload: o.Payload})
	l.record(o)
	l.do(fx)
	return !l.crash("after-send")
}

// record compares a message with what an earlier life has sent in its place.
func (l *life) record(o collective.Outgoing) {
	e := recovery.Edge{Peer: o.Header.Dst, Chan: o.Header.Chan}
	at, now := l.m.Sent(e)-1, fingerprint{o.Header.Step, o.Header.PayloadCRC}
	if list := l.n.sent[e]; at < uint64(len(list)) {
		if list[at] != now {
			l.n.c.fail(fmt.Errorf("rank %d sends %v as message %d of edge %s, an earlier life sent %v", l.n.rank, now, at, e, list[at]))
		}
		return
	}
	l.n.sent[e] = append(l.n.sent[e], now)
	if o := l.n.c.job.oracle; o != nil {
		if want := o.sent[l.n.rank][e]; at >= uint64(len(want)) || want[at] != now {
			l.n.c.fail(fmt.Errorf("rank %d sends message %d of edge %s, which differs from that of a run without faults", l.n.rank, at, e))
		}
	}
}

// wake gives a program that waits its value.
func (l *life) wake(p nn.Program) {
	q, waits := l.pending[p].(collective.Receive)
	k := port{p, q.From, q.Name}
	if !waits || len(l.ports[k]) == 0 {
		return
	}
	l.pending[p] = nil
	l.ready = append(l.ready, wake{p, l.ports[k][0]})
	l.ports[k] = l.ports[k][1:]
}

// do carries out what the machine wants.
func (l *life) do(fx recovery.Effects) {
	c := l.n.c
	for _, m := range fx.Publish {
		c.result.Messages++
		c.travel(l.n.rank, int(m.Header.Dst), func() { c.nodes[m.Header.Dst].receive(c.damaged(m)) })
	}
	for _, m := range fx.Control {
		c.travel(l.n.rank, m.Dst, func() { c.nodes[m.Dst].control(m) })
	}
	for _, m := range fx.Deliver {
		if !l.deliver(m) {
			return
		}
	}
	if fx.Committed && !l.dead && !l.fenced() {
		l.n.commit(l.m.Generation())
	}
	if fx.Jump && l.n.life == l {
		c.note("%d jump %d to %d", c.now, l.n.rank, fx.JumpTo)
		c.result.Jumps++
		l.n.committed = max(l.n.committed, fx.JumpTo)
		l.dead, l.n.life = true, nil
		c.after(0, l.unwind)
		c.after(1, l.n.begin)
	}
}

// deliver hands a message to its group; false if the rank died.
func (l *life) deliver(m recovery.Message) bool {
	c, e := l.n.c, recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}
	switch {
	case l.crash("before-apply"):
		return false
	case !l.m.Ready():
		c.fail(fmt.Errorf("rank %d: a message is applied before recovery is over", l.n.rank))
	case m.Header.Log != l.applied[e]:
		c.fail(fmt.Errorf("rank %d applies message %d of edge %s, expected %d", l.n.rank, m.Header.Log, e, l.applied[e]))
	}
	l.applied[e]++
	g := l.groups[axisOf(m.Header)]
	out, done, err := g.Deliver(m.Header, slices.Clone(m.Payload))
	if len(done) == 0 {
		l.after(g, out, nil, err)
	} else {
		l.after(g, out, &done[0], err)
	}
	l.plan()
	return !l.dead
}

// damaged is a message as it arrives: sometimes with another bit.
func (c *cluster) damaged(m recovery.Message) recovery.Message {
	if len(m.Payload) > 0 && c.chance(c.o.Faults.CorruptRate) {
		m.Payload = slices.Clone(m.Payload)
		m.Payload[c.rng.IntN(len(m.Payload))] ^= 1 << c.rng.IntN(8)
	}
	return m
}

// lives are those that hear what is sent to the rank.
func (n *node) lives() []*life {
	all := slices.Clone(n.zombies)
	if n.life != nil {
		all = append(all, n.life)
	}
	return all
}

// receive is a message that arrives at a rank. One that is damaged is lost.
func (n *node) receive(m recovery.Message) {
	if err := m.Header.CheckPayload(m.Payload); err != nil && n.c.o.Shell != NoChecksum {
		n.c.result.Corrupt++
		return
	}
	for _, l := range n.lives() {
		if l.dead {
			continue
		}
		fx, err := l.m.Receive(m)
		if err != nil {
			n.c.fail(err)
			return
		}
		l.do(fx)
	}
}

// control is a control message that arrives at a rank.
func (n *node) control(m recovery.Control) {
	for _, l := range n.lives() {
		if l.dead {
			continue
		}
		fx, err := l.m.Control(m)
		if err != nil {
			n.c.fail(err)
			return
		}
		n.c.note("%d control %s", n.c.now, m)
		l.do(fx)
	}
}

// save writes the snapshot of this turn; false if the rank died. A disk may be full, and then training goes on.
func (l *life) save() bool {
	n, s := l.n, l.due
	l.due = nil
	switch {
	case l.crash("before-snapshot"), l.fenced():
		return false
	case n.c.chance(n.c.o.Faults.DiskRate) && int(s.at.Step) < n.c.job.scenario.Train.TrainIters:
		return true
	case l.crash("mid-snapshot"):
		return false
	}
	n.disk[s.at.Step] = *s
	if n.c.o.Shell == NoSync && n.c.chance(500) { // the name is there before the bytes
		n.disk[s.at.Step] = snapshot{local: s.local[:len(s.local)/2], groups: s.groups, at: s.at}
	}
	if l.crash("after-snapshot") {
		return false
	}
	l.do(l.m.Saved(s.at.Step))
	return !l.dead
}

// commit writes a generation down and frees older snapshots. Every rank can go back to it, or is at a later one.
func (n *node) commit(gen uint32) {
	if gen < n.committed {
		n.c.fail(fmt.Errorf("rank %d went back from generation %d to %d", n.rank, n.committed, gen))
	}
	n.committed = gen
	for _, o := range n.c.nodes {
		if _, ok := o.disk[gen]; !ok && o.committed <= gen {
			n.c.fail(fmt.Errorf("generation %d is committed and rank %d has no snapshot of it", gen, o.rank))
		}
	}
	for step := range n.disk {
		if step < gen {
			delete(n.disk, step)
		}
	}
}

// ended notes the end of the stage program, whose state is compared at the end.
func (l *life) ended() {
	for _, q := range l.pending {
		if _, over := q.(collective.Done); q != nil && !over {
			return
		}
	}
	if len(l.ready) > 0 {
		return
	}
	if l.fenced() {
		return
	}
	l.done = true
	l.n.final = hashOf(l.n.disk[uint32(l.n.c.job.scenario.Train.TrainIters)].local)
	l.do(l.m.Finish())
}
