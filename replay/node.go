package replay

import (
	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recording"
	"phalanx/recovery"
)

// node is the rank that is replayed: its programs, its groups, and how far every edge is.
type node struct {
	o        Options
	routines []*collective.Routine // by program; nil: not on this rank
	pending  []collective.Request
	ports    map[port][]any
	groups   map[mesh.Axis]*collective.Group
	ready    []wake // first in, first out: the order of programs is the same every time
	sent     map[recovery.Edge]uint64
	read     map[recovery.Edge]uint64
	step     uint32 // that the stage program is in
	begun    bool
	done     []messages.StepDone
	ended    error // set within a turn
	passed   int   // times that the rank came by StopAt
	result   Result
}

type port struct {
	to, from nn.Program
	name     string
}

type wake struct {
	program nn.Program
	reply   any
}

func newNode(o Options) (*node, error) {
	n := &node{o: o, ports: map[port][]any{}, groups: map[mesh.Axis]*collective.Group{}, sent: map[recovery.Edge]uint64{}, read: map[recovery.Edge]uint64{},
		step: o.From.At.Step, result: Result{Rank: o.Place.Rank, From: o.From.At.Step, Steps: o.From.At.Step}}
	for e, next := range o.From.At.Sent {
		n.sent[e] = next
	}
	for e, next := range o.From.At.Need {
		n.read[e] = next
	}
	for _, a := range mesh.Axes() {
		if o.Place.Sizes.Of(a) > 1 {
			n.groups[a] = collective.NewGroup(o.Place, a)
			n.groups[a].Restore(o.From.Groups[a])
		}
	}
	programs, err := o.Programs(n.world())
	if err != nil {
		return n, err
	}
	n.pending = make([]collective.Request, len(programs))
	for p, code := range programs {
		if code == nil {
			n.routines = append(n.routines, nil)
			continue
		}
		n.routines = append(n.routines, collective.NewRoutine(o.Place, nn.Program(p), code))
		n.ready = append(n.ready, wake{nn.Program(p), nil})
	}
	return n, nil
}

func (n *node) stop() {
	for _, r := range n.routines {
		if r != nil {
			r.Stop()
		}
	}
}

// run takes turns until all programs have ended, or something ends the replay.
func (n *node) run() error {
	if n.o.From.Local != nil {
		n.pass(afterRestart, 0)
	}
	for n.ended == nil {
		if len(n.ready) > 0 {
			n.turn()
			continue
		}
		if n.over() {
			return n.close()
		}
		if err := n.feed(); err != nil {
			return err
		}
	}
	return n.ended
}

func (n *node) over() bool {
	for _, q := range n.pending {
		if _, done := q.(collective.Done); q != nil && !done {
			return false
		}
	}
	return true
}

// turn lets one program go on until it waits.
func (n *node) turn() {
	w := n.ready[0]
	n.ready = n.ready[1:]
	r := n.routines[w.program]
	q := r.Resume(w.reply)
	n.pending[w.program] = q
	for _, s := range r.Outbox() {
		k := port{s.To, w.program, s.Name}
		n.ports[k] = append(n.ports[k], s.V)
		n.wake(s.To)
	}
	if n.ended != nil {
		return
	}
	switch q := q.(type) {
	case collective.Collective:
		g := n.groups[q.Op.Axis]
		out, done, err := g.Begin(w.program, q.Op)
		n.after(g, out, done, err)
	case collective.Receive:
		n.wake(w.program)
	case collective.Panicked:
		n.end(&ProgramError{Rank: n.o.Place.Rank, Program: w.program, Site: q.Site, Value: q.Value, Stack: q.Stack})
	}
}

// wake gives a program that waits its value.
func (n *node) wake(p nn.Program) {
	q, waits := n.pending[p].(collective.Receive)
	k := port{p, q.From, q.Name}
	if !waits || len(n.ports[k]) == 0 {
		return
	}
	n.pending[p] = nil
	n.ready = append(n.ready, wake{p, n.ports[k][0]})
	n.ports[k] = n.ports[k][1:]
}

// after carries out what a group wants.
func (n *node) after(g *collective.Group, out []collective.Outgoing, done *collective.Completion, err error) {
	for _, o := range out {
		if n.ended == nil {
			n.send(o)
		}
	}
	if err != nil {
		n.diverge(&Divergence{What: OfInput, Step: n.step, Detail: err.Error()})
		return
	}
	if done != nil {
		n.pending[done.Program] = nil
		n.ready = append(n.ready, wake{done.Program, nil})
	}
	g.Released()
}

// end ends the replay; the first reason counts.
func (n *node) end(why error) {
	if n.ended == nil {
		n.ended = why
	}
}

// send compares a message with the one that was sent in its place.
func (n *node) send(o collective.Outgoing) {
	e := recovery.Edge{Peer: o.Header.Dst, Chan: o.Header.Chan}
	number := n.sent[e]
	n.pass(beforeSend, int(o.Header.Microbatch))
	if n.ended != nil {
		return
	}
	n.sent[e]++
	now := recording.Canonical(o.Header, o.Payload, number)
	then, ok, err := n.o.Tape.Sent(e, number)
	d := &Divergence{What: OfMessage, Step: now.Step, Edge: e, Number: number, Header: then, Recorded: then.PayloadCRC, Replayed: now.PayloadCRC}
	switch {
	case err != nil:
		n.end(err)
	case ok && then == now:
		n.result.Sent++
	case ok && then.PayloadCRC == now.PayloadCRC && then.Len == now.Len:
		d.Detail = "it is now " + collective.NameIn(now).String()
		n.diverge(d)
	case ok:
		if collective.NameIn(then) != collective.NameIn(now) {
			d.Detail = "it is now " + collective.NameIn(now).String()
		}
		n.diverge(d)
	case n.o.Tape.Done:
		d.What, d.Header = OfMore, now
		n.diverge(d)
	}
	n.pass(afterSend, int(o.Header.Microbatch))
}

// feed gives the groups what the programs wait for.
func (n *node) feed() error {
	fed := false
	for p, q := range n.pending {
		op, ok := q.(collective.Collective)
		if !ok {
			continue
		}
		for _, peer := range n.groups[op.Op.Axis].Missing(nn.Program(p)) {
			e := recovery.Edge{Peer: uint16(peer), Chan: collective.Channel(op.Op.Axis, nn.Program(p))}
			h, payload, ok, err := n.o.Tape.Received(e, n.read[e])
			if err != nil {
				return err
			}
			if ok && n.ended == nil {
				fed = true
				n.deliver(e, h, payload)
			}
		}
	}
	if !fed && n.ended == nil {
		n.starved()
	}
	return nil
}

// deliver gives one message to its group.
func (n *node) deliver(e recovery.Edge, h messages.Header, payload []byte) {
	if n.pass(beforeApply, int(h.Microbatch)); n.ended != nil {
		return
	}
	n.read[e]++
	n.result.Received++
	g := n.groups[mesh.Axis(h.Chan>>8)]
	out, done, err := g.Deliver(h, payload)
	if len(done) == 0 {
		n.after(g, out, nil, err)
		return
	}
	n.after(g, out, &done[0], err)
}
