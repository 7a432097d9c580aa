package moe

import (
	"fmt"

	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// Shapes of this file: G members of the expert group (ETP·EP ranks, expert tensor place fastest), H features.
//
// Every dispatcher is one mechanism: each member sends each other member a list of items, an item being a row and the
// entries (expert, probability) for which it goes there; it gets one row back per item, the sum over its entries. The
// kinds differ in how items are made, and so in bytes; what is computed is the same.

// Dispatcher is moe_token_dispatcher_type.
type Dispatcher uint8

// The dispatchers.
const (
	AllToAll  Dispatcher = iota // one item per chosen expert
	AllGather                   // every row goes to every member
	Flex                        // a row goes to a member once, whatever the number of its experts there
)

// ParseDispatcher reads moe_token_dispatcher_type.
func ParseDispatcher(s string) (Dispatcher, error) {
	for d, name := range [...]string{"alltoall", "allgather", "flex"} {
		if s == name {
			return Dispatcher(d), nil
		}
	}
	if s == "" {
		return AllToAll, nil
	}
	return 0, fmt.Errorf("moe: no dispatcher %q", s)
}

// Place is which experts a rank hosts.
type Place struct {
	Experts int // of the layer
	EP, ETP int
}

// hosts reports whether member j of the expert group hosts expert e.
func (p Place) hosts(j int, e int32) bool { return j/p.ETP == int(e)/(p.Experts/p.EP) }

// local is the number of experts of a member.
func (p Place) local() int { return p.Experts / p.EP }

// list is what goes from one rank to one member: items as rows, and their entries.
type list struct {
	rows   []int32 // of the source
	counts []int32 // entries of each item
	expert []int32 // of each entry, of the layer
	slot   []int32 // of each entry: index into the source's [N, K]
}

// newList is an empty list with room for n items of one entry each.
func newList(n int) list {
	room := func() []int32 { return make([]int32, 0, n) }
	return list{rows: room(), counts: room(), expert: room(), slot: room()}
}

func (l *list) item(row, n int) {
	l.rows, l.counts = append(l.rows, int32(row)), append(l.counts, int32(n))
}

func (l *list) entry(expert, slot int32) {
	l.expert, l.slot = append(l.expert, expert), append(l.slot, slot)
}

// plan is the traffic of one forward, kept for the backward pass.
type plan struct {
	self int    // this rank's place in the expert group
	out  []list // by member: what this rank sends
	in   []list // by member: what this rank got; rows are the source's business
	by   order  // entries sorted by local expert, then source, then item
	from []spot // of each entry, in arrival order
}

// spot is where an entry's row lies among what came, and its number behind the rows.
type spot struct{ member, item, entry int32 }

// order lists entries by expert.
type order struct {
	entry []int32 // index of the entry
	start []int   // expert e owns sorted entries [start[e], start[e+1])
}

// of is expert e's entries.
func (o order) of(e int) []int32 { return o.entry[o.start[e]:o.start[e+1]] }

// most is the number of entries of the fullest expert.
func (o order) most() int {
	n := 0
	for e := range len(o.start) - 1 {
		n = max(n, o.start[e+1]-o.start[e])
	}
	return n
}

// sortByExpert sorts entries, and leaves out those with a negative expert.
func sortByExpert(expert []int32, experts int) order {
	o := order{start: make([]int, experts+1)}
	for _, e := range expert {
		if e >= 0 {
			o.start[e+1]++
		}
	}
	for e := range experts {
		o.start[e+1] += o.start[e]
	}
	o.entry = make([]int32, o.start[experts])
	next := append([]int(nil), o.start[:experts]...)
	for i, e := range expert {
		if e >= 0 {
			o.entry[next[e]] = int32(i)
			next[e]++
		}
	}
	return o
}

// newLists makes the list for every member of a group of g: by expert, or by row.
func newLists[T tensor.Float](d Dispatcher, p Place, g int, r Routing[T], skip func(row int) bool) []list {
	out := make([]list, g)
	if d != AllToAll {
		for j := range out {
			out[j] = itemsByRow(d, p, j, r, skip)
		}
		return out
	}
	wanted := append([]int32(nil), r.Expert...)
	for row := range len(wanted) / r.K {
		if skip(row) {
			for j := range r.K {
				wanted[row*r.K+j] = -1
			}
		}
	}
	by := sortByExpert(wanted, p.Experts)
	for j := range out {
		first := j / p.ETP * p.local()
		out[j] = newList(by.start[first+p.local()] - by.start[first])
		for e := first; e < first+p.local(); e++ {
			for _, slot := range by.of(e) {
				out[j].item(int(slot)/r.K, 1)
				out[j].entry(int32(e), slot)
			}
		}
	}
	return out
}

// itemsByRow makes the list for one member: an item for every row that goes there.
func itemsByRow[T tensor.Float](d Dispatcher, p Place, member int, r Routing[T], skip func(row int) bool) list {
	var l list
	for row := range len(r.Expert) / r.K {
		if skip(row) {
			continue
		}
		n := len(l.expert)
		for j, x := range r.Expert[row*r.K : (row+1)*r.K] {
			if x >= 0 && p.hosts(member, x) {
				l.entry(x, int32(row*r.K+j))
			}
		}
		if n = len(l.expert) - n; n > 0 || d == AllGather {
			l.item(row, n)
		}
	}
	return l
}

// newPlan makes this rank's lists and learns those of the others.
func newPlan[T tensor.Float](c *nn.Ctx[T], d Dispatcher, p Place, r Routing[T], skip func(row int) bool) *plan {
	g := c.Comm.Size(mesh.EP)
	pl := &plan{self: c.Comm.Rank(mesh.EP), out: newLists(d, p, g, r, skip), in: make([]list, g)}
	pl.learn(traffic{c.Comm, c.Site})
	first, n := int32(pl.self/p.ETP*p.local()), 0
	for _, l := range pl.in {
		n += len(l.expert)
	}
	pl.from = make([]spot, 0, n)
	experts := make([]int32, 0, n)
	for j, l := range pl.in {
		entry := int32(0)
		for item, n := range l.counts {
			for range n {
				pl.from = append(pl.from, spot{int32(j), int32(item), entry})
				experts = append(experts, l.expert[entry]-first)
				entry++
			}
		}
	}
	pl.by = sortByExpert(experts, p.local())
	return pl
}

// showRows shows how many of this rank's rows each expert computes: valid ones, padding, and those that fill it up.
func showRows[T tensor.Float](c *nn.Ctx[T], p Place, pl *plan) {
	if !c.Wants("experts.rows") {
		return
	}
	n := make([]int32, p.Experts)
	for j := 0; j < len(pl.out); j += p.ETP { // members with another part of the same experts get the same rows
		for _, e := range pl.out[j].expert {
			n[e]++
		}
	}
	c.ObserveCounts("experts.rows", nn.Float64s(n), c.RowsLayout())
}

// learn tells every member how many items and entries it gets, and which; and is told.
func (pl *plan) learn(t traffic) {
	g := len(pl.out)
	if g == 1 {
		pl.in[0] = pl.out[0]
		return
	}
	sizes, lengths := make([]int32, 0, 2*g), make([]int, g)
	for j, l := range pl.out {
		sizes, lengths[j] = append(sizes, int32(len(l.rows)), int32(len(l.expert))), len(l.counts)+len(l.expert)
	}
	all := make([]int32, 2*g*g)
	t.do(&nn.Op{Kind: nn.AllGather, DType: tensor.I32, Tag: nn.TagDispatchCounts, In: tensor.Bytes(sizes), Out: tensor.Bytes(all)})
	ints := func(n int) []int32 { return make([]int32, n) }
	send := newParcel(lengths, pl.self, ints)
	for j, l := range pl.out {
		lengths[j] = int(all[2*(j*g+pl.self)] + all[2*(j*g+pl.self)+1])
		if j != pl.self {
			copy(send.part[j][copy(send.part[j], l.counts):], l.expert)
		}
	}
	recv := newParcel(lengths, pl.self, ints)
	exchange(t, send, recv, nn.TagDispatchCounts)
	for j := range g {
		if items := all[2*(j*g+pl.self)]; j != pl.self {
			pl.in[j].counts, pl.in[j].expert = recv.part[j][:items], recv.part[j][items:]
		}
	}
	pl.in[pl.self] = pl.out[pl.self]
}
