package run

import (
	"fmt"
	"path/filepath"

	"phalanx/config"
)

// UnusedFault is a fault of the scenario that has not happened, since nobody came by.
type UnusedFault struct {
	Fault    int    `json:"fault"`    // its place in faults, from 0
	At       string `json:"at"`       // where it is to happen
	Passages int    `json:"passages"` // that there were
	Expected int    `json:"expected"`
}

// String is one line.
func (u UnusedFault) String() string {
	return fmt.Sprintf("fault unused: faults.%d, %s: passages %d, expected %d", u.Fault, u.At, u.Passages, u.Expected)
}

// unused are the faults that have not happened; n is how often what each waits for has come by.
func unused(list []config.Injected, n func(i int) int) (all []UnusedFault) {
	for i := range list {
		f := &list[i]
		u := UnusedFault{Fault: i, At: whereOf(f), Passages: n(i), Expected: 1}
		if f.OfRank() && f.During.Steps == nil {
			u.Expected = f.At.Count
		}
		if u.Passages < u.Expected {
			all = append(all, u)
		}
	}
	return all
}

// whereOf is where a fault happens, in words.
func whereOf(f *config.Injected) (text string) {
	switch {
	case f.OfRank():
		text = fmt.Sprintf("rank %d at %s", *f.At.Rank, f.At.Hook)
	case f.OfServer():
		text = "server " + f.Server
	default:
		text = "messages" + rankOf(" of rank", f.Link.From) + rankOf(" to rank", f.Link.To)
	}
	if f.At.Step != nil {
		text += fmt.Sprintf(" step %d", *f.At.Step)
	}
	if f.At.Microbatch != nil {
		text += fmt.Sprintf(" microbatch %d", *f.At.Microbatch)
	}
	if w := f.During.Steps; w != nil {
		text += fmt.Sprintf(" steps %d to %d", w[0], w[1])
	}
	return text
}

func rankOf(what string, rank *int) string {
	if rank == nil {
		return ""
	}
	return fmt.Sprintf("%s %d", what, *rank)
}

// passed is how often what an entry waits for has come by.
func (f *faults) passed(i int) int { return int(f.n[i].Load()) }

// met notes the first message of a link that an entry is about.
func (f *faults) met(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n[i].Add(1) == 1 && f.dir != "" {
		_ = f.note(i) // the entry is told as unused then, and no more comes of it
	}
}

// unusedFaults are those of a run that has come to its end.
func (j *job) unusedFaults() []UnusedFault {
	if j.launched != nil {
		return j.launched.unused
	}
	return unused(j.s.Faults, j.faults.passed)
}

// unusedFaults counts what the processes of a run have noted in its folder, and what this one has seen itself.
func (l *launch) unusedFaults() ([]UnusedFault, error) {
	if len(l.j.s.Faults) == 0 {
		return nil, nil
	}
	noted, err := newFaults(l.j.s.Faults, filepath.Join(l.dir, spawnFaults))
	if err != nil {
		return nil, err
	}
	return unused(l.j.s.Faults, func(i int) int { return max(noted.passed(i), l.j.faults.passed(i)) }), nil
}

// faultsUnused is the quantity: how many faults of the scenario have not happened.
const faultsUnused = "faults.unused"
