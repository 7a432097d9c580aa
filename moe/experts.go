package moe

import (
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Expert is one feed-forward network, or this rank's part of its hidden features: FC1 [Width(F/etp), H], FC2 [H, F/etp].
type Expert[T tensor.Float] struct{ FC1, FC2 nn.Weights[T] }

// Layer is the mixture of experts as the second half of a block.
type Layer[T tensor.Float] struct {
	Router     Router[T]
	Experts    []Expert[T] // of this rank
	Place      Place
	Dispatcher Dispatcher
	Act        nn.Activation[T]
	Shared     *Shared[T] // nil: none
	// DropPadding keeps padding rows away from the experts; else they are computed as upstream does. Slots that hold
	// nothing are never computed.
	DropPadding bool
}

type layerSaved[T tensor.Float] struct {
	router *routerSaved[T]
	plan   *plan
	got    dispatched[T]
	xs     tensor.Mat[T] // rows sorted by expert
	z, a   tensor.Mat[T] // before and after the activation
	weight []T           // probability of each sorted row
	aw     tensor.Mat[T] // a · weight
	shared any
}

// Forward implements nn.FFN: each row is the sum over its experts of probability · expert(row), plus the shared expert.
// The probability is applied between activation and second product, so that no expert output is kept.
func (l *Layer[T]) Forward(c *nn.Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	s := &layerSaved[T]{}
	var route Routing[T]
	route, s.router = l.Router.Forward(c, x)
	s.plan = newPlan(c, l.Dispatcher, l.Place, route, func(row int) bool { return l.unwanted(c, row) })
	s.got = send(c, s.plan, x, route.Prob)
	out := c.Arena.Mat(x.Rows, x.Cols)
	clear(out.Data)
	giveBack(c, s.plan, l.compute(c, s), nil, out, nil)
	if l.Shared != nil {
		var y tensor.Mat[T]
		y, s.shared = l.Shared.Forward(c, x)
		kernel.AddInto(out.Data, y.Data)
	}
	return out, s
}

// unwanted rows are not dispatched.
func (l *Layer[T]) unwanted(c *nn.Ctx[T], row int) bool {
	if wholeRow(c, row) < 0 {
		return true
	}
	return l.DropPadding && c.Skips(row)
}

// compute runs the experts on what came: one row per item, the sum over its entries, lowest expert first.
func (l *Layer[T]) compute(c *nn.Ctx[T], s *layerSaved[T]) tensor.Mat[T] {
	by, h := s.plan.by, s.got.rows.Cols
	n, f := len(by.entry), l.Experts[0].FC2.In
	s.xs, s.weight = c.Arena.Mat(n, h), c.Arena.Alloc(n)
	for i, e := range by.entry {
		copy(s.xs.Row(i), s.got.rows.Row(int(s.plan.row[e])))
		s.weight[i] = s.got.prob[e]
	}
	s.z, s.a, s.aw = c.Arena.Mat(n, l.Act.Width(f)), c.Arena.Mat(n, f), c.Arena.Mat(n, f)
	ys := c.Arena.Mat(n, h)
	for e, ex := range l.Experts {
		product(ex.FC1, s.xs, s.z, by, e)
	}
	l.Act.Forward(s.a, s.z)
	for i := range n {
		copy(s.aw.Row(i), s.a.Row(i))
		kernel.Scale(s.aw.Row(i), s.weight[i])
	}
	for e, ex := range l.Experts {
		product(ex.FC2, s.aw, ys, by, e)
	}
	return l.summed(c, s.plan, ys)
}

// summed adds sorted entries to their received rows.
func (l *Layer[T]) summed(c *nn.Ctx[T], pl *plan, entries tensor.Mat[T]) tensor.Mat[T] {
	out := c.Arena.Mat(pl.n, entries.Cols)
	clear(out.Data)
	for i, e := range pl.by.entry {
		kernel.AddInto(out.Row(int(pl.row[e])), entries.Row(i))
	}
	return out
}

// product runs one expert's rows of in through w into the same rows of out.
func product[T tensor.Float](w nn.Weights[T], in, out tensor.Mat[T], o order, e int) {
	from, to := o.start[e], o.start[e+1]
	a, b := in.Slice(from, to), out.Slice(from, to)
	kernel.Gemm(kernel.NT, a.Rows, w.Out, w.In, a.Data, a.Cols, w.W, w.In, b.Data, w.Out, false)
}

// Backward implements nn.FFN.
func (l *Layer[T]) Backward(c *nn.Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*layerSaved[T])
	dgot := send(c, s.plan.withoutEntries(), dy, nil)
	dxs, dentry := l.computeGrad(c, s, dgot.rows)
	dx := c.Arena.Mat(dy.Rows, dy.Cols)
	clear(dx.Data)
	dprob := c.Arena.Zeros(len(s.router.route.Expert))
	giveBack(c, s.plan, l.summed(c, s.plan, dxs), dentry, dx, dprob)
	kernel.AddInto(dx.Data, l.Router.Backward(c, s.router, dprob).Data)
	if l.Shared != nil {
		kernel.AddInto(dx.Data, l.Shared.Backward(c, s.shared, dy).Data)
	}
	return dx
}

// withoutEntries is the same traffic without numbers of entries.
func (pl *plan) withoutEntries() *plan {
	bare := *pl
	bare.out, bare.in = append([]list(nil), pl.out...), append([]list(nil), pl.in...)
	for j := range bare.out {
		bare.out[j].slot, bare.in[j].expert = nil, nil
	}
	bare.row = nil
	return &bare
}

// computeGrad is the backward of compute: gradients of the sorted rows, and of the entries' probabilities in arrival
// order.
func (l *Layer[T]) computeGrad(c *nn.Ctx[T], s *layerSaved[T], dout tensor.Mat[T]) (dxs tensor.Mat[T], dprob []T) {
	by := s.plan.by
	n, f, h := len(by.entry), s.a.Cols, dout.Cols
	dys, daw := c.Arena.Mat(n, h), c.Arena.Mat(n, f)
	for i, e := range by.entry {
		copy(dys.Row(i), dout.Row(int(s.plan.row[e])))
	}
	for e, ex := range l.Experts {
		productGrad(ex.FC2, s.aw, dys, daw, by, e)
	}
	poisonEmpty(c, l.Experts, by)
	dprob = c.Arena.Alloc(n)
	for i, e := range by.entry {
		dprob[e] = kernel.Dot(daw.Row(i), s.a.Row(i))
		kernel.Scale(daw.Row(i), s.weight[i])
	}
	dz := c.Arena.Mat(n, s.z.Cols)
	l.Act.Backward(dz, daw, s.z)
	dxs = c.Arena.Mat(n, h)
	for e, ex := range l.Experts {
		productGrad(ex.FC1, s.xs, dz, dxs, by, e)
	}
	return dxs, dprob
}

// productGrad is the backward of product: weight gradient of one expert, and its rows of din.
func productGrad[T tensor.Float](w nn.Weights[T], in, dout, din tensor.Mat[T], o order, e int) {
	from, to := o.start[e], o.start[e+1]
	d, di := dout.Slice(from, to), din.Slice(from, to)
	w.WeightGrad(d, in.Slice(from, to))
	kernel.Gemm(kernel.NN, d.Rows, w.In, w.Out, d.Data, d.Cols, w.W, w.In, di.Data, w.In, false)
}
