package moe

import (
	"fmt"

	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
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

func (l *list) item(row int, n int) {
	l.rows, l.counts = append(l.rows, int32(row)), append(l.counts, int32(n))
}

func (l *list) entry(expert int32, slot int) {
	l.expert, l.slot = append(l.expert, expert), append(l.slot, int32(slot))
}

// plan is the traffic of one forward, kept for the backward pass.
type plan struct {
	out []list  // by member: what this rank sends
	in  []list  // by member: what this rank got; rows count the items of a source
	at  []int   // first row of each source among the received rows
	n   int     // received rows
	by  order   // entries sorted by local expert, then source, then item
	row []int32 // received row of each entry, in arrival order
}

// order lists entries by local expert.
type order struct {
	entry []int32 // arrival index
	start []int   // expert e owns sorted entries [start[e], start[e+1])
}

func sortByExpert(expert []int32, experts int) order {
	o := order{entry: make([]int32, len(expert)), start: make([]int, experts+1)}
	for _, e := range expert {
		o.start[e+1]++
	}
	for e := range experts {
		o.start[e+1] += o.start[e]
	}
	next := append([]int(nil), o.start[:experts]...)
	for i, e := range expert {
		o.entry[next[e]] = int32(i)
		next[e]++
	}
	return o
}

// itemsFor makes the list for one member.
func itemsFor[T tensor.Float](d Dispatcher, p Place, member int, r Routing[T], skip func(row int) bool) list {
	var l list
	if d == AllToAll {
		byExpert := p.local()
		first := member / p.ETP * byExpert
		for e := first; e < first+byExpert; e++ {
			for i, x := range r.Expert {
				if x == int32(e) && !skip(i/r.K) {
					l.item(i/r.K, 1)
					l.entry(x, i)
				}
			}
		}
		return l
	}
	for row := range len(r.Expert) / r.K {
		if skip(row) {
			continue
		}
		n := len(l.expert)
		for j, x := range r.Expert[row*r.K : (row+1)*r.K] {
			if x >= 0 && p.hosts(member, x) {
				l.entry(x, row*r.K+j)
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
	g, self := c.Comm.Size(mesh.EP), c.Comm.Rank(mesh.EP)
	pl := &plan{out: make([]list, g), in: make([]list, g), at: make([]int, g)}
	for j := range g {
		pl.out[j] = itemsFor(d, p, j, r, skip)
	}
	pl.learn(traffic{c.Comm, c.Site}, self)
	var experts []int32
	for j := range g {
		pl.at[j] = pl.n
		for i, n := range pl.in[j].counts {
			for range n {
				pl.row = append(pl.row, int32(pl.n+i))
			}
		}
		for _, e := range pl.in[j].expert {
			experts = append(experts, e-int32(self/p.ETP*p.local()))
		}
		pl.n += len(pl.in[j].counts)
	}
	pl.by = sortByExpert(experts, p.local())
	return pl
}

// learn tells every member how many items and entries it gets, and which; and is told.
func (pl *plan) learn(t traffic, self int) {
	g := len(pl.out)
	sizes := make([]int32, 0, 2*g)
	for _, l := range pl.out {
		sizes = append(sizes, int32(len(l.rows)), int32(len(l.expert)))
	}
	all := make([]int32, 2*g*g)
	t.do(&nn.Op{Kind: nn.AllGather, DType: tensor.I32, Tag: nn.TagDispatchCounts, In: tensor.Bytes(sizes), Out: tensor.Bytes(all)})
	send, recv := make([][]int32, g), make([][]int32, g)
	for j := range g {
		send[j] = append(append([]int32(nil), pl.out[j].counts...), pl.out[j].expert...)
		recv[j] = make([]int32, all[2*(j*g+self)]+all[2*(j*g+self)+1])
	}
	exchange(t, send, recv, nn.TagDispatchCounts)
	for j := range g {
		items := all[2*(j*g+self)]
		pl.in[j].counts, pl.in[j].expert = recv[j][:items], recv[j][items:]
	}
}

// traffic is the expert group as the exchanges of a layer see it.
type traffic struct {
	comm nn.Comm
	site nn.Site
}

func (t traffic) do(op *nn.Op) {
	if t.comm.Size(mesh.EP) == 1 {
		copy(op.Out, op.In)
		return
	}
	op.Axis, op.Site = mesh.EP, t.site
	t.comm.Do(op)
}

// exchange sends send[j] to member j and fills recv[j] from it; a pair without elements still exchanges an empty
// message, so that what a rank waits for does not depend on the routing.
func exchange[N tensor.Number](t traffic, send, recv [][]N, tag nn.Tag) {
	self := t.comm.Rank(mesh.EP)
	op := &nn.Op{Kind: nn.Exchange, DType: tensor.DTypeOf[N](), Tag: tag}
	var out, in []N
	for j := range send {
		if j == self {
			copy(recv[j], send[j])
			continue
		}
		op.To = append(op.To, nn.Part{Member: j, Bytes: len(tensor.Bytes(send[j]))})
		op.From = append(op.From, nn.Part{Member: j, Bytes: len(tensor.Bytes(recv[j]))})
		out = append(out, send[j]...)
		in = append(in, recv[j]...)
	}
	op.In, op.Out = tensor.Bytes(out), tensor.Bytes(in)
	t.do(op)
	for j := range recv {
		if j != self {
			in = in[copy(recv[j], in):]
		}
	}
}

// dispatched is what a rank got: a row per item and a probability per entry, in arrival order.
type dispatched[T tensor.Float] struct {
	rows tensor.Mat[T]
	prob []T
}

// send carries rows and probabilities to the members that host their experts. What stays here is copied once.
func send[T tensor.Float](c *nn.Ctx[T], pl *plan, x tensor.Mat[T], prob []T) dispatched[T] {
	self, h := c.Comm.Rank(mesh.EP), x.Cols
	d := dispatched[T]{rows: c.Arena.Mat(pl.n, h), prob: c.Arena.Alloc(len(pl.row))}
	out := make([][]T, len(pl.out))
	for j, l := range pl.out {
		if j != self {
			out[j] = pack(c.Arena, l, x, prob)
		}
	}
	in := receive(c, pl, h)
	exchange(traffic{c.Comm, c.Site}, out, in, nn.TagDispatch)
	entry := 0
	for j, l := range pl.in {
		rows, probs := d.rows.Data[pl.at[j]*h:], d.prob[entry:entry+len(l.expert)]
		entry += len(l.expert)
		if j == self {
			for i, row := range pl.out[self].rows {
				copy(rows[i*h:(i+1)*h], x.Row(int(row)))
			}
			for i, slot := range pl.out[self].slot {
				probs[i] = prob[slot]
			}
			continue
		}
		copy(probs, in[j][copy(rows[:len(l.counts)*h], in[j]):])
	}
	return d
}

// pack is the items' rows, then the entries' probabilities.
func pack[T tensor.Float](a *tensor.Arena[T], l list, x tensor.Mat[T], prob []T) []T {
	out := a.Alloc(len(l.rows)*x.Cols + len(l.slot))
	n := 0
	for _, row := range l.rows {
		n += copy(out[n:], x.Row(int(row)))
	}
	for i, slot := range l.slot {
		out[n+i] = prob[slot]
	}
	return out
}

// receive is memory for what comes from each other member: a row per item and a number per entry.
func receive[T tensor.Float](c *nn.Ctx[T], pl *plan, h int) [][]T {
	self := c.Comm.Rank(mesh.EP)
	in := make([][]T, len(pl.in))
	for j, l := range pl.in {
		if j != self {
			in[j] = c.Arena.Alloc(len(l.counts)*h + len(l.expert))
		}
	}
	return in
}

// giveBack returns a row per received item, and a number per entry if there are any, to where they came from; rows are
// added to into, numbers to dprob at their slots. Members are added in ascending order.
func giveBack[T tensor.Float](c *nn.Ctx[T], pl *plan, rows tensor.Mat[T], numbers []T, into tensor.Mat[T], dprob []T) {
	h, self := rows.Cols, c.Comm.Rank(mesh.EP)
	out, in := make([][]T, len(pl.in)), make([][]T, len(pl.out))
	parts := make([][]T, len(pl.in)) // numbers by member
	at := 0
	for j, l := range pl.in {
		if numbers != nil {
			parts[j] = numbers[at : at+len(l.expert)]
		}
		at += len(l.expert)
		if j == self {
			continue
		}
		n := len(l.counts) * h
		out[j] = append(append(c.Arena.Alloc(n + len(parts[j]))[:0], rows.Data[pl.at[j]*h:pl.at[j]*h+n]...), parts[j]...)
		back := len(pl.out[j].rows) * h
		if numbers != nil {
			back += len(pl.out[j].slot)
		}
		in[j] = c.Arena.Alloc(back)
	}
	exchange(traffic{c.Comm, c.Site}, out, in, nn.TagCombine)
	for j, l := range pl.out {
		part, back := in[j], parts[j]
		if j == self {
			part = rows.Data[pl.at[j]*h:]
		} else if numbers != nil {
			back = part[len(l.rows)*h:]
		}
		for i, row := range l.rows {
			kernel.AddInto(into.Row(int(row)), part[i*h:(i+1)*h])
		}
		if numbers == nil {
			continue
		}
		for i, slot := range l.slot {
			dprob[slot] += back[i]
		}
	}
}
