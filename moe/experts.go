package moe

import (
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Expert is one feed-forward network, whole on this rank: FC1 [Width(F), H], FC2 [H, F].
type Expert[T tensor.Float] struct{ FC1, FC2 nn.Weights[T] }

// Layer is the mixture of experts as the second half of a block.
type Layer[T tensor.Float] struct {
	Router  Router[T]
	Experts []Expert[T]
	Act     nn.Activation[T]
}

type layerSaved[T tensor.Float] struct {
	x      tensor.Mat[T]
	router *routerSaved[T]
	sorted order
	xs     tensor.Mat[T] // rows sorted by expert [N·K, H]
	z, a   tensor.Mat[T] // before and after the activation
	weight []T           // probability of each sorted row
	aw     tensor.Mat[T] // a · weight
}

// order lists the (row, slot) pairs by expert, rows ascending within one.
type order struct {
	slot  []int32 // index into [N, K]; row = slot/K
	start []int   // expert e owns sorted rows [start[e], start[e+1])
}

func sortByExpert(expert []int32, experts int) order {
	o := order{slot: make([]int32, len(expert)), start: make([]int, experts+1)}
	for _, e := range expert {
		o.start[e+1]++
	}
	for e := range experts {
		o.start[e+1] += o.start[e]
	}
	next := append([]int(nil), o.start[:experts]...)
	for i, e := range expert {
		o.slot[next[e]] = int32(i)
		next[e]++
	}
	return o
}

// Forward implements nn.FFN: each row is the sum over its experts of probability · expert(row). The probability is
// applied between activation and second product, so that no expert output is kept.
func (l *Layer[T]) Forward(c *nn.Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	s := &layerSaved[T]{x: x}
	var route Routing[T]
	route, s.router = l.Router.Forward(c, x)
	s.sorted = sortByExpert(route.Expert, len(l.Experts))
	l.gather(c, s, route)
	n, f := len(s.sorted.slot), l.Experts[0].FC2.In
	s.z, s.a, s.aw = c.Arena.Mat(n, l.Act.Width(f)), c.Arena.Mat(n, f), c.Arena.Mat(n, f)
	ys := c.Arena.Mat(n, x.Cols)
	for e, ex := range l.Experts {
		l.product(ex.FC1, s.xs, s.z, s.sorted, e)
	}
	l.Act.Forward(s.a, s.z)
	for i := range n {
		copy(s.aw.Row(i), s.a.Row(i))
		kernel.Scale(s.aw.Row(i), s.weight[i])
	}
	for e, ex := range l.Experts {
		l.product(ex.FC2, s.aw, ys, s.sorted, e)
	}
	return l.scatter(c, s, ys, x), s
}

// product runs one expert's rows of in through w into the same rows of out.
func (l *Layer[T]) product(w nn.Weights[T], in, out tensor.Mat[T], o order, e int) {
	from, to := o.start[e], o.start[e+1]
	a, b := in.Slice(from, to), out.Slice(from, to)
	kernel.Gemm(kernel.NT, a.Rows, w.Out, w.In, a.Data, a.Cols, w.W, w.In, b.Data, w.Out, false)
}

// gather copies rows and probabilities into expert order.
func (l *Layer[T]) gather(c *nn.Ctx[T], s *layerSaved[T], route Routing[T]) {
	k := l.Router.K
	s.xs = c.Arena.Mat(len(s.sorted.slot), s.x.Cols)
	s.weight = c.Arena.Alloc(len(s.sorted.slot))
	for i, slot := range s.sorted.slot {
		copy(s.xs.Row(i), s.x.Row(int(slot)/k))
		s.weight[i] = route.Prob[slot]
	}
}

// scatter adds sorted rows back to their places, lowest expert first.
func (l *Layer[T]) scatter(c *nn.Ctx[T], s *layerSaved[T], rows, like tensor.Mat[T]) tensor.Mat[T] {
	out := c.Arena.Mat(like.Rows, like.Cols)
	clear(out.Data)
	for i, slot := range s.sorted.slot {
		kernel.AddInto(out.Row(int(slot)/l.Router.K), rows.Row(i))
	}
	return out
}

// Backward implements nn.FFN.
func (l *Layer[T]) Backward(c *nn.Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*layerSaved[T])
	n, f := len(s.sorted.slot), s.a.Cols
	dys := c.Arena.Mat(n, dy.Cols)
	for i, slot := range s.sorted.slot {
		copy(dys.Row(i), dy.Row(int(slot)/l.Router.K))
	}
	daw := c.Arena.Mat(n, f)
	for e, ex := range l.Experts {
		l.productGrad(ex.FC2, s.aw, dys, daw, s.sorted, e)
	}
	dprob := c.Arena.Alloc(n)
	for i, slot := range s.sorted.slot {
		dprob[slot] = kernel.Dot(daw.Row(i), s.a.Row(i))
		kernel.Scale(daw.Row(i), s.weight[i])
	}
	dz, dxs := c.Arena.Mat(n, s.z.Cols), c.Arena.Mat(n, dy.Cols)
	l.Act.Backward(dz, daw, s.z)
	for e, ex := range l.Experts {
		l.productGrad(ex.FC1, s.xs, dz, dxs, s.sorted, e)
	}
	dx := l.scatter(c, s, dxs, dy)
	kernel.AddInto(dx.Data, l.Router.Backward(c, s.router, dprob).Data)
	return dx
}

// productGrad is the backward of product: weight gradient of one expert, and its rows of din.
func (l *Layer[T]) productGrad(w nn.Weights[T], in, dout, din tensor.Mat[T], o order, e int) {
	from, to := o.start[e], o.start[e+1]
	d, di := dout.Slice(from, to), din.Slice(from, to)
	w.WeightGrad(d, in.Slice(from, to))
	kernel.Gemm(kernel.NN, d.Rows, w.In, w.Out, d.Data, d.Cols, w.W, w.In, di.Data, w.In, false)
}
