package data

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// plannedMax bounds the documents that a plan places: planning takes about a second per four million, and its rows
// take 4 bytes each, with best fit 4 more for each document. A run that uses more documents meets the first epoch's
// rows again after the last planned one's.
const plannedMax = 1 << 24

// planner says what to plan: rows of s positions. places are the physical lengths of the documents, none above s, and
// tokens their logical ones.
type planner struct {
	order          order
	s, limit       int
	window         int // best fit over so many documents at a time; 0: next fit
	places, tokens func(doc int) int
}

// plan is the samples of packed rows, epoch after epoch; an epoch that is asked for is planned. Each sample of an epoch
// is in one row, in sample order inside it, and no row holds documents of two epochs. The rows of an epoch depend on its
// order, hence on seed and epoch, alone. Without shuffling one epoch is all.
//
// Next fit: a row takes the next document as long as its place still fits, else the next row does.
//
// Best fit (decreasing): of each window of documents the longest comes first; it goes to the row of the window in which
// the least space is left over that still takes it, the first of several, or to a new row. The rows of a window come in
// the order of their first documents: so a window does not go from long documents to short ones.
type plan struct {
	planner
	mu     sync.Mutex
	starts []int32 // [rows+1] where each row starts in picks, and the end of the last one
	picks  []int32 // samples row after row; nil: they are where they are
	epochs int
	filling
}

// plan plans at least that many rows if the limit allows, and one epoch at least.
func (r planner) plan(rows int) *plan {
	p := &plan{planner: r, starts: []int32{0}}
	for p.more() && (p.epochs == 0 || p.rows < rows) {
		p.epoch()
	}
	return p
}

// more says whether another epoch may be planned.
func (p *plan) more() bool {
	return p.epochs == 0 || p.order.shuffle && (p.epochs+1)*p.order.n <= p.limit
}

// epoch plans the next epoch.
func (p *plan) epoch() {
	first := p.epochs * p.order.n
	end := first + p.order.n
	if p.window == 0 {
		p.nextFit(first, end)
	}
	for ; p.window > 0 && first < end; first += p.window {
		p.bestFit(first, min(first+p.window, end))
	}
	p.epochs++
	for i := end - p.order.n; i < end; i++ {
		p.filling.tokens += p.tokensOf(i)
	}
	p.rows = len(p.starts) - 1
	p.docs, p.positions = end, p.rows*p.s
}

// place and tokensOf are the lengths of a sample.
func (p *plan) place(sample int) int    { return p.places(p.order.at(sample)) }
func (p *plan) tokensOf(sample int) int { return p.planner.tokens(p.order.at(sample)) }

// nextFit puts the samples [from, to) into rows.
func (p *plan) nextFit(from, to int) {
	used := 0
	for i := from; i < to; i++ {
		place := p.place(i)
		if used+place > p.s {
			p.starts, used = append(p.starts, int32(i)), 0
		}
		used += place
	}
	p.starts = append(p.starts, int32(to))
}

// openRow is a row that is being filled.
type openRow struct {
	left    int
	samples []int32
}

// bestFit puts the samples [from, to) into rows.
func (p *plan) bestFit(from, to int) {
	places, longest := make([]int, to-from), make([]int, to-from)
	for i := range places {
		places[i], longest[i] = p.place(from+i), i
	}
	slices.SortStableFunc(longest, func(a, b int) int { return cmp.Compare(places[b], places[a]) })
	var rows []openRow
	for _, i := range longest {
		best := -1
		for k, row := range rows {
			if row.left >= places[i] && (best < 0 || row.left < rows[best].left) {
				best = k
			}
		}
		if best < 0 {
			rows, best = append(rows, openRow{left: p.s}), len(rows)
		}
		rows[best].left -= places[i]
		rows[best].samples = append(rows[best].samples, int32(from+i))
	}
	for _, row := range rows {
		slices.Sort(row.samples)
	}
	slices.SortFunc(rows, func(a, b openRow) int { return cmp.Compare(a.samples[0], b.samples[0]) })
	for _, row := range rows {
		p.picks = append(p.picks, row.samples...)
		p.starts = append(p.starts, int32(len(p.picks)))
	}
}

// row is the samples of row g of the run.
func (p *plan) row(g int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g >= p.rows && p.more() {
		p.epoch()
	}
	r := g % p.rows
	var out []int
	for i := p.starts[r]; i < p.starts[r+1]; i++ {
		if p.picks == nil {
			out = append(out, int(i))
		} else {
			out = append(out, int(p.picks[i]))
		}
	}
	return out
}

// String is the plan in a clause of a summary.
func (p *plan) String() string {
	by := "next fit"
	if p.window > 0 {
		by = fmt.Sprintf("best fit over %d documents", p.window)
	}
	return fmt.Sprintf("packed by %s: %s in %s, %s, %s", by, count(p.rows, "row"), count(p.epochs, "epoch"), p.perRow(), p.share())
}
