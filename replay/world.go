package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/snapshot"
)

// world is what the programs have around them.
func (n *node) world() World {
	return World{Local: n.o.From.Local, Boundary: n.boundary, Emit: n.emit, Weights: n.weights,
		Stop: func(step int) bool { return n.o.Tape.Done && uint32(step) >= n.o.Tape.Begun },
		Point: func(name string, step, microbatch int) {
			if n.pass(name, microbatch); n.ended != nil {
				panic(errStop) // unwinds the program, whose panic comes too late to be told
			}
		}}
}

func (n *node) emit(e messages.Event) {
	if e, ok := e.(messages.StepDone); ok {
		n.done = append(n.done, e)
		if n.o.Step != nil {
			n.o.Step(e)
		}
	}
}

// boundary compares the state of a step with its snapshot, if there is one.
func (n *node) boundary(step int, local func() []byte) {
	n.step, n.result.Steps = uint32(step), uint32(step)
	if !n.begun { // what it began with
		n.begun = true
		return
	}
	if n.ended != nil {
		return
	}
	sections, err := n.o.Tape.Snapshots.Sections(uint32(step))
	var missing *snapshot.MissingError
	if errors.As(err, &missing) && missing.Bad == nil {
		return
	}
	var then snapshot.State
	if err == nil {
		then, err = snapshot.StateOf(sections)
	}
	if err != nil { // messages are compared all the same
		n.result.LeftOut = append(n.result.LeftOut, err)
		return
	}
	if n.pass(beforeSnapshot, 0); n.ended != nil {
		return
	}
	now := local()
	if !bytes.Equal(now, then.Local) {
		n.diverge(&Divergence{What: OfState, Step: uint32(step), Recorded: messages.Checksum(then.Local), Replayed: messages.Checksum(now), Detail: differ(then.Local, now)})
		return
	}
	n.result.States++
}

// differ says where two states differ first.
func differ(then, now []byte) string {
	for i := range min(len(then), len(now)) {
		if then[i] != now[i] {
			return fmt.Sprintf("they differ first at byte %d of %d", i, len(then))
		}
	}
	return fmt.Sprintf("it had %d bytes and has %d", len(then), len(now))
}

func (n *node) weights(sum [32]byte) {
	then := n.o.Tape.Weights
	switch {
	case n.ended != nil || then == nil:
	case *then != sum:
		n.diverge(&Divergence{What: OfWeights, Step: n.step, Detail: fmt.Sprintf("their hash was %x and is %x", then[:8], sum[:8])})
	default:
		n.result.Weights = true
	}
}

// close looks, at the end of the programs, for what they should have done.
func (n *node) close() error {
	if p := n.o.StopAt; p != nil {
		n.result.Ended = fmt.Sprintf("the rank came by %s %d times, not %d: it was not stopped", p.Hook, n.passed, p.Count)
	}
	t := n.o.Tape
	if t.Done && n.result.Steps != t.Begun {
		n.diverge(&Divergence{What: OfSteps, Step: n.result.Steps, Detail: fmt.Sprintf("%d steps were done, now %d", t.Begun, n.result.Steps)})
		return n.ended
	}
	until := t.SentUntil()
	for _, e := range sortedEdges(until) {
		if n.sent[e] >= until[e] {
			continue
		}
		h, _, err := t.Sent(e, n.sent[e])
		if err != nil {
			return err
		}
		n.diverge(&Divergence{What: OfLess, Step: h.Step, Edge: e, Number: n.sent[e], Header: h, Recorded: h.PayloadCRC})
		break
	}
	return n.ended
}

// starved ends a replay in which every program waits for what was not recorded.
func (n *node) starved() {
	waits := n.waits()
	if !n.o.Tape.Done {
		n.result.Ended = "the recording ends here"
		if len(n.o.Tape.Damage) > 0 {
			n.end(errors.Join(n.o.Tape.Damage...))
			return
		}
		n.result.Stopped = n.here("")
		n.end(errStop)
		return
	}
	d := &Divergence{What: OfInput, Step: n.step, Detail: "it waits for " + list(waits)}
	if len(waits) > 0 {
		d.Edge, d.Number = waits[0].Edge, waits[0].Number
	}
	n.diverge(d)
}

// Wait is a message that a program waits for.
type Wait struct {
	Program nn.Program
	Edge    recovery.Edge
	Number  uint64
	Name    string // of the operation
}

func (w Wait) String() string {
	return fmt.Sprintf("message %d of edge %s for program %s in %s", w.Number, w.Edge, collective.ProgramName(w.Program), w.Name)
}

// waits are the messages that programs wait for, by program and peer.
func (n *node) waits() []Wait {
	var all []Wait
	for w := range n.rank.Waits() {
		e := edgeOf(w)
		all = append(all, Wait{w.Program, e, n.read[e], collective.NameOf(w.Op).String()})
	}
	return all
}

func edgeOf(w collective.Wait) recovery.Edge {
	return recovery.Edge{Peer: uint16(w.Peer), Chan: w.Chan()}
}

func list[S fmt.Stringer](all []S) string {
	text := ""
	for i, s := range all {
		if i > 0 {
			text += "; "
		}
		text += s.String()
	}
	return text
}

func sortedEdges(m map[recovery.Edge]uint64) []recovery.Edge {
	all := make([]recovery.Edge, 0, len(m))
	for e := range m {
		all = append(all, e)
	}
	slices.SortFunc(all, recovery.Edge.Compare)
	return all
}
