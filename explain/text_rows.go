package explain

import (
	"fmt"
	"strconv"
	"strings"
)

// row prints a row position by position, or in runs if it is long.
func (p *printer) row(r *Report, row *Row) {
	p.line("")
	p.wrap(fmt.Sprintf("row %-6d ", row.Row), strings.Fields(documentsText(row)))
	if len(row.Document) > tableMax {
		p.summary(r, row)
		return
	}
	lines := tableOf(r, row)
	cell := 2
	for _, l := range lines {
		for _, c := range l.cells {
			cell = max(cell, width(c)+1)
		}
	}
	block := max(1, (widthMax-labelMax)/cell)
	for from := 0; from < len(row.Document); from += block {
		to := min(from+block, len(row.Document))
		if from > 0 {
			p.line("")
		}
		for _, l := range lines {
			p.line("%s", l.text(row, from, to, cell))
		}
	}
}

// documentsText says what a row consists of.
func documentsText(row *Row) string {
	n := len(row.Document)
	if len(row.Documents) == 1 && row.Documents[0].Place == n && row.Documents[0].Tokens == n {
		return plural(n, "position") + ", one document"
	}
	var parts []string
	for i, d := range row.Documents {
		text := fmt.Sprintf("%d: %s", i, spanText(d.Start, d.Start+max(d.Place, 1)))
		if d.Tokens < d.Place {
			text += fmt.Sprintf(" (%s)", plural(d.Tokens, "token"))
		}
		parts = append(parts, text)
	}
	if len(parts) > runsMax {
		parts = append(parts[:runsMax], fmt.Sprintf("… and %d more", len(row.Documents)-runsMax))
	}
	return fmt.Sprintf("%s, documents %s", plural(n, "position"), strings.Join(parts, ", "))
}

// tableLine is one quantity along a row.
type tableLine struct {
	label string
	cells []string
}

// text is the columns [from, to); '│' stands where a document begins.
func (l tableLine) text(row *Row, from, to, cell int) string {
	out := padRight(l.label, labelMax)
	for i := from; i < to; i++ {
		c := pad(l.cells[i], cell)
		if i > 0 && row.Document[i] != row.Document[i-1] {
			c = "│" + pad(l.cells[i], cell-1)
		}
		out += c
	}
	return out
}

func tableOf(r *Report, row *Row) []tableLine {
	n := len(row.Document)
	lines := []tableLine{{"  position", cellsOf(n, strconv.Itoa)}}
	if len(row.Documents) > 1 {
		lines = append(lines, tableLine{"  document", ints(row.Document)}, tableLine{"  offset", ints(row.Offset)})
	}
	if r.Layout.CP > 1 {
		lines = append(lines, tableLine{"  cp rank", ints(row.CPRank)})
	}
	if row.TPRank != nil {
		lines = append(lines, tableLine{"  tp rank", ints(row.TPRank)})
	}
	for k := range row.Terms {
		lines = append(lines, termLines(&row.Terms[k])...)
	}
	return lines
}

// termLines are the quantities of a term.
func termLines(t *Line) []tableLine {
	name := func(what string) string { return fmt.Sprintf("  %-6s %s", t.Term, what) }
	lines := []tableLine{{name("input"), ids(t.InputIDs)}}
	if t.InputText != nil {
		lines = append(lines, tableLine{"         text", cellsOf(len(t.InputText), t.input)})
	}
	lines = append(lines, tableLine{"         label", ids(t.Labels)})
	if t.LabelText != nil {
		lines = append(lines, tableLine{"         text", cellsOf(len(t.LabelText), t.label)})
	}
	lines = append(lines, tableLine{"         loss", ints(t.LossMask)})
	if t.PaddingMask != nil {
		lines = append(lines, tableLine{"         padding", marks(t.PaddingMask)})
	}
	return append(lines, tableLine{"         pos id", ids(t.PositionIDs)})
}

// input is the text of the token that position i reads: nothing where that is padding or filled in.
func (l *Line) input(i int) string { return l.text(l.InputText, i) }

// label is the same of its label.
func (l *Line) label(i int) string { return l.text(l.LabelText, i) }

func (l *Line) text(of []string, i int) string {
	if l.State[i] == Padding || l.State[i] == Filled || l.State[i] == Inserted {
		return ""
	}
	return of[i]
}

func cellsOf(n int, text func(i int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = text(i)
	}
	return out
}

func ints(x []int) []string {
	return cellsOf(len(x), func(i int) string {
		if x[i] < 0 {
			return "-"
		}
		return strconv.Itoa(x[i])
	})
}

func ids(x []int32) []string {
	return cellsOf(len(x), func(i int) string { return strconv.Itoa(int(x[i])) })
}

// marks draws a padding mask.
func marks(x []int) []string {
	return cellsOf(len(x), func(i int) string { return string(".#"[x[i]]) })
}

// summary prints a long row in runs.
func (p *printer) summary(r *Report, row *Row) {
	type owner struct{ cp, tp int }
	if r.Layout.CP > 1 || row.TPRank != nil {
		owners := make([]owner, len(row.CPRank))
		for i, cp := range row.CPRank {
			owners[i].cp = cp
			if row.TPRank != nil {
				owners[i].tp = row.TPRank[i]
			}
		}
		p.wrap(padRight("  owner", summaryMax), runWords(owners, func(o owner) string {
			switch {
			case row.TPRank == nil:
				return fmt.Sprintf("cp %d", o.cp)
			case r.Layout.CP == 1:
				return fmt.Sprintf("tp %d", o.tp)
			}
			return fmt.Sprintf("cp %d tp %d", o.cp, o.tp)
		}))
	}
	for _, t := range row.Terms {
		p.wrap(fmt.Sprintf("  %-6s input    ", t.Term), excerpt(t.InputIDs, t.InputText))
		p.wrap("         label    ", excerpt(t.Labels, t.LabelText))
		p.wrap("         loss     ", runWords(t.LossMask, func(v int) string { return [...]string{"not counted", "counted"}[v] }))
		if t.PaddingMask != nil {
			p.wrap("         padding  ", runWords(t.PaddingMask, func(v int) string { return [...]string{"valid", "padding"}[v] }))
		}
		p.wrap("         pos id   ", ascending(wide(t.PositionIDs)))
	}
}

// excerptMax bounds the beginning of a row's tokens.
const excerptMax = 72

// excerpt is the beginning of a row's tokens, as text if there is one.
func excerpt(ids []int32, text []string) []string {
	line, end := "", ""
	for i, id := range ids {
		next := strconv.Itoa(int(id)) + " "
		if text != nil {
			next = strings.ReplaceAll(text[i], "␣", " ")
		}
		if width(line+next) > excerptMax {
			end = "…"
			break
		}
		line += next
	}
	if text != nil {
		return []string{`"` + line + `"` + end}
	}
	return []string{line + end}
}

func wide(x []int32) []int {
	out := make([]int, len(x))
	for i, v := range x {
		out[i] = int(v)
	}
	return out
}

// ranks prints which positions every context-parallel rank holds, in the order of its slots.
func (p *printer) ranks(r *Report) {
	p.line("")
	p.line("ranks      positions in the order of slots; | stands between tp shards")
	for _, rank := range r.Ranks {
		for _, row := range rank.Rows {
			p.wrap(fmt.Sprintf("  cp %-3d row %-3d ", rank.CPRank, row.Row), rankWords(row))
		}
	}
}

func rankWords(row RankRow) []string {
	if row.TPRank == nil {
		return ascending(row.Positions)
	}
	var words []string
	for _, shard := range runsOf(row.TPRank) {
		if len(words) > 0 {
			words = append(words, "|")
		}
		words = append(words, ascending(row.Positions[shard.from:shard.to])...)
	}
	return words
}
