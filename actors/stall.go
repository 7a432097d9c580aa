package actors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"phalanx/collective"
	"phalanx/nn"
)

// watch decides from rounds of questions whether the ranks stand still. It is pure: it is told the time.
//
// A rank that computes does not answer, so an incomplete round means that somebody runs. In a complete one everybody
// is between two turns. If everybody waits, and in the next rounds nothing has been completed or received by anyone,
// nothing is on its way inside the process either: mailboxes are first in, first out, so what was sent before a
// question was answered has been acted on before the next answer. Only links can be slower, hence the timeout.
type watch struct {
	ranks   int
	members int // ranks that are asked
	timeout time.Duration

	round    int
	asked    time.Time
	rank     []rankAnswers
	complete int // ranks that have answered in full

	last      string // the state in the last complete round; empty: somebody ran
	lastAsked time.Time
	quiet     time.Duration // for how long nothing has changed
}

// rankAnswers is what one rank has said in this round.
type rankAnswers struct {
	want     int // answers; 0: not known yet
	programs []collective.Status
	groups   []groupAnswer
}

func newWatch(ranks int, timeout time.Duration) *watch {
	return &watch{ranks: ranks, members: ranks, timeout: timeout, rank: make([]rankAnswers, ranks)}
}

// period is the time between two rounds.
func (w *watch) period() time.Duration { return w.timeout / 2 }

// ask begins a round. If the one before is not complete, somebody runs.
func (w *watch) ask(now time.Time) (round int) {
	if w.complete < w.members {
		w.last, w.quiet = "", 0
	}
	w.round++
	w.asked, w.complete = now, 0
	clear(w.rank)
	return w.round
}

// forgive begins anew: the network is at pains, and says itself when it gives up.
func (w *watch) forgive() { w.last, w.quiet = "", 0 }

// program takes an answer; true if the ranks are now known to stand still.
func (w *watch) program(m programAnswer) bool {
	if m.round != w.round {
		return false
	}
	r := &w.rank[m.status.Rank]
	r.programs = append(r.programs, m.status)
	if m.parts > 0 {
		r.want = m.parts
	}
	return w.settle(r)
}

// group takes an answer; true if the ranks are now known to stand still.
func (w *watch) group(m groupAnswer) bool {
	if m.round != w.round {
		return false
	}
	r := &w.rank[m.rank]
	r.groups = append(r.groups, m)
	return w.settle(r)
}

func (w *watch) settle(r *rankAnswers) bool {
	if len(r.programs)+len(r.groups) != r.want {
		return false
	}
	if w.complete++; w.complete < w.members {
		return false
	}
	state, waiting := w.state()
	switch {
	case !waiting:
		w.last, w.quiet = "", 0
	case state == w.last:
		// A pause of the whole process counts as one period: after it the links must have their time too.
		w.quiet += min(w.asked.Sub(w.lastAsked), w.period())
	default:
		w.last, w.quiet = state, 0
	}
	w.lastAsked = w.asked
	return waiting && w.quiet >= w.timeout
}

// state is everything that moves, and whether all programs wait or are done, at least one of them waiting.
func (w *watch) state() (text string, waiting bool) {
	var parts []string
	for i := range w.rank {
		for _, s := range w.rank[i].programs {
			if s.State == collective.Running {
				return "", false
			}
			waiting = waiting || s.State != collective.Finished
			parts = append(parts, fmt.Sprintf("%d.%d:%d:%d", s.Rank, s.Program, s.State, s.Progress))
		}
		for _, g := range w.rank[i].groups {
			parts = append(parts, fmt.Sprintf("%d.%s:%d", g.rank, g.axis, g.received))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " "), waiting
}

// statuses is the last complete round, with what the groups miss.
func (w *watch) statuses() []collective.Status {
	var all []collective.Status
	for i := range w.rank {
		missing := map[nn.Program][]int{}
		for _, g := range w.rank[i].groups {
			for p, ranks := range g.missing {
				missing[p] = append(missing[p], ranks...)
			}
		}
		for _, s := range w.rank[i].programs {
			s.Missing = missing[s.Program]
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b collective.Status) int {
		if a.Rank != b.Rank {
			return a.Rank - b.Rank
		}
		return int(a.Program) - int(b.Program)
	})
	return all
}

// silent are the ranks of a list that have not answered in full: they compute.
func (w *watch) silent(ranks []int) []int {
	var list []int
	for _, rank := range ranks {
		r := &w.rank[rank]
		if r.want == 0 || len(r.programs)+len(r.groups) != r.want {
			list = append(list, rank)
		}
	}
	return list
}

// stall is the error of a standstill.
func (w *watch) stall() *StallError {
	all := w.statuses()
	return &StallError{Quiet: w.quiet, Text: collective.Diagnose(all), Statuses: all}
}
