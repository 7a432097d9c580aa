package explain

import (
	"fmt"
	"strings"
)

// strip is a whole row as a bar.
type strip struct {
	Label string
	Paths []path
}

// path is all stretches of a strip of one class, as an SVG path of unit height.
type path struct{ Class, D string }

// overview are bars of the whole length, for sequences whose grid leaves something out.
func (q *sequence) overview() []strip {
	n := len(q.positions)
	if n <= gridMax {
		return nil
	}
	var out []strip
	if len(runsOf(q.document)) > 1 {
		out = append(out, stripOf("document", cellsOf(n, func(i int) string { return fmt.Sprintf("f-doc%d", max(q.document[i], 0)%2) })))
	}
	if q.chunk == nil && len(runsOf(q.cp)) > 1 {
		out = append(out, stripOf("cp rank", cellsOf(n, func(i int) string { return fmt.Sprintf("f-cp%d", max(q.cp[i], 0)%8) })))
	}
	for k, t := range q.terms {
		label := "LM"
		if k > 0 {
			label = fmt.Sprintf("depth %d", k)
		}
		out = append(out, stripOf(label, cellsOf(n, func(i int) string { return "f-" + t.State[i].String() })))
	}
	return out
}

// stripOf draws runs of classes.
func stripOf(label string, classes []string) strip {
	var order []string
	drawn := map[string]*strings.Builder{}
	for _, r := range runsOf(classes) {
		b, ok := drawn[r.v]
		if !ok {
			b = &strings.Builder{}
			drawn[r.v] = b
			order = append(order, r.v)
		}
		fmt.Fprintf(b, "M%d 0h%dv1h-%dz", r.from, r.to-r.from, r.to-r.from)
	}
	s := strip{Label: label}
	for _, class := range order {
		s.Paths = append(s.Paths, path{class, drawn[class].String()})
	}
	return s
}
