package explain

import (
	"slices"

	"phalanx/nn"
)

// row is row b of the whole microbatch.
func (x *subject) row(b int, whole []view, ranks []local) Row {
	s := x.mb.S
	r := Row{Row: b, Document: make([]int, s), Offset: make([]int, s), CPRank: slices.Repeat([]int{-1}, s),
		Slot: slices.Repeat([]int{-1}, s)}
	if x.tp > 1 {
		r.TPRank = make([]int, s)
	}
	for i, d := range x.mb.Docs.Row(b, s) {
		r.Documents = append(r.Documents, Document{Start: d.Start, Tokens: d.Logical, Place: d.Physical})
		for o := range d.Physical {
			r.Document[d.Start+o] = i
		}
	}
	for _, rank := range ranks {
		f := rank.frame
		for slot := range f.L {
			src := f.Src[b*f.L+slot]
			if src < 0 {
				continue
			}
			r.CPRank[src], r.Slot[src], r.Offset[src] = f.CPRank, slot, int(f.Pos[b*f.L+slot])
			if rank.tpOf != nil {
				r.TPRank[src] = rank.tpOf[slot]
			}
		}
	}
	for k, v := range whole {
		r.Terms = append(r.Terms, x.line(k, v, b, s))
	}
	return r
}

// line is one row of a view of n columns.
func (x *subject) line(k int, v view, b, n int) Line {
	from, to := b*n, (b+1)*n
	l := Line{Term: termName(k), InputIDs: v.ids[from:to], Labels: v.labels[from:to], PositionIDs: v.positions[from:to],
		LossMask: zeroOne(v.loss[from:to]), State: v.state[from:to]}
	if v.pad != nil {
		l.PaddingMask = zeroOne(v.pad[from:to])
	}
	if tok := x.d.Tokenizer; tok != nil {
		l.InputText, l.LabelText = visible(tok, l.InputIDs), visible(tok, l.Labels)
	}
	for i, r := range v.routed[from:to] {
		switch {
		case r == leaks && x.hasRouter(k):
			l.RouterLeaks = append(l.RouterLeaks, i)
		case r == misses && x.hasRouter(k):
			l.RouterSkips = append(l.RouterSkips, i)
		}
	}
	return l
}

// rank is one context-parallel rank.
func (x *subject) rank(l local) Rank {
	r := Rank{CPRank: l.frame.CPRank}
	for b := range l.frame.B {
		row := x.rankRow(l, b)
		r.Inserted += row.Inserted
		r.Rows = append(r.Rows, row)
	}
	return r
}

func (x *subject) rankRow(l local, b int) RankRow {
	f := l.frame
	r := RankRow{Row: b, Document: make([]int, f.L), Chunk: make([]int, f.L), TPRank: l.tpOf}
	for slot := range f.L {
		at := b*f.L + slot
		r.Positions, r.Offset = append(r.Positions, int(f.Src[at])), append(r.Offset, int(f.Pos[at]))
		if f.Src[at] < 0 {
			r.Inserted++
		}
	}
	r.place(f, b, len(x.mb.Docs.Row(b, x.mb.S)))
	for k, v := range l.views {
		r.Terms = append(r.Terms, x.line(k, v, b, f.L))
	}
	return r
}

// place says which document and chunk every slot belongs to. Of a document's slots on a rank the first half is the
// front chunk, number r, the other the back chunk, number 2·CP−1−r.
func (r *RankRow) place(f *nn.Frame, b, docs int) {
	held := make([]int, docs+1) // slots by document
	for _, run := range f.Runs[b] {
		held[run.Doc] += run.To - run.From
	}
	seen := make([]int, docs+1)
	for _, run := range f.Runs[b] {
		for slot := run.From; slot < run.To; slot++ {
			r.Document[slot], r.Chunk[slot] = run.Doc, f.CPRank
			switch {
			case run.Doc == docs:
				r.Document[slot], r.Chunk[slot] = -1, -1
			case f.CP == 1:
				r.Chunk[slot] = 0
			case 2*seen[run.Doc] >= held[run.Doc]:
				r.Chunk[slot] = 2*f.CP - 1 - f.CPRank
			}
			seen[run.Doc]++
		}
	}
}

func zeroOne(x []bool) []int {
	out := make([]int, len(x))
	for i, v := range x {
		if v {
			out[i] = 1
		}
	}
	return out
}
