package collective

import (
	"fmt"
	"iter"
	"slices"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
)

// Rank is the machine of a whole rank: its programs, the values between them and its groups. Whoever drives it says which
// program goes on and which message has come, and carries out the effects; each call does all it can before it returns.
// Actors give every program and group a mailbox of its own instead.
type Rank struct {
	place    Place
	programs []*program // by number; nil: not on this rank
	groups   map[mesh.Axis]*Group
}

// program is one program and what it has been sent.
type program struct {
	*Routine
	Ports
	ready bool // it can go on: reply answers what it waits for
	reply any
}

// Effects are what a call leads to.
type Effects struct {
	Send  []Outgoing   // in order
	Ready []nn.Program // that can go on now, in the order in which they came to
	Read  []Incoming   // messages whose payloads are their owner's again
}

// NewRank is a rank whose programs, by number and nil where one is not on this rank, have not begun: all can go on.
func NewRank(self Place, programs []func(nn.Comm)) *Rank {
	r := &Rank{place: self, programs: make([]*program, len(programs)), groups: map[mesh.Axis]*Group{}}
	for _, a := range mesh.Axes() {
		if self.Sizes.Of(a) > 1 {
			r.groups[a] = NewGroup(self, a)
		}
	}
	for i, code := range programs {
		if code != nil {
			r.programs[i] = &program{Routine: NewRoutine(self, nn.Program(i), code), ready: true}
			r.programs[i].rank = r
		}
	}
	return r
}

// Programs are those that are on this rank, ascending.
func (r *Rank) Programs() (list []nn.Program) {
	for p := range r.each() {
		list = append(list, p.program)
	}
	return list
}

// each is the programs that are on this rank, ascending.
func (r *Rank) each() iter.Seq[*program] {
	return func(yield func(*program) bool) {
		for _, p := range r.programs {
			if p != nil && !yield(p) {
				return
			}
		}
	}
}

// has says whether a program is on this rank.
func (r *Rank) has(n nn.Program) bool { return int(n) < len(r.programs) && r.programs[n] != nil }

// Resume lets a program that can go on do so, until it waits or ends, and begins the operation that it asks for. The errors
// are those of Group.Begin.
func (r *Rank) Resume(n nn.Program) (Request, Effects, error) {
	p := r.programs[n]
	if !p.ready {
		panic(fmt.Sprintf("collective: %s is resumed and cannot go on", r.name(n)))
	}
	reply := p.reply
	p.ready, p.reply = false, nil
	q := p.Resume(reply)
	var fx Effects
	for _, s := range p.Outbox() {
		r.programs[s.To].Put(n, s)
		r.programs[s.To].receive(&fx)
	}
	switch q := q.(type) {
	case Collective:
		g := r.groups[q.Op.Axis]
		out, done, err := g.Begin(n, q.Op)
		if done != nil {
			p.wake(nil, &fx)
		}
		fx.Send, fx.Read = out, g.Released()
		return q, fx, err
	case Receive:
		p.receive(&fx)
	}
	return q, fx, nil
}

// Deliver gives a message to its group. The errors are those of Group.Deliver.
func (r *Rank) Deliver(h messages.Header, payload []byte) (fx Effects, err error) {
	a := mesh.Axis(h.Chan >> 8)
	g := r.groups[a]
	if g == nil {
		return fx, &AddressError{Self: r.place, Axis: a.String(), Header: h}
	}
	out, done, err := g.Deliver(h, payload)
	for _, d := range done {
		r.programs[d.Program].wake(nil, &fx)
	}
	fx.Send, fx.Read = out, g.Released()
	return fx, err
}

// Recycle hands over the payload of a message that was read, as Group.Recycle.
func (r *Rank) Recycle(m Incoming) { r.groups[mesh.Axis(m.Header.Chan>>8)].Recycle(m.Payload) }

// receive answers a program that waits for a value which is there.
func (p *program) receive(fx *Effects) {
	if q, waits := p.pending.(Receive); waits && !p.ready {
		if v, there := p.Take(q); there {
			p.wake(v, fx)
		}
	}
}

// wake answers what a program waits for.
func (p *program) wake(reply any, fx *Effects) {
	p.ready, p.reply = true, reply
	fx.Ready = append(fx.Ready, p.program)
}

// Over says whether all programs have returned.
func (r *Rank) Over() bool {
	for p := range r.each() {
		if p.final != (Done{}) {
			return false
		}
	}
	return true
}

// Wait is a message that an operation cannot end without.
type Wait struct {
	Program nn.Program
	Op      *nn.Op
	Peer    int // rank that it is missing from, see Group.Missing
}

// Chan is the channel on which it comes.
func (w Wait) Chan() uint16 { return Channel(w.Op.Axis, w.Program) }

// Waits are the messages that programs wait for, by program and peer. Each may be delivered when it is listed.
func (r *Rank) Waits() iter.Seq[Wait] {
	return func(yield func(Wait) bool) {
		for p := range r.each() {
			q, waits := p.pending.(Collective)
			if !waits || p.ready {
				continue
			}
			for _, peer := range r.groups[q.Op.Axis].Missing(p.program) {
				if !yield(Wait{p.program, q.Op, peer}) {
					return
				}
			}
		}
	}
}

// Statuses are where the programs stand, ascending.
func (r *Rank) Statuses() (all []Status) {
	for p := range r.each() {
		s := p.Status()
		if q, waits := p.pending.(Collective); waits && !p.ready {
			s.Missing = r.groups[q.Op.Axis].Missing(p.program)
		}
		all = append(all, s)
	}
	return all
}

// Unreceived names the values that no program has received, sorted: `1 "loss" for rank 0 program mtp.1`.
func (r *Rank) Unreceived() (names []string) {
	for p := range r.each() {
		for _, name := range p.left() {
			names = append(names, name+" for "+r.name(p.program))
		}
	}
	slices.Sort(names)
	return names
}

// name reads "rank 0 program mtp.1".
func (r *Rank) name(p nn.Program) string {
	return fmt.Sprintf("rank %d program %s", r.place.Rank, ProgramName(p))
}

// State is where the groups stand, see Group.State.
func (r *Rank) State() map[mesh.Axis]GroupState {
	s := map[mesh.Axis]GroupState{}
	for a, g := range r.groups {
		s[a] = g.State()
	}
	return s
}

// Restore makes the groups of a new rank stand where a state was taken.
func (r *Rank) Restore(s map[mesh.Axis]GroupState) {
	for a, g := range r.groups {
		g.Restore(s[a])
	}
}

// Stop unwinds what has not ended, as Routine.Stop.
func (r *Rank) Stop() {
	for p := range r.each() {
		p.Stop()
	}
}
