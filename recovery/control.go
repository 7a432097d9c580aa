package recovery

import (
	"fmt"
)

// Kind is what a control message says.
type Kind uint8

// The control messages.
const (
	Hello   Kind = iota + 1 // a new life: tell me what you have of mine, and what is durable with you
	Need                    // I have everything before these numbers of yours; send the rest
	TooOld                  // of what you ask for I have nothing before these numbers: it was before this generation
	Durable                 // these steps of mine can be read
	Done                    // my programs have ended
	Rest                    // the answer to Need ends before this number, and there is more
	kindEnd
)

// String is the kind's name.
func (k Kind) String() string {
	names := [...]string{"?", "hello", "need", "too_old", "durable", "done", "rest"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Control is a message between the machines of two ranks. It may be lost or repeated without harm.
type Control struct {
	Kind        Kind
	Src, Dst    int
	Incarnation uint32            // of the sender
	Numbers     map[uint16]uint64 // by channel: Need, Rest, TooOld
	Steps       []uint32          // Durable, Hello
	Generation  uint32            // TooOld; of the sender else
	Ended       bool              // the sender is done
	Every       uint32            // steps between the snapshots of the sender; 0: it takes none
	Of          uint32            // incarnation of the receiver that the sender has heard of last; 0: of none
}

// String is one line.
func (c Control) String() string {
	return fmt.Sprintf("%s %d→%d inc %d gen %d numbers %d durable %v", c.Kind, c.Src, c.Dst, c.Incarnation, c.Generation, len(c.Numbers), c.Steps)
}

func (r *Rank) control(k Kind, to int) Control {
	return Control{Kind: k, Src: r.o.Rank, Dst: to, Incarnation: r.o.Incarnation, Generation: r.gen, Ended: r.done, Every: r.every, Of: r.peers[to].incarnation,
		Steps: newest(r.peers[r.o.Rank].durable)}
}

// needs tells a peer what this rank has of it, which also asks for the rest.
func (r *Rank) needs(p int) Control {
	c := r.control(Need, p)
	c.Numbers = map[uint16]uint64{}
	for e, in := range r.in {
		if int(e.Peer) == p {
			c.Numbers[e.Chan] = in.need
		}
	}
	return c
}

// StrangerError says that a control message is not for this rank, or from nobody it knows.
type StrangerError struct {
	Rank, World int
	Control     Control
}

func (e *StrangerError) Error() string {
	return fmt.Sprintf("rank %d got %s; expected one to %d from another of the %d peers", e.Rank, e.Control, e.Rank, e.World)
}

// Control takes a control message. One of an earlier life of its sender says nothing.
func (r *Rank) Control(c Control) (fx Effects, err error) {
	if c.Dst != r.o.Rank || c.Src == r.o.Rank || c.Src < 0 || c.Src >= r.o.World {
		return fx, &StrangerError{r.o.Rank, r.o.World, c}
	}
	p := &r.peers[c.Src]
	if c.Incarnation < p.incarnation && r.o.Planted != IncarnationUnchecked {
		return fx, nil
	}
	if c.Incarnation > p.incarnation {
		p.incarnation, p.done = c.Incarnation, false
		for e, o := range r.out {
			if int(e.Peer) == c.Src {
				o.told = 0 // the new life has what it will say it has
			}
		}
		r.forget(c.Src)
	}
	p.done = p.done || c.Ended
	p.durable = sorted(append(p.durable, c.Steps...))
	r.keepEvery(c.Every, &fx)
	r.commit(&fx)
	switch c.Kind {
	case Hello:
		fx.Control = append(fx.Control, r.needs(c.Src), r.control(Durable, c.Src))
	case Need:
		r.collected(c)
		r.answer(c, &fx)
	case Rest:
		r.rest(c, &fx)
	case TooOld:
		err = r.jump(c, &fx)
	case Done:
		p.done = true
		if r.done { // whoever says it again does not know it of this rank
			fx.Control = append(fx.Control, r.control(Durable, c.Src))
		}
	}
	return fx, err
}

// answer sends again what a peer lacks, up to a window of each channel, and learns what it has.
func (r *Rank) answer(c Control, fx *Effects) {
	if r.done && r.o.Planted == DoneStopsServing {
		return
	}
	rest, old := map[uint16]uint64{}, map[uint16]uint64{}
	for _, e := range edges(r.out) {
		o := r.out[e]
		if int(e.Peer) != c.Src {
			continue
		}
		need := c.Numbers[e.Chan]
		o.told = max(o.told, need)
		if r.collects(e.Peer) {
			need = o.told // it goes back never, so this is an old request
			r.bytes -= o.slim(need)
		}
		if need < o.floor { // the request may be old, and its other channels not
			old[e.Chan] = o.floor
			continue
		}
		from := need - o.floor
		until := min(from+uint64(r.o.Window), uint64(len(o.entries)))
		for i := from; i < until; i++ {
			fx.Publish = append(fx.Publish, o.entries[i])
			r.replayed++
		}
		if until < uint64(len(o.entries)) && from < until {
			rest[e.Chan] = o.floor + until
		}
	}
	r.tell(TooOld, old, c.Src, fx)
	r.tell(Rest, rest, c.Src, fx)
}

// tell sends numbers, if there are any.
func (r *Rank) tell(k Kind, numbers map[uint16]uint64, to int, fx *Effects) {
	if len(numbers) > 0 {
		c := r.control(k, to)
		c.Numbers = numbers
		fx.Control = append(fx.Control, c)
	}
}

// rest notes that there is more where an answer ended.
func (r *Rank) rest(c Control, fx *Effects) {
	ask := false
	for ch, n := range c.Numbers {
		in := r.in[Edge{uint16(c.Src), ch}]
		if in == nil {
			in = &inbox{}
			r.in[Edge{uint16(c.Src), ch}] = in
		}
		if in.need >= n {
			ask = true
			continue
		}
		in.later(n)
	}
	if ask {
		fx.Control = append(fx.Control, r.needs(c.Src))
	}
}

// jump starts the rank again from a later snapshot of its own, if it lacks what the peer has forgotten: a generation was
// committed while it computed again, and it has a snapshot of it, since that is what commits. An answer to an old request
// moves nobody back.
func (r *Rank) jump(c Control, fx *Effects) error {
	for ch, floor := range c.Numbers {
		e := Edge{uint16(c.Src), ch}
		need := uint64(0)
		if in := r.in[e]; in != nil {
			need = in.need
		}
		switch {
		case need >= floor && r.o.Planted != StaleGeneration:
			continue
		case c.Generation <= r.start:
			return &LostError{Rank: r.o.Rank, Edge: e, Need: need, Floor: floor, Start: r.start, Generation: c.Generation}
		case r.o.Planted != NoJump:
			fx.Jump, fx.JumpTo = true, c.Generation
		}
	}
	return nil
}
