package recovery

// Ending is the part of the one that decides. It never dies while the run goes on, and is asked before a process is started: what it
// has proposed then the process knows from its beginning.
type Ending struct {
	end   End
	last  uint32 // steps of the whole run
	holds []bool // by process, in this round
}

// NewEnding is an end that nobody has asked for, of a run of so many processes and steps.
func NewEnding(processes int, last uint32) *Ending {
	return &Ending{last: last, holds: make([]bool, processes)}
}

// End is what the processes are to be told.
func (e *Ending) End() End { return e.end }

// Ask asks for an end. begun is how many steps the furthest rank has begun, as far as anybody knows: less costs another round, more
// a step that need not have been.
func (e *Ending) Ask(begun uint32) {
	if e.end.Round == 0 {
		e.propose(begun)
	}
}

// propose begins a round. At the end of the whole run nobody waits, and nothing is left to decide.
func (e *Ending) propose(steps uint32) {
	e.end = End{Round: e.end.Round + 1, Steps: min(steps, e.last)}
	clear(e.holds)
}

// Claimed takes a claim, of whichever life of a process; true if the processes have something new to be told.
func (e *Ending) Claimed(process int, c Claim) bool {
	switch {
	case process < 0 || process >= len(e.holds) || c.Round == 0 || c.Round != e.end.Round || e.end.Decided:
		return false
	case c.Reach > e.end.Steps && e.end.Steps < e.last:
		e.propose(c.Reach)
		return true
	case !c.Holds:
		return false
	}
	e.holds[process] = true
	for _, holds := range e.holds {
		if !holds {
			return false
		}
	}
	e.end.Decided = true
	return true
}
