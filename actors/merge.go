package actors

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"phalanx/collective"
	"phalanx/messages"
)

// reportsAheadMax bounds the steps of which some ranks have reported and others have not. Ranks meet in collectives
// several times a step, so they are one step apart at most; jobs without collectives may be further.
const reportsAheadMax = 4096

// reportKey names what is merged.
type reportKey struct {
	step int
	kind reportKind
}

// reportKind is what is reported of a step.
type reportKind uint8

const (
	stepDone reportKind = iota
	evalDone
	saved
)

func (k reportKey) String() string {
	switch k.kind {
	case evalDone:
		return fmt.Sprintf("validation after step %d", k.step)
	case saved:
		return fmt.Sprintf("checkpoint of step %d", k.step)
	}
	return fmt.Sprintf("step %d", k.step)
}

// keyOf is the key of an event that is merged over ranks; false for others, which pass as they are.
func keyOf(e messages.Event) (reportKey, bool) {
	switch e := e.(type) {
	case messages.StepDone:
		return reportKey{step: e.Step}, true
	case messages.EvalDone:
		return reportKey{step: e.Step, kind: evalDone}, true
	case messages.Saved:
		return reportKey{step: e.Step, kind: saved}, true
	}
	return reportKey{}, false
}

// gather collects one value of each member under a key. Member m speaks for the per ranks from first + m·per.
type gather[T any] struct {
	members, first, per int

	open map[reportKey][]*T
}

// add takes a member's value and returns all of them, in the order of members, when it was the last.
func (g *gather[T]) add(key reportKey, member int, v T) (all []T, err error) {
	if g.open == nil {
		g.open = map[reportKey][]*T{}
	}
	slots := g.open[key]
	if slots == nil {
		slots = make([]*T, g.members)
		g.open[key] = slots
	}
	if slots[member] != nil {
		return nil, fmt.Errorf("%s was reported twice by rank %d, expected one report of each rank", key, g.first+member*g.per)
	}
	slots[member] = &v
	if slices.Contains(slots, nil) {
		if len(g.open) > reportsAheadMax {
			return nil, g.incomplete(true)
		}
		return nil, nil
	}
	delete(g.open, key)
	for _, s := range slots {
		all = append(all, *s)
	}
	return all, nil
}

// incomplete is an error naming the oldest key that some members have not reported; nil if there is none.
func (g *gather[T]) incomplete(ahead bool) error {
	if len(g.open) == 0 {
		return nil
	}
	var keys []reportKey
	for k := range g.open {
		keys = append(keys, k)
	}
	oldest := slices.MinFunc(keys, func(a, b reportKey) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.kind, b.kind)) })
	e := &ReportError{What: oldest.String(), AheadOfTheOther: ahead}
	for m, v := range g.open[oldest] {
		list := &e.Miss
		if v != nil {
			list = &e.Have
		}
		for i := range g.per {
			*list = append(*list, g.first+m*g.per+i)
		}
	}
	return e
}

// merge makes one report of all ranks' reports of one key, which are in ascending rank order. The sums are added in
// that order, so their bits do not depend on stages or on who came first.
func merge(key reportKey, reports []report, place func(rank int) collective.Place) (messages.Event, error) {
	var sums messages.Sums
	switch key.kind {
	case saved:
		return mergeSaved(key.step, reports), nil
	case evalDone:
		for _, r := range reports {
			sums.Add(r.event.(messages.EvalDone).Sums)
		}
		return messages.EvalReport{Step: key.step, Sums: sums}, nil
	}
	norms, rates, skipped := make([]float64, len(reports)), make([]float64, len(reports)), make([]float64, len(reports))
	for i, r := range reports {
		e := r.event.(messages.StepDone)
		sums.Add(e.Sums)
		norms[i], rates[i] = e.GradNorm, e.LR
		if e.Skipped {
			skipped[i] = 1
		}
	}
	for what, values := range map[string][]float64{"grad_norm": norms, "lr": rates, "skipped": skipped} {
		if err := sameBits(key.step, what, values, reports, place); err != nil {
			return nil, err
		}
	}
	return messages.StepReport{Step: key.step, Sums: sums, GradNorm: norms[0], LR: rates[0], Skipped: skipped[0] != 0}, nil
}

// mergeSaved is the parts of all ranks, and the first failure.
func mergeSaved(step int, reports []report) messages.SaveReport {
	out := messages.SaveReport{Step: step}
	for _, r := range reports {
		e := r.event.(messages.Saved)
		out.Parts = append(out.Parts, e.Part)
		if out.Err == "" && e.Err != "" {
			out.Err = fmt.Sprintf("rank %d: %s", e.Rank, e.Err)
		}
	}
	return out
}

// sameBits compares a figure of all ranks. Any NaN equals any other.
func sameBits(step int, what string, values []float64, reports []report, place func(int) collective.Place) error {
	var e *DivergenceError
	for i, v := range values {
		if math.Float64bits(v) == math.Float64bits(values[0]) || math.IsNaN(v) && math.IsNaN(values[0]) {
			continue
		}
		if e == nil {
			e = &DivergenceError{Step: step, What: what, First: place(reports[0].rank), FirstValue: values[0],
				Second: place(reports[i].rank), SecondValue: v}
		}
		e.Differ = append(e.Differ, reports[i].rank)
	}
	if e == nil {
		return nil
	}
	return e
}
