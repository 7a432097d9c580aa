package collective

import (
	"fmt"
	"maps"
	"slices"

	"phalanx/nn"
)

// GroupState is where a group stands between two steps: how many messages each program has had. Nothing else outlives a
// step, because every message is used in the step in which it was sent.
type GroupState struct {
	Programs []ProgramState // ascending
	Counts   []OpCount      // of all steps before
}

// ProgramState is one program's.
type ProgramState struct {
	Program nn.Program
	Seq     uint64   // of the next collective's first message
	Puts    []uint64 // messages put to each member; nil: none
}

// State is the group's. A program that is within an operation makes it a programmer error.
func (g *Group) State() GroupState {
	programs := map[nn.Program]bool{}
	for p, c := range g.channels {
		programs[p] = true
		if c.op != nil {
			panic(fmt.Sprintf("collective: state of %s taken while program %s is in %s", g.place, ProgramName(p), c.name))
		}
	}
	for p, m := range g.mail {
		programs[p] = true
		if m.op != nil {
			panic(fmt.Sprintf("collective: state of %s taken while program %s is in the get of %s", g.place, ProgramName(p), m.name))
		}
	}
	var s GroupState
	for _, p := range slices.Sorted(maps.Keys(programs)) {
		at := ProgramState{Program: p, Seq: g.channel(p).seq}
		if m := g.mail[p]; m != nil {
			at.Puts = slices.Clone(m.out)
		}
		s.Programs = append(s.Programs, at)
	}
	s.Counts = g.Counts()
	return s
}

// Restore makes a new group one that stands where a state was taken.
func (g *Group) Restore(s GroupState) {
	for _, p := range s.Programs {
		g.channel(p.Program).seq = p.Seq
		if len(p.Puts) > 0 {
			copy(g.mailbox(p.Program).out, p.Puts)
		}
	}
	for _, n := range s.Counts {
		key := n
		key.Count, key.Bytes = 0, 0
		*g.counter(key) = n
	}
}
