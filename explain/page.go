package explain

import (
	"bytes"
	_ "embed" // the template, the style and the script of the page
	"fmt"
	"html/template"
	"slices"
	"strings"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// openMax is the number of rows that a page shows at once; the others open on a click.
const openMax = 8

// page is what the template draws.
type page struct {
	Title string
	CSS   template.CSS
	JS    template.JS
	Runs  []runPage
}

// runPage is one report.
type runPage struct {
	*Report
	ID     string // anchor
	Facts  []fact
	Rule   string
	Cards  []card
	Splits []split
	Legend []legend
	Reads  []reading
	Rolls  rollPicture
	Rows   []rowPage
	Text   bool // tokens are text
}

type fact struct{ Name, Value string }

// card is the figures of a term.
type card struct {
	Name, Title string
	Tokens      int64
	Share       float64 // percent of the microbatch's positions
	Facts       []fact
	Empty       bool
	Warn        bool
}

// split is a table of counts: by microbatch, or by rank.
type split struct {
	Title   string
	Columns []string
	Here    int // column of this microbatch; −1: none
	Rows    []splitRow
	More    int // columns left out
}

type splitRow struct {
	Name  string
	Cells []int64
}

type legend struct{ Class, Text string }

// rowPage is one row of the microbatch.
type rowPage struct {
	Row      int
	Sub      string
	Open     bool
	Short    bool // its ranks are shown at once
	Overview []strip
	Length   int
	Grid     grid
	Ranks    []rankPage
}

type rankPage struct {
	Title    string
	Sub      string
	Class    string
	Overview []strip
	Length   int
	Grid     grid
}

// HTML is one page of all reports: no external resource, no script needed.
func HTML(reports []*Report) ([]byte, error) {
	p := page{Title: "phalanx explain", CSS: template.CSS(pageCSS), JS: template.JS(pageJS)}
	for i, r := range reports {
		p.Runs = append(p.Runs, runOf(r, i))
	}
	if len(reports) == 1 {
		p.Title = reports[0].Name + " · phalanx explain"
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func runOf(r *Report, i int) runPage {
	p := runPage{Report: r, ID: fmt.Sprintf("run%d", i), Rule: ruleText(r), Facts: factsOf(r), Legend: legendOf(r), Reads: readings(r),
		Rolls: rollsOf(len(r.Terms) - 1), Text: len(r.Rows) > 0 && r.Rows[0].Terms[0].InputText != nil}
	for i := range r.Terms {
		p.Cards = append(p.Cards, cardOf(r, &r.Terms[i]))
	}
	p.Splits = splitsOf(r)
	for i := range r.Rows {
		p.Rows = append(p.Rows, rowOf(r, i))
	}
	return p
}

// factsOf is the line below the title.
func factsOf(r *Report) []fact {
	facts := []fact{{"step", fmt.Sprintf("%d of %d", r.Step, r.Steps)}, {"microbatch", microbatchText(r)}, {"layout", layoutText(r)},
		{"masks", masksText(r)}, {"data", r.Data}}
	if len(r.Mutate) > 0 {
		facts = append(facts, fact{"planted bugs", strings.Join(r.Mutate, ", ")})
	}
	return facts
}

// cardOf is a term's figures.
func cardOf(r *Report, t *Term) card {
	c := card{Name: t.Name, Title: "LM head", Tokens: t.Tokens, Empty: t.Tokens == 0,
		Warn: t.RouterLeaks > 0 && t.Router || t.RouterSkips > 0 && t.Router || r.states(t.Depth, Leaked) > 0 || r.states(t.Depth, Wrong) > 0}
	if t.Depth > 0 {
		c.Title = fmt.Sprintf("MTP depth %d", t.Depth)
	}
	if n := r.Batch.Rows * r.Batch.Positions; n > 0 {
		c.Share = float64(t.Tokens*1000/int64(n)) / 10
	}
	c.Facts = []fact{{"in the step", fmt.Sprint(t.StepTokens)}, {"divided by", divisorText(*t)}}
	if t.Depth > 0 {
		c.Facts = append(c.Facts, fact{"times factor", factorText(r, *t)})
	}
	c.Facts = append(c.Facts, fact{"a token weighs", weightText(*t)})
	if t.DataTokens != t.Tokens {
		c.Facts = append(c.Facts, fact{"the data's mask counts", fmt.Sprint(t.DataTokens)})
	}
	c.Facts = append(c.Facts, fact{"routers count", routerText(*t)})
	return c
}

// splitColumnsMax bounds a table of counts.
const splitColumnsMax = 32

// splitsOf are the tables of counts that have more than one column.
func splitsOf(r *Report) []split {
	byMB := split{Title: "counted tokens by microbatch of the step", Here: r.Microbatch}
	byDP := split{Title: "by data-parallel rank", Here: r.DPRank}
	byCP := split{Title: "in this microbatch by context-parallel rank", Here: -1}
	for j := range r.Microbatches {
		byMB.Columns = append(byMB.Columns, fmt.Sprint(j))
	}
	for j := range r.Layout.DP {
		byDP.Columns = append(byDP.Columns, fmt.Sprintf("dp %d", j))
	}
	for j := range r.Layout.CP {
		byCP.Columns = append(byCP.Columns, fmt.Sprintf("cp %d", j))
	}
	for _, t := range r.Terms {
		byMB.Rows = append(byMB.Rows, splitRow{t.Name, slices.Clone(t.TokensByMicrobatch)})
		byDP.Rows = append(byDP.Rows, splitRow{t.Name, slices.Clone(t.TokensByDPRank)})
		byCP.Rows = append(byCP.Rows, splitRow{t.Name, t.tokensByCPRank()})
	}
	var out []split
	for _, s := range []split{byMB, byDP, byCP} {
		if len(s.Columns) > 1 {
			out = append(out, s.bounded())
		}
	}
	return out
}

func (s split) bounded() split {
	if n := len(s.Columns); n > splitColumnsMax {
		s.More, s.Columns = n-splitColumnsMax, s.Columns[:splitColumnsMax]
		for i := range s.Rows {
			s.Rows[i].Cells = s.Rows[i].Cells[:splitColumnsMax]
		}
	}
	return s
}

// legendOf are the states that occur.
func legendOf(r *Report) []legend {
	var out []legend
	for _, s := range []State{Counted, Ignored, Padding, Filled, Inserted, Leaked, Wrong} {
		if r.occurs(s) {
			out = append(out, legend{s.String(), stateTexts[s]})
		}
	}
	leak, lost := false, false
	for _, t := range r.Terms {
		leak, lost = leak || t.Router && t.RouterLeaks > 0, lost || t.Router && t.RouterSkips > 0
	}
	if leak {
		out = append(out, legend{"padding leak", "red line above: a router counts this position, though it is padding or filled in"})
	}
	if lost {
		out = append(out, legend{"counted lost", "red line below: a router leaves this real token out"})
	}
	return out
}

// occurs reports whether a state is anywhere, on whole rows or on ranks.
func (r *Report) occurs(s State) bool {
	for k := range r.Terms {
		if r.states(k, s) > 0 {
			return true
		}
	}
	return s == Inserted && slices.ContainsFunc(r.Ranks, func(rank Rank) bool { return rank.Inserted > 0 })
}

// rowOf is a row and what every context-parallel rank holds of it.
func rowOf(r *Report, i int) rowPage {
	row := &r.Rows[i]
	q := &sequence{row: row.Row, positions: make([]int, len(row.Document)), document: row.Document, offset: row.Offset, cp: row.CPRank,
		tp: row.TPRank, slot: row.Slot, terms: row.Terms}
	for at := range q.positions {
		q.positions[at] = at
	}
	p := rowPage{Row: row.Row, Sub: documentsText(row), Open: i < openMax, Short: len(row.Document) <= gridMax, Grid: q.drawn(), Length: len(q.positions), Overview: q.overview()}
	if r.Layout.CP == 1 && r.Batch.SlotsPerRank == r.Batch.Positions {
		return p
	}
	for _, rank := range r.Ranks {
		p.Ranks = append(p.Ranks, rankOf(r, &rank, i))
	}
	return p
}

func rankOf(r *Report, rank *Rank, i int) rankPage {
	row := &rank.Rows[i]
	q := &sequence{row: row.Row, positions: row.Positions, document: row.Document, offset: row.Offset, cp: slices.Repeat([]int{rank.CPRank}, len(row.Positions)),
		tp: row.TPRank, chunk: row.Chunk, terms: row.Terms}
	return rankPage{Title: fmt.Sprintf("cp rank %d", rank.CPRank), Class: fmt.Sprintf("cp%d", rank.CPRank%8), Length: len(q.positions),
		Sub: strings.Join(append([]string{"positions"}, ascending(row.Positions)...), " "), Grid: q.drawn(), Overview: q.overview()}
}
