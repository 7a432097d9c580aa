package explain

import "fmt"

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
	s := strip{Label: label}
	at := map[string]int{}
	for _, r := range runsOf(classes) {
		j, ok := at[r.v]
		if !ok {
			j = len(s.Paths)
			at[r.v] = j
			s.Paths = append(s.Paths, path{Class: r.v})
		}
		s.Paths[j].D += fmt.Sprintf("M%d 0h%dv1h-%dz", r.from, r.to-r.from, r.to-r.from)
	}
	return s
}
