package moe

import (
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Shapes of this file: H features. What goes to a member, or comes from one, is a row per item, then a number per entry
// where entries have numbers: probabilities on the way there in the forward pass, their gradients on the way back in
// the backward pass. Rows that a rank keeps for itself are read where they are, and are in no message.

// traffic is the expert group as the exchanges of a layer see it.
type traffic struct {
	comm nn.Comm
	site nn.Site
}

func (t traffic) do(op *nn.Op) {
	op.Axis, op.Site = mesh.EP, t.site
	t.comm.Do(op)
}

// parcel is what goes to, or comes from, all other members: one piece of memory, and each member's part of it.
type parcel[N tensor.Number] struct {
	all  []N
	part [][]N // by member, in order; this rank's is empty
}

// newParcel is a parcel with parts of the given lengths, but for this rank's.
func newParcel[N tensor.Number](lengths []int, self int, alloc func(int) []N) parcel[N] {
	n := -lengths[self]
	for _, l := range lengths {
		n += l
	}
	p := parcel[N]{all: alloc(n), part: make([][]N, len(lengths))}
	at := 0
	for j, l := range lengths {
		if j != self {
			p.part[j] = p.all[at : at+l : at+l]
			at += l
		}
	}
	return p
}

// exchange sends out's parts and fills in's; a pair without elements still exchanges an empty message, so that what a
// rank waits for does not depend on the routing. A rank alone does nothing.
func exchange[N tensor.Number](t traffic, out, in parcel[N], tag nn.Tag) {
	if len(out.part) == 1 {
		return
	}
	self := t.comm.Rank(mesh.EP)
	op := &nn.Op{Kind: nn.Exchange, DType: tensor.DTypeOf[N](), Tag: tag, In: tensor.Bytes(out.all), Out: tensor.Bytes(in.all)}
	for j := range out.part {
		if j != self {
			op.To = append(op.To, nn.Part{Member: j, Bytes: len(tensor.Bytes(out.part[j]))})
			op.From = append(op.From, nn.Part{Member: j, Bytes: len(tensor.Bytes(in.part[j]))})
		}
	}
	t.do(op)
}

// lengths are the sizes of every member's part: rows of lists, and numbers of their entries if they have any.
func lengths(lists []list, h int, numbers bool) []int {
	n := make([]int, len(lists))
	for j, l := range lists {
		n[j] = len(l.counts) * h
		if numbers {
			n[j] += len(l.expert)
		}
	}
	return n
}

// arrived is what came for a rank's experts: its own rows and numbers where they are, those of others in a parcel.
type arrived[T tensor.Float] struct {
	pl     *plan
	own    tensor.Mat[T]
	number []T // of its own entries, by slot
	others parcel[T]
}

// send carries rows, and numbers of entries by slot unless nil, to the members that host their experts.
func send[T tensor.Float](c *nn.Ctx[T], pl *plan, x tensor.Mat[T], number []T) arrived[T] {
	out := newParcel(lengths(pl.out, x.Cols, number != nil), pl.self, c.Arena.Alloc)
	in := newParcel(lengths(pl.in, x.Cols, number != nil), pl.self, c.Arena.Alloc)
	for j, l := range pl.out {
		if j != pl.self {
			pack(out.part[j], l, x, number)
		}
	}
	exchange(traffic{c.Comm, c.Site}, out, in, nn.TagDispatch)
	return arrived[T]{pl, x, number, in}
}

// pack writes the items' rows, then the entries' numbers.
func pack[T tensor.Float](dst []T, l list, x tensor.Mat[T], number []T) {
	for _, row := range l.rows {
		dst = dst[copy(dst, x.Row(int(row))):]
	}
	if number == nil {
		return
	}
	for i, slot := range l.slot {
		dst[i] = number[slot]
	}
}

// row is the row of an entry.
func (a *arrived[T]) row(s spot) []T {
	if int(s.member) == a.pl.self {
		return a.own.Row(int(a.pl.out[s.member].rows[s.item]))
	}
	h := a.own.Cols
	return a.others.part[s.member][int(s.item)*h : int(s.item+1)*h]
}

// weight is the number of an entry.
func (a *arrived[T]) weight(s spot) T {
	if int(s.member) == a.pl.self {
		return a.number[a.pl.out[s.member].slot[s.entry]]
	}
	return a.others.part[s.member][len(a.pl.in[s.member].counts)*a.own.Cols+int(s.entry)]
}

// gather writes the rows of entries below each other.
func (a *arrived[T]) gather(dst tensor.Mat[T], entries []int32) {
	eachRow(len(entries), dst.Cols, func(i int) { copy(dst.Row(i), a.row(a.pl.from[entries[i]])) })
}

// rowsElements is the fewest elements that a thread moves or adds: less takes less time than a wake-up.
const rowsElements = 1 << 15

// eachRow calls f for n rows of h features, on idle threads too: calls must not meet.
func eachRow(n, h int, f func(i int)) {
	kernel.Parallel(n, 1+rowsElements/max(h, 1), func(from, to int) {
		for i := from; i < to; i++ {
			f(i)
		}
	})
}

// results are what a rank has for the sources of its entries: a row per item, the sum over its entries, and a number
// per entry if there are any. A rank alone writes them where they belong; else its own are a part like others, so that
// parts are added in the order of members wherever a row lives.
type results[T tensor.Float] struct {
	pl     *plan
	into   tensor.Mat[T] // rows of this rank
	number []T           // by slot of this rank; nil: none
	others parcel[T]
	own    []T // this rank's part; unused if it is alone
}

// newResults are results of zero for into and number, which are overwritten.
func newResults[T tensor.Float](c *nn.Ctx[T], pl *plan, into tensor.Mat[T], number []T) *results[T] {
	clear(into.Data)
	clear(number)
	r := &results[T]{pl: pl, into: into, number: number}
	if !r.alone() {
		n := lengths(pl.in, into.Cols, number != nil)
		r.others, r.own = newParcel(n, pl.self, c.Arena.Alloc), c.Arena.Zeros(n[pl.self])
		clear(r.others.all)
	}
	return r
}

// alone says that there is no other member.
func (r *results[T]) alone() bool { return len(r.pl.in) == 1 }

// part is what goes to a member.
func (r *results[T]) part(member int32) []T {
	if int(member) == r.pl.self {
		return r.own
	}
	return r.others.part[member]
}

// row is where an entry's row is added.
func (r *results[T]) row(s spot) []T {
	if r.alone() {
		return r.into.Row(int(r.pl.out[0].rows[s.item]))
	}
	h := r.into.Cols
	return r.part(s.member)[int(s.item)*h : int(s.item+1)*h]
}

// set is an entry's number.
func (r *results[T]) set(s spot, v T) {
	if r.alone() {
		r.number[r.pl.out[0].slot[s.entry]] = v
		return
	}
	r.part(s.member)[len(r.pl.in[s.member].counts)*r.into.Cols+int(s.entry)] = v
}

// giveBack carries results to where their rows came from, and adds them there.
func (r *results[T]) giveBack(c *nn.Ctx[T]) {
	if r.alone() {
		return
	}
	h := r.into.Cols
	in := newParcel(lengths(r.pl.out, h, r.number != nil), r.pl.self, c.Arena.Alloc)
	exchange(traffic{c.Comm, c.Site}, r.others, in, nn.TagCombine)
	in.part[r.pl.self] = r.own
	for j, l := range r.pl.out {
		part := in.part[j]
		for i, row := range l.rows {
			kernel.AddInto(r.into.Row(int(row)), part[i*h:(i+1)*h])
		}
		if r.number == nil {
			continue
		}
		for i, slot := range l.slot {
			r.number[slot] += part[len(l.rows)*h+i]
		}
	}
}
