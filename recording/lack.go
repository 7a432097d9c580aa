package recording

import (
	"fmt"
	"slices"

	"phalanx/recovery"
	"phalanx/snapshot"
)

// LackError is a hole in what was recorded of a rank: messages that no life has recorded, although a later life begins behind them
// or their edge goes on. A life records all that follows where it begins, and it begins at a snapshot that counts, before which
// everything was written: so a file is cut off or gone.
type LackError struct {
	Rank    int
	Sent    bool          // else received
	Edge    recovery.Edge // of a message that is missing
	Number  uint64        // on that edge, the first that is missing there
	Before  *LifeOf       // the last life that began before the hole; nil: none is there
	Next    LifeOf        // the first one behind it, or the one that it is in the middle of
	Middle  bool          // of Next
	GoingOn int           // steps that are done at the first snapshot behind the hole; 0: there is none
}

func (e *LackError) Error() string {
	what := "received"
	if e.Sent {
		what = "sent"
	}
	next, where := e.Next, ""
	switch {
	case e.Middle:
		where = fmt.Sprintf("it is gone from the middle of life %d", next.Incarnation)
	case e.Before == nil:
		where = fmt.Sprintf("nothing is there before life %d, which begins with %d steps done", next.Incarnation, next.Step)
	default:
		where = fmt.Sprintf("life %d ends after %d records with %d steps done, the next, life %d, begins with %d",
			e.Before.Incarnation, e.Before.Records, e.Before.Begun, next.Incarnation, next.Step)
	}
	text := fmt.Sprintf("the recording lacks message %d of edge %s that rank %d has %s, and maybe more (%s)", e.Number, e.Edge, e.Rank, what, where)
	if e.GoingOn > 0 {
		return text + fmt.Sprintf("; bring the file back, or begin behind the hole: --from-step %d", e.GoingOn)
	}
	return text + "; bring the file back"
}

// Lacks looks for a hole in what is recorded from a state on, the zero value being the beginning of the run; nil: there is none.
// That the recording ends early is none.
func (t *Tape) Lacks(from recovery.State) *LackError {
	var holes []*LackError
	received, more := reach(t.received, from.Need)
	for _, e := range more {
		holes = append(holes, t.hole(false, e, received[e], t.after(t.received[e], received[e])))
	}
	sent, more := reach(t.sent, from.Sent)
	for _, e := range more {
		holes = append(holes, t.hole(true, e, sent[e], t.after(t.sent[e], sent[e])))
	}
	known := from.Step
	for life, l := range t.Lives {
		if l.Step <= known {
			continue
		}
		known = l.Step
		at := t.stateAt(l.Step)
		for _, e := range beyond(at.Need, received, from.Need) {
			holes = append(holes, t.hole(false, e, max(received[e], from.Need[e]), life))
		}
		for _, e := range beyond(at.Sent, sent, from.Sent) {
			holes = append(holes, t.hole(true, e, max(sent[e], from.Sent[e]), life))
		}
	}
	if len(holes) == 0 {
		return nil
	}
	return slices.MinFunc(holes, func(a, b *LackError) int { return int(a.Next.Incarnation) - int(b.Next.Incarnation) })
}

// reach is, of every edge, the number behind the last message up to which all are recorded; more are the edges that have later ones,
// in order.
func reach(all map[recovery.Edge]column, from map[recovery.Edge]uint64) (end map[recovery.Edge]uint64, more []recovery.Edge) {
	end = map[recovery.Edge]uint64{}
	for e, c := range all {
		n, last := from[e], uint64(0)
		for len(c[n]) > 0 {
			n++
		}
		end[e] = n
		for number := range c {
			last = max(last, number+1)
		}
		if last > n {
			more = append(more, e)
		}
	}
	slices.SortFunc(more, recovery.Edge.Compare)
	return end, more
}

// beyond are the edges on which a state is further than what is recorded reaches, in order.
func beyond(at, end, from map[recovery.Edge]uint64) (edges []recovery.Edge) {
	for e, n := range at {
		if n > max(end[e], from[e]) {
			edges = append(edges, e)
		}
	}
	slices.SortFunc(edges, recovery.Edge.Compare)
	return edges
}

// after is the first life that has recorded the next message of an edge behind a number.
func (t *Tape) after(c column, number uint64) (life int) {
	next := ^uint64(0)
	for n, at := range c {
		if n > number && n < next {
			next, life = n, at[0].file
		}
	}
	return life
}

// stateAt is how far the edges to other ranks are at a snapshot; nothing: there is none that can be read.
func (t *Tape) stateAt(step uint32) recovery.State {
	sections, err := t.Snapshots.Sections(step)
	if err != nil {
		return recovery.State{}
	}
	s, err := snapshot.StateOf(sections)
	if err != nil {
		return recovery.State{}
	}
	for _, m := range []map[recovery.Edge]uint64{s.At.Need, s.At.Sent} {
		for e := range m {
			if int(e.Peer) >= t.world {
				delete(m, e)
			}
		}
	}
	return s.At
}

// hole is the one before a life, at a number of an edge; or in its middle, if it has earlier messages of the edge.
func (t *Tape) hole(sent bool, e recovery.Edge, number uint64, life int) *LackError {
	h := &LackError{Rank: t.Rank, Sent: sent, Edge: e, Number: number, Next: t.Lives[life]}
	all := t.received
	if sent {
		all = t.sent
	}
	for n, at := range all[e] {
		h.Middle = h.Middle || n < number && slices.ContainsFunc(at, func(at entry) bool { return at.file == life })
	}
	for i := range life {
		if !h.Middle && t.Lives[i].Step < h.Next.Step {
			h.Before = &t.Lives[i]
		}
	}
	for _, step := range slices.Backward(t.Snapshots.List()) {
		if step >= h.Next.Step && !h.Middle {
			h.GoingOn = int(step)
		}
	}
	return h
}
