package explain

import (
	"fmt"
	"strings"
)

// border is the class of a column at which a document, or else a chunk or an owner, begins.
func (q *sequence) border(i int) string {
	switch {
	case i == 0:
		return ""
	case q.document[i] != q.document[i-1]:
		return " docstart"
	case q.cp[i] != q.cp[i-1], q.tp != nil && q.tp[i] != q.tp[i-1], q.chunk != nil && q.chunk[i] != q.chunk[i-1]:
		return " cutstart"
	}
	return ""
}

// cell draws a column of a term.
func (q *sequence) cell(k int, t *Line, c column) cell {
	i := c.from
	out := cell{Class: t.State[i].String() + q.border(i), Source: "-"}
	if mark := t.routerMark(i); mark != "" {
		out.Class += " " + mark
	}
	if c.gap() {
		out.Class += " gap"
		out.Title = fmt.Sprintf("%s · %d alike · %s", t.Term, c.to-c.from, stateTexts[t.State[i]])
		out.Out = "⋯"
		return out
	}
	out.Title = t.title(k, q.positions[i], i)
	if t.State[i] == Inserted {
		return out
	}
	if t.State[i] != Filled {
		out.Source = fmt.Sprint(q.positions[i] + k)
	}
	out.In, out.Out = fmt.Sprint(t.InputIDs[i]), fmt.Sprint(t.Labels[i])
	if t.InputText != nil && t.State[i] != Padding && t.State[i] != Filled {
		out.In, out.Out = t.InputText[i], t.LabelText[i]
	}
	return out
}

// stateTexts say what a state means, in a tooltip and in the legend.
var stateTexts = [...]string{
	Inserted: "inserted slot: holds nothing, counts nowhere",
	Leaked:   "counted, though the data's loss mask says no or the input is padding",
	Wrong:    "not what the rules give: a planted bug",
	Counted:  "counted in the loss",
	Filled:   "beyond the end of the document: the roll filled in 0, not counted",
	Padding:  "padding of the data, not counted",
	Ignored:  "a real token whose label does not count",
}

// title is everything about a cell.
func (l *Line) title(k, position, i int) string {
	if l.State[i] == Inserted {
		return l.Term + " · " + stateTexts[Inserted]
	}
	parts := []string{l.Term, fmt.Sprintf("reads x[%d] = %s", position+k, named(l.InputText, l.InputIDs, i)),
		fmt.Sprintf("label y[%d] = %s", position+k, named(l.LabelText, l.Labels, i)), l.State[i].String(), fmt.Sprintf("loss mask %d", l.LossMask[i])}
	if l.State[i] == Filled {
		parts[1], parts[2] = fmt.Sprintf("there is no x[%d] in the document", position+k), "label 0"
	}
	if l.PaddingMask != nil {
		parts = append(parts, fmt.Sprintf("padding mask %d", l.PaddingMask[i]))
	}
	switch l.routerMark(i) {
	case "leak":
		parts = append(parts, "ROUTER COUNTS IT")
	case "lost":
		parts = append(parts, "ROUTER LEAVES IT OUT")
	}
	return strings.Join(append(parts, fmt.Sprintf("position id %d", l.PositionIDs[i])), " · ")
}

func named(text []string, ids []int32, i int) string {
	if text == nil {
		return fmt.Sprint(ids[i])
	}
	return fmt.Sprintf("%d %q", ids[i], text[i])
}

// place is where a column lies.
func (q *sequence) place(c column) string {
	i := c.from
	text := fmt.Sprintf("row %d position %s", q.row, dash(q.positions[i]))
	if c.gap() {
		text = fmt.Sprintf("row %d positions %d–%d", q.row, q.positions[i], q.positions[c.to-1])
	}
	if q.positions[i] >= 0 {
		text += fmt.Sprintf(" · document %d offset %d", q.document[i], q.offset[i])
	}
	slot := i
	if q.slot != nil {
		slot = q.slot[i]
	}
	text += fmt.Sprintf(" · cp %s", dash(q.cp[i]))
	if q.tp != nil {
		text += fmt.Sprintf(" tp %d", q.tp[i])
	}
	return text + fmt.Sprintf(" slot %s", dash(slot))
}
