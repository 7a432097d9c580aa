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

// layerSaved goes from a Forward to its one Backward.
type layerSaved[T tensor.Float] struct {
	router  *routerSaved[T]
	entries int // of the executed routing
	plan    *plan
	got     arrived[T]
	z, a    tensor.Mat[T] // before and after the activation, rows sorted by expert; Backward scales a by the probabilities
	shared  any
}

// Forward implements nn.FFN: each row is the sum over its experts of probability · expert(row), plus the shared expert.
func (l *Layer[T]) Forward(c *nn.Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	s := &layerSaved[T]{}
	var route Routing[T]
	route, s.router = l.Router.Forward(c, x)
	s.entries = len(route.Expert)
	s.plan = newPlan(c, l.Dispatcher, l.Place, route, func(row int) bool { return l.unwanted(c, row) })
	showRows(c, l.Place, s.plan)
	s.got = send(c, s.plan, x, route.Prob)
	out := c.Arena.Mat(x.Rows, x.Cols)
	r := newResults(c, s.plan, out, nil)
	l.compute(c, s, r)
	r.giveBack(c)
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

// compute runs one expert after another on its entries, so that its rows stay in the cache from the first product to
// the last: rows in, both products, and each row of the result times its probability to where it belongs. A row has an
// expert once: adding the rows of one expert is independent work, and experts are added lowest first.
func (l *Layer[T]) compute(c *nn.Ctx[T], s *layerSaved[T], r *results[T]) {
	by, f, h := s.plan.by, l.Experts[0].FC2.In, r.into.Cols
	s.z, s.a = c.Arena.Mat(len(by.entry), l.Act.Width(f)), c.Arena.Mat(len(by.entry), f)
	mark, most := c.Arena.Mark(), by.most()
	xs, ys := c.Arena.Mat(most, h), c.Arena.Mat(most, h)
	for e, ex := range l.Experts {
		entries, from := by.of(e), by.start[e]
		n := len(entries)
		x, z, a, y := xs.Slice(0, n), s.z.Slice(from, from+n), s.a.Slice(from, from+n), ys.Slice(0, n)
		s.got.gather(x, entries)
		product(ex.FC1, x, z)
		l.Act.Forward(a, z)
		product(ex.FC2, a, y)
		eachRow(n, h, func(i int) {
			at := s.plan.from[entries[i]]
			kernel.Axpy(r.row(at), s.got.weight(at), y.Row(i))
		})
	}
	c.Arena.Release(mark)
}

// product is x·Wᵀ.
func product[T tensor.Float](w nn.Weights[T], x, y tensor.Mat[T]) {
	kernel.Gemm(kernel.NT, x.Rows, w.Out, w.In, x.Data, x.Cols, w.W, w.In, y.Data, w.Out, false)
}

// productGrad is dy·W.
func productGrad[T tensor.Float](w nn.Weights[T], dy, dx tensor.Mat[T]) {
	kernel.Gemm(kernel.NN, dy.Rows, w.In, w.Out, dy.Data, dy.Cols, w.W, w.In, dx.Data, w.In, false)
}

// Backward implements nn.FFN. It uses up what Forward saved: probabilities are multiplied into its activations.
func (l *Layer[T]) Backward(c *nn.Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*layerSaved[T])
	dgot := send(c, s.plan, dy, nil)
	dx, dprob := c.Arena.Mat(dy.Rows, dy.Cols), c.Arena.Alloc(s.entries)
	r := newResults(c, s.plan, dx, dprob)
	l.computeGrad(c, s, &dgot, r)
	r.giveBack(c)
	kernel.AddInto(dx.Data, l.Router.Backward(c, s.router, dprob).Data)
	if l.Shared != nil {
		kernel.AddInto(dx.Data, l.Shared.Backward(c, s.shared, dy).Data)
	}
	return dx
}

// computeGrad is the backward of compute: weight gradients, and to where they belong the gradients of rows and of
// probabilities. The latter are dot products of the activation and its gradient, taken before the probability comes in.
func (l *Layer[T]) computeGrad(c *nn.Ctx[T], s *layerSaved[T], dgot *arrived[T], r *results[T]) {
	by, h := s.plan.by, r.into.Cols
	mark, most := c.Arena.Mark(), by.most()
	xs, dys := c.Arena.Mat(most, h), c.Arena.Mat(most, h)
	das, dzs := c.Arena.Mat(most, s.a.Cols), c.Arena.Mat(most, s.z.Cols)
	for e, ex := range l.Experts {
		entries, from := by.of(e), by.start[e]
		n := len(entries)
		x, z, a := xs.Slice(0, n), s.z.Slice(from, from+n), s.a.Slice(from, from+n)
		dy, da, dz := dys.Slice(0, n), das.Slice(0, n), dzs.Slice(0, n)
		dgot.gather(dy, entries)
		productGrad(ex.FC2, dy, da)
		eachRow(n, s.a.Cols, func(i int) {
			at := s.plan.from[entries[i]]
			r.set(at, kernel.Dot(da.Row(i), a.Row(i)))
			kernel.Scale(da.Row(i), s.got.weight(at))
			kernel.Scale(a.Row(i), s.got.weight(at))
		})
		ex.FC2.WeightGrad(dy, a)
		l.Act.Backward(dz, da, z)
		s.got.gather(x, entries)
		ex.FC1.WeightGrad(dz, x)
		dx := dy // its rows are used up
		productGrad(ex.FC1, dz, dx)
		eachRow(n, h, func(i int) { kernel.AddInto(r.row(s.plan.from[entries[i]]), dx.Row(i)) })
	}
	poisonEmpty(c, l.Experts, by)
	c.Arena.Release(mark)
}
