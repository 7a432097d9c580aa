package collective

import (
	"fmt"

	"phalanx/nn"
)

// State is what a program is doing.
type State uint8

// The states of a program.
const (
	Running State = iota
	InCollective
	InReceive
	Finished // it has returned, panicked or been stopped
)

// String is the state's name.
func (s State) String() string {
	return [...]string{"running", "in collective", "in receive", "finished"}[s]
}

// Status is where one program stands.
type Status struct {
	Rank     int
	Program  nn.Program
	State    State
	Op       string     // InCollective: "tp all_reduce row_output"
	Site     nn.Site    // of the last operation; Phase 0 before the first
	From     nn.Program // InReceive
	Name     string     // InReceive
	Missing  []int      // InCollective: see Group.Missing, which fills it
	Progress uint64     // operations and receives completed
}

// String is one line.
func (s Status) String() string {
	n := node{s.Rank, s.Program}
	switch s.State {
	case InCollective:
		return fmt.Sprintf("%s waits in %s (%s) for ranks %v after %d operations", n, s.Op, s.Site, s.Missing, s.Progress)
	case InReceive:
		return fmt.Sprintf("%s waits for %q of program %s after %d operations", n, s.Name, ProgramName(s.From), s.Progress)
	}
	return fmt.Sprintf("%s is %s after %d operations", n, s.State, s.Progress)
}

// Reached is in words how far a program has come, s being the site of its last operation.
func Reached(s nn.Site) string {
	if s.Phase == 0 {
		return "before its first collective"
	}
	return fmt.Sprintf("last collective at %s", s)
}

// Status is where the program stands. While a turn runs it must not be asked for.
func (r *Routine) Status() Status {
	s := Status{Rank: r.place.Rank, Program: r.program, Site: r.site, Progress: r.progress}
	switch q := r.pending.(type) {
	case Collective:
		s.State, s.Op = InCollective, NameOf(q.Op).Short()
	case Receive:
		s.State, s.From, s.Name = InReceive, q.From, q.Name
	}
	if r.final != nil {
		s.State = Finished
	}
	return s
}

// node is one program of one rank in the graph of who waits for whom.
type node struct {
	rank    int
	program nn.Program
}

func (n node) String() string {
	if n.program == 0 {
		return fmt.Sprintf("rank %d", n.rank)
	}
	return fmt.Sprintf("rank %d program %s", n.rank, ProgramName(n.program))
}

// waitsFor is the programs that must act before this one can go on. The operations of an axis are ordered program
// by program, so a collective waits for the same program of the missing ranks.
func (s Status) waitsFor() []node {
	switch s.State {
	case InCollective:
		nodes := make([]node, len(s.Missing))
		for i, r := range s.Missing {
			nodes[i] = node{r, s.Program}
		}
		return nodes
	case InReceive:
		return []node{{s.Rank, s.From}}
	}
	return nil
}

// waits reads "rank 0 waits in tp all_reduce row_output (step 1 …) for rank 1".
func (s Status) waits(target node) string {
	n := node{s.Rank, s.Program}
	if s.State == InReceive {
		return fmt.Sprintf("%s waits for %q of its program %s (%s)", n, s.Name, ProgramName(s.From), Reached(s.Site))
	}
	return fmt.Sprintf("%s waits in %s (%s) for %s", n, s.Op, s.Site, target)
}
