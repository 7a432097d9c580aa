package explain

import (
	"fmt"
	"strings"
)

// Limits of a page.
const (
	gridMax    = 64  // columns of a grid that is drawn whole; longer ones lose the middle of their runs
	context    = 4   // columns that stay on each side of a change
	columnsMax = 256 // columns of a grid at most: a mask that changes everywhere is in --json
)

// sequence is what a grid draws: a whole row by position, or one rank's by slot.
type sequence struct {
	row       int
	positions []int // in the whole row; −1: inserted
	document  []int
	offset    []int
	cp        []int // by column
	tp        []int // nil: every tensor-parallel rank holds it
	slot      []int // nil: the column itself
	chunk     []int // nil: of a whole row
	terms     []Line
}

// grid is a table: header bands, then one line of cells per term.
type grid struct {
	Bands []band
	Lines []gridLine
	Cut   int // columns left out at the end
}

// band is a header line whose cells span columns.
type band struct {
	Label string
	Cells []bandCell
}

type bandCell struct {
	Span  int
	Text  string
	Class string
	Title string
}

type gridLine struct {
	Label, Sub string
	Cells      []cell
}

// cell is one position of one term.
type cell struct {
	Class, Title string
	In, Out      string
	Source       string // position whose token it reads: cells with the same one light up together
}

// column is one position, or the middle of a run in which nothing changes.
type column struct{ from, to int }

func (c column) gap() bool { return c.to-c.from > 1 }

// signature is everything about a column that a gap must not hide.
func (q *sequence) signature(i int) string {
	var b strings.Builder
	fmt.Fprint(&b, q.document[i], q.cp[i], q.positions[i] < 0)
	if q.tp != nil {
		fmt.Fprint(&b, " t", q.tp[i])
	}
	if q.chunk != nil {
		fmt.Fprint(&b, " c", q.chunk[i])
	}
	for _, t := range q.terms {
		fmt.Fprint(&b, " ", t.State[i], t.routerMark(i))
	}
	return b.String()
}

// routerMark is "leak" where a router counts what it should not, "lost" where it skips a real token.
func (l *Line) routerMark(i int) string {
	switch {
	case has(l.RouterLeaks, i):
		return "leak"
	case has(l.RouterSkips, i):
		return "lost"
	}
	return ""
}

// has reports whether an ascending list has a number.
func has(list []int, n int) bool {
	low, high := 0, len(list)
	for low < high {
		if mid := (low + high) / 2; list[mid] < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(list) && list[low] == n
}

// columns chooses what is drawn.
func (q *sequence) columns() (out []column, cut int) {
	n := len(q.positions)
	signs := cellsOf(n, q.signature)
	for _, r := range runsOf(signs) {
		if n <= gridMax || r.to-r.from <= 2*context+1 {
			for i := r.from; i < r.to; i++ {
				out = append(out, column{i, i + 1})
			}
			continue
		}
		for i := r.from; i < r.from+context; i++ {
			out = append(out, column{i, i + 1})
		}
		out = append(out, column{r.from + context, r.to - context})
		for i := r.to - context; i < r.to; i++ {
			out = append(out, column{i, i + 1})
		}
	}
	if len(out) > columnsMax {
		cut = n - out[columnsMax].from
		out = out[:columnsMax]
	}
	return out, cut
}

// drawn is the grid of a sequence.
func (q *sequence) drawn() grid {
	cols, cut := q.columns()
	g := grid{Cut: cut}
	g.Bands = q.bands(cols)
	for k, t := range q.terms {
		line := gridLine{Label: "LM", Sub: "x[i] → y[i]"}
		if k > 0 {
			line.Label, line.Sub = fmt.Sprintf("depth %d", k), fmt.Sprintf("x[i+%d] → y[i+%d]", k, k)
		}
		for _, c := range cols {
			line.Cells = append(line.Cells, q.cell(k, &t, c))
		}
		g.Lines = append(g.Lines, line)
	}
	return g
}

// bands are the lines above the cells.
func (q *sequence) bands(cols []column) []band {
	var out []band
	documents := runsOf(q.document)
	if len(documents) > 1 {
		out = append(out, q.band("document", cols, func(i int) (string, string) {
			if q.document[i] < 0 {
				return "", "none"
			}
			return fmt.Sprint(q.document[i]), fmt.Sprintf("doc%d", q.document[i]%2)
		}))
	}
	if q.chunk != nil {
		out = append(out, q.band("chunk", cols, func(i int) (string, string) {
			if q.chunk[i] < 0 {
				return "", "none"
			}
			return fmt.Sprint(q.chunk[i]), fmt.Sprintf("cp%d", q.cp[i]%8)
		}))
	} else if len(runsOf(q.cp)) > 1 {
		out = append(out, q.band("cp rank", cols, func(i int) (string, string) { return dash(q.cp[i]), fmt.Sprintf("cp%d", q.cp[i]%8) }))
	}
	if q.tp != nil {
		out = append(out, q.band("tp shard", cols, func(i int) (string, string) { return fmt.Sprint(q.tp[i]), fmt.Sprintf("tp%d", q.tp[i]%2) }))
	}
	numbers := band{Label: "position"}
	for _, c := range cols {
		text := dash(q.positions[c.from])
		if c.gap() {
			text = fmt.Sprintf("%d more", c.to-c.from)
		}
		numbers.Cells = append(numbers.Cells, bandCell{Span: 1, Text: text, Class: "number" + q.border(c.from), Title: q.place(c)})
	}
	return append(out, numbers)
}

func dash(n int) string {
	if n < 0 {
		return "–"
	}
	return fmt.Sprint(n)
}

// band joins neighbouring columns of one value; chunks of two documents stay apart.
func (q *sequence) band(label string, cols []column, of func(i int) (text, class string)) band {
	type value struct {
		text, class string
		document    int
	}
	values := make([]value, len(cols))
	for j, c := range cols {
		values[j].text, values[j].class = of(c.from)
		values[j].document = q.document[c.from]
	}
	b := band{Label: label}
	for _, r := range runsOf(values) {
		b.Cells = append(b.Cells, bandCell{Span: r.to - r.from, Text: r.v.text, Class: r.v.class})
	}
	return b
}
