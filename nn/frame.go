package nn

import (
	"fmt"

	"phalanx/config/mutation"
)

// Shapes of this file: B rows of S whole positions; a rank holds L slots of every row, slot (b, i) at index b*L+i.
// A row is one document, or several packed behind each other. A document has a logical end, where its data ends, and
// a physical one, where its place ends.

// Doc is one document of a row.
type Doc struct {
	Start    int // first position in the row
	Logical  int // positions of data
	Physical int // positions of its place, Logical ≤ Physical
}

// Docs are the documents of every row: a nil row is one document of the whole row.
type Docs [][]Doc

// Row is row b's documents. A tail behind the last one is a document of its own, so that every position has one.
func (d Docs) Row(b, s int) []Doc {
	if d == nil || d[b] == nil {
		return []Doc{{0, s, s}}
	}
	docs := d[b]
	end := 0
	for _, x := range docs {
		end = x.Start + x.Physical
	}
	if end < s {
		docs = append(append([]Doc(nil), docs...), Doc{end, s - end, s - end})
	}
	return docs
}

// Run is a run of local slots that hold successive positions of one document.
type Run struct {
	From, To int // local slots [From, To)
	Doc      int // index in the row; inserted slots behind the last document have an index of their own
	Order    int // position in the document of slot From
}

// Frame is how the slots of one context-parallel rank lie. With one rank the slots are the positions themselves.
// With more, every document is padded to a multiple of 2·CP and cut in 2·CP chunks; rank r holds chunk r and chunk
// 2·CP−1−r (zigzag). Slots inserted by that padding hold nothing and count nowhere.
type Frame struct {
	B, S, L    int
	CP, CPRank int
	Src        []int32 // [B, L] position in the whole row; −1: inserted
	Pos        []int32 // [B, L] position in the document: the angle of RoPE; 0 behind the last document
	Runs       [][]Run // by row
	segs       [][]seg // by row
	mut        mutation.Set
}

// seg is a document's place on a rank.
type seg struct {
	at      int // first local slot
	chunk   int // slots of a chunk; the rank holds 2
	logical int
	start   int // position in the row
}

// NewFrames makes the frames of all ranks of a context-parallel group. L is the same on all and a multiple of align
// (the tensor-parallel size under sequence parallelism).
func NewFrames(docs Docs, b, s, cp, align int) []*Frame {
	return mutatedFrames(docs, b, s, cp, align, 0)
}

// mutatedFrames is NewFrames with planted bugs.
func mutatedFrames(docs Docs, b, s, cp, align int, mut mutation.Set) []*Frame {
	segs := make([][]seg, b)
	most := 0
	for row := range b {
		var n int
		segs[row], n = place(docs.Row(row, s), cp, mut)
		most = max(most, n)
	}
	if cp == 1 {
		most = s
	}
	for most%align != 0 || cp > 1 && most%2 != 0 {
		most++
	}
	frames := make([]*Frame, cp)
	for r := range cp {
		f := &Frame{B: b, S: s, L: most, CP: cp, CPRank: r, segs: segs, mut: mut}
		for row := range b {
			f.fill(row, docs.Row(row, s))
		}
		frames[r] = f
	}
	return frames
}

// place lays documents behind each other on a rank.
func place(docs []Doc, cp int, mut mutation.Set) (segs []seg, slots int) {
	for _, d := range docs {
		chunk := (d.Physical + 2*cp - 1) / (2 * cp)
		if mut.Has(mutation.DropOddToken) {
			chunk = d.Physical / (2 * cp)
		}
		if cp == 1 {
			segs = append(segs, seg{slots, d.Physical, d.Logical, d.Start})
			slots += d.Physical
			continue
		}
		segs = append(segs, seg{slots, chunk, d.Logical, d.Start})
		slots += 2 * chunk
	}
	return segs, slots
}

// fill writes one row's slots.
func (f *Frame) fill(row int, docs []Doc) {
	var runs []Run
	slots := 0
	for i, d := range docs {
		g := f.segs[row][i]
		for _, first := range f.chunks(g) {
			if g.chunk > 0 {
				runs = append(runs, Run{slots, slots + g.chunk, i, first})
			}
			for o := first; o < first+g.chunk; o++ {
				src := int32(-1)
				if o < d.Physical {
					src = int32(d.Start + o)
				}
				f.Src, f.Pos = append(f.Src, src), append(f.Pos, f.angle(row, d, g, first, o))
				slots++
			}
		}
	}
	if slots < f.L {
		runs = append(runs, Run{slots, f.L, len(docs), 0})
	}
	for ; slots < f.L; slots++ { // there may be more of them than a document has positions: they all take angle 0
		f.Src, f.Pos = append(f.Src, -1), append(f.Pos, 0)
	}
	f.Runs = append(f.Runs, joined(runs))
}

// angle is the position that RoPE sees: the place in the document.
func (f *Frame) angle(row int, d Doc, g seg, first, o int) int32 {
	switch {
	case f.mut.Has(mutation.PositionsNotReset):
		return int32(d.Start + o)
	case f.mut.Has(mutation.RopeDoc0Table):
		zero := f.segs[row][0]
		return int32(first/max(g.chunk, 1)*zero.chunk + o - first)
	}
	return int32(o)
}

// chunks are the first positions of the chunks of a document that this rank holds.
func (f *Frame) chunks(g seg) []int {
	if f.CP == 1 {
		return []int{0}
	}
	return []int{f.CPRank * g.chunk, (2*f.CP - 1 - f.CPRank) * g.chunk}
}

// joined merges neighbouring runs that go on where the one before ended.
func joined(runs []Run) []Run {
	var out []Run
	for _, r := range runs {
		if n := len(out) - 1; n >= 0 && out[n].Doc == r.Doc && out[n].To == r.From && out[n].Order+out[n].To-out[n].From == r.Order {
			out[n].To = r.To
			continue
		}
		out = append(out, r)
	}
	return out
}

// Whole reports whether the slots are the positions: one rank, nothing inserted.
func (f *Frame) Whole() bool { return f.CP == 1 && f.L == f.S }

// Inserted reports whether slot (b, i) was inserted.
func (f *Frame) Inserted(b, i int) bool { return f.Src[b*f.L+i] < 0 }

// Layout is the layout of a tensor of all slots of this rank.
func (f *Frame) Layout() Layout {
	if f.CP > 1 {
		return CPLocal
	}
	return Full
}

// TakeRows is the local part of a whole [B, S] tensor: [B, L], fill in inserted slots. x is not changed.
func TakeRows[V any](f *Frame, x []V, fill V) []V {
	if x == nil {
		return nil
	}
	checkLen("TakeRows", len(x), f.B, f.S)
	out := make([]V, f.B*f.L)
	for i, src := range f.Src {
		if src >= 0 {
			out[i] = x[i/f.L*f.S+int(src)]
		} else {
			out[i] = fill
		}
	}
	return out
}

// PutRows writes a local [B, L] tensor to its places in a whole [B, S] one; inserted slots are dropped.
func PutRows[V any](f *Frame, local, whole []V) {
	for i, src := range f.Src {
		if src >= 0 {
			whole[i/f.L*f.S+int(src)] = local[i]
		}
	}
}

// Edges are the first elements of this rank's chunks, by row and document: what the neighbours need for a roll.
type Edges[V any] struct{ Front, Back []V }

// EdgesOf gathers them from a local tensor of n elements a slot ([B, L, n]).
func EdgesOf[V any](f *Frame, x []V, n int) Edges[V] {
	var e Edges[V]
	f.eachSeg(func(b int, g seg) {
		at := (b*f.L + g.at) * n
		e.Front = append(e.Front, x[at:at+n]...)
		at += g.chunk * n
		e.Back = append(e.Back, x[at:at+n]...)
	})
	return e
}

// eachSeg visits every document with slots, in row and document order, the same on every rank.
func (f *Frame) eachSeg(do func(b int, g seg)) {
	for b, segs := range f.segs {
		for _, g := range segs {
			if g.chunk > 0 {
				do(b, g)
			}
		}
	}
}

// Roll is out[slot] = x[the next position of the document], and fill where that is at or beyond the document's
// logical end. x is [B, L, n] and is not changed. next.Front is what the neighbour behind the front
// chunk sent (rank r+1's front edges), next.Back what the one behind the back chunk sent (rank r−1's back edges).
func Roll[V any](f *Frame, x []V, n int, fill V, next Edges[V]) []V {
	if len(x) != f.B*f.L*n {
		panic(fmt.Sprintf("nn: Roll: %d elements are no [%d, %d, %d] tensor", len(x), f.B, f.L, n))
	}
	out := make([]V, len(x))
	for i := range out {
		out[i] = fill
	}
	i := 0
	f.eachSeg(func(b int, g seg) {
		for c, first := range f.chunks(g) {
			base := (b*f.L + g.at + c*g.chunk) * n
			last := base + (g.chunk-1)*n
			valid := min(g.chunk, g.logical-1-first) // slots whose next position is data
			if valid <= 0 {
				continue
			}
			inside := min(valid, g.chunk-1)
			copy(out[base:base+inside*n], x[base+n:base+(inside+1)*n])
			if valid < g.chunk {
				continue
			}
			switch {
			case c == 0 && f.CP > 1 && f.CPRank == f.CP-1: // chunk CP−1 is followed by chunk CP, both here
				copy(out[last:last+n], x[base+g.chunk*n:])
			case c == 0:
				copy(out[last:last+n], next.Front[i*n:(i+1)*n])
			default:
				copy(out[last:last+n], next.Back[i*n:(i+1)*n])
			}
		}
		i++
	})
	return out
}
