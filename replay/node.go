package replay

import (
	"maps"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recording"
	"phalanx/recovery"
)

// node is the rank that is replayed: its programs and groups, and how far every edge is.
type node struct {
	o      Options
	rank   *collective.Rank
	ready  []nn.Program // first in, first out: the order of programs is the same every time
	sent   map[recovery.Edge]uint64
	read   map[recovery.Edge]uint64
	step   uint32 // that the stage program is in
	begun  bool
	done   []messages.StepDone
	ended  error // set within a turn
	passed int   // times that the rank came by StopAt
	result Result
}

func newNode(o Options) (*node, error) {
	n := &node{o: o, sent: map[recovery.Edge]uint64{}, read: map[recovery.Edge]uint64{}, step: o.From.At.Step,
		result: Result{Rank: o.Place.Rank, From: o.From.At.Step, Steps: o.From.At.Step}}
	maps.Copy(n.sent, o.From.At.Sent)
	maps.Copy(n.read, o.From.At.Need)
	programs, err := o.Programs(n.world())
	if err != nil {
		return n, err
	}
	n.rank = collective.NewRank(o.Place, programs)
	n.rank.Restore(o.From.Groups)
	n.ready = n.rank.Programs()
	return n, nil
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
		if n.rank.Over() {
			return n.close()
		}
		if err := n.feed(); err != nil {
			return err
		}
	}
	return n.ended
}

// turn lets one program go on until it waits.
func (n *node) turn() {
	p := n.ready[0]
	n.ready = n.ready[1:]
	q, fx, err := n.rank.Resume(p)
	if n.ended != nil {
		return
	}
	if q, failed := q.(collective.Panicked); failed {
		n.end(&ProgramError{Rank: n.o.Place.Rank, Program: p, Site: q.Site, Value: q.Value, Stack: q.Stack})
	}
	n.do(fx, err)
}

// do carries out what a turn or a message led to.
func (n *node) do(fx collective.Effects, err error) {
	for _, m := range fx.Send {
		if n.ended == nil {
			n.send(m)
		}
	}
	if err != nil {
		n.diverge(&Divergence{What: OfInput, Step: n.step, Detail: err.Error()})
	}
	n.ready = append(n.ready, fx.Ready...)
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
	for w := range n.rank.Waits() {
		e := edgeOf(w)
		h, payload, ok, err := n.o.Tape.Received(e, n.read[e])
		if err != nil {
			return err
		}
		if ok && n.ended == nil {
			fed = true
			n.deliver(e, h, payload)
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
	n.do(n.rank.Deliver(h, payload))
}
