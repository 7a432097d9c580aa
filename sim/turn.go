package sim

import (
	"fmt"
	"slices"

	"phalanx/collective"
	"phalanx/recovery"
)

// turn lets one program of the rank go on until it waits.
func (l *life) turn() {
	c := l.n.c
	i := c.next(l)
	p := l.ready[i]
	l.ready = slices.Delete(l.ready, i, i+1)
	if !l.m.Ready() {
		c.fail(breaks(I10, "rank %d goes on before its recovery is over", l.n.rank))
		return
	}
	q, fx, err := l.rank.Resume(p)
	if l.dead() {
		return // at a point that the program passed
	}
	c.note(102, uint64(l.n.rank), uint64(p), uint64(len(l.ready)))
	if l.proc == l.proc.w.present() {
		c.moved = max(c.moved, c.now)
	}
	if len(l.due) > 0 && !l.writing && !l.write() {
		return
	}
	l.after(fx, err)
	switch q := q.(type) {
	case collective.Done:
		l.ended()
	case collective.Panicked:
		c.fail(breaks(I2, "rank %d: %s\n%s", l.n.rank, q, q.Stack))
	}
}

// next chooses which program goes on.
func (c *cluster) next(l *life) int {
	if len(l.ready) == 1 {
		return 0
	}
	return int(c.dice.below(int64(len(l.ready)), askNext, l.n.rank, l.n.rank))
}

// after carries out what a turn or a message led to.
func (l *life) after(fx collective.Effects, err error) {
	if err != nil {
		l.n.c.fail(breaks(I2, "rank %d: %w", l.n.rank, err))
		return
	}
	for _, o := range fx.Send {
		if !l.send(o) {
			return
		}
	}
	l.ready = append(l.ready, fx.Ready...)
	for _, m := range fx.Read {
		if l.dead() {
			return
		}
		l.do(l.m.Read(recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}))
	}
}

// send gives a message to the machine; false if the rank died.
func (l *life) send(o collective.Outgoing) bool {
	if l.dies(inMessage("before-send", o.Header)) {
		return false
	}
	if l.o().Shell == LifeInBytes && l.proc.inc > 1 && len(o.Payload) > 0 {
		o.Payload[0] ^= byte(l.proc.inc)
	}
	o.Header.Seal(o.Payload)
	fx := l.m.Send(recovery.Message{Header: o.Header, Payload: o.Payload})
	l.record(o)
	l.do(fx)
	return !l.dies(inMessage("after-send", o.Header))
}

// do carries out what the machine wants. A delivery may lead to calls that want more: what they deliver comes behind it.
func (l *life) do(fx recovery.Effects) {
	l.n.c.carry(l.n.rank, &fx)
	l.mail = append(l.mail, fx.Deliver...)
	l.handOut()
	if l.dead() {
		return
	}
	if fx.Committed {
		l.logFrom = min(l.m.Generation(), l.step)
		l.n.c.watchFloors(l)
	}
	if fx.Committed && !l.dies(between("before-commit", l.m.Generation())) && !l.fenced() {
		l.n.commit(l.m.Generation())
	}
	if fx.Jump && !l.dead() {
		l.jump(fx.JumpTo)
	}
}

// handOut gives what was delivered to the groups, in order.
func (l *life) handOut() {
	if l.handing {
		return
	}
	l.handing = true
	for i := 0; i < len(l.mail) && l.deliver(l.mail[i]); i++ {
		l.mail[i] = recovery.Message{}
	}
	l.mail, l.handing = l.mail[:0], false
}

// jump goes on from a later snapshot, in the same process and incarnation: it is no death.
func (l *life) jump(to uint32) {
	c := l.n.c
	if l.fenced() {
		return
	}
	if to < l.step || l.proc.inc == 1 && len(l.proc.lives) <= len(l.proc.w.nodes) {
		c.fail(breaks(I7, "rank %d of incarnation %d goes from step %d to its snapshot of step %d", l.n.rank, l.proc.inc, l.step, to))
	}
	c.result.Jumps++
	c.note(103, uint64(l.n.rank), uint64(to))
	l.n.committed = max(l.n.committed, to)
	l.over = true
	c.gone = append(c.gone, l)
	l.proc.later(1, func() { l.n.begin(l.proc) })
}

// deliver hands a message to its group; false if the rank died.
func (l *life) deliver(m recovery.Message) bool {
	c, e := l.n.c, recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}
	switch {
	case l.dies(inMessage("before-apply", m.Header)):
		return false
	case !l.m.Ready():
		c.fail(breaks(I10, "rank %d: a message is applied before recovery is over", l.n.rank))
	case m.Header.Log != l.applied[e]:
		c.fail(breaks(I2, "rank %d applies message %d of edge %s, expected %d", l.n.rank, m.Header.Log, e, l.applied[e]))
	}
	l.applied[e]++
	l.after(l.rank.Deliver(m.Header, slices.Clone(m.Payload)))
	l.plan()
	return !l.dead()
}

// receive is a data message that arrives.
func (l *life) receive(m recovery.Message) {
	fx, err := l.m.Receive(m)
	if err != nil {
		l.n.c.fail(&broken{I3, err})
		return
	}
	l.do(fx)
}

// control is a control message that arrives.
func (l *life) control(m recovery.Control) {
	fx, err := l.m.Control(m)
	if err != nil {
		l.n.c.fail(&broken{I4, err})
		return
	}
	l.n.c.note(104, uint64(m.Kind), uint64(m.Src), uint64(m.Dst), uint64(m.Generation))
	l.do(fx)
}

func (l *life) lost(other int) {
	if l.o().Shell != LostUnasked {
		l.do(l.m.Lost(other))
	}
}

// ended notes the end of the rank's programs.
func (l *life) ended() {
	if !l.rank.Over() || l.fenced() {
		return
	}
	l.done = true
	l.do(l.m.Finish())
}

// final is what a rank tells of its state at the end.
func (l *life) final(local []byte) string {
	if s, ok := l.n.disk[l.n.committed]; ok && l.o().Shell == OldFinal {
		local = s.local
	}
	return fmt.Sprintf("%016x", hashOf(local))
}
