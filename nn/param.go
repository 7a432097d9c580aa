package nn

import (
	"fmt"
	"sort"

	"phalanx/tensor"
)

// Shard says which part of a whole parameter a rank holds: part Index of Parts equal cuts along Dim.
type Shard struct{ Dim, Parts, Index int }

// Unsharded is the whole parameter.
var Unsharded = Shard{Parts: 1}

// Spec declares a parameter before memory is laid out.
type Spec struct {
	Name  string // Hugging Face name
	Shape []int  // of the whole parameter
	Shard Shard
	SumTP bool // each tensor-parallel rank holds a partial gradient of the same replicated parameter
	// Expert parameters are shared by the copies of an expert (axis EDP), whatever rows those see.
	Expert bool
	Init   Init
	Group  string // norm group: "" or "mtp"
	Uses   int    // uses whose gradients accumulate apart and are added in a fixed order; 0 means 1
	ByRow  bool   // of a table: all uses but the first touch single rows, and only by Use.Row
	Shared bool   // a copy of a parameter of another pipeline stage, kept equal to it: the norm counts that one
	// EmbeddingOrOutput: the table or the output layer, which decoupled_lr gives a rate of their own.
	EmbeddingOrOutput bool
}

// Param is one parameter of a rank: its shard of the weights, of the gradient, and what the optimizer must know.
type Param[T tensor.Float] struct {
	Spec
	Data []T
	Grad []T      // gradient of use 0; the sum of all uses once they are joined
	Uses []Use[T] // further accumulators, one per use beyond the first
}

// Local is the number of elements of the shard.
func (s *Spec) Local() int {
	n := 1
	for _, d := range s.Shape {
		n *= d
	}
	return n / s.Shard.Parts
}

// LocalShape is the shape of the shard.
func (s *Spec) LocalShape() []int {
	shape := append([]int(nil), s.Shape...)
	if s.Shard.Parts > 1 {
		shape[s.Shard.Dim] /= s.Shard.Parts
	}
	return shape
}

// Decay reports whether decoupled weight decay applies: every weight of two or more dimensions.
func (s *Spec) Decay() bool { return len(s.Shape) >= 2 }

// Flat is parameters whose gradients are completed alike, one after another in memory.
type Flat[T tensor.Float] struct {
	Params     []*Param[T]
	Data, Grad []T // of all of them
}

// Params is all parameters of a rank in flat buffers by how their gradients are completed. Neighbours in declaration
// order are neighbours in memory, so a module may use several parameters as one matrix.
type Params[T tensor.Float] struct {
	List []*Param[T] // in declaration order
	// By how gradients are completed: partial over tensor parallelism, of experts, the rest.
	SumTP, Experts, Rest Flat[T]
	// Foreign are parameters of the model that other ranks hold: experts, other pipeline stages.
	Foreign []Spec
	byName  map[string]*Param[T]
}

// Declare adds a parameter. Memory comes with Build.
func (p *Params[T]) Declare(s Spec) *Param[T] {
	if p.byName == nil {
		p.byName = map[string]*Param[T]{}
	}
	if p.byName[s.Name] != nil {
		panic(fmt.Sprintf("nn: parameter %s declared twice", s.Name))
	}
	q := &Param[T]{Spec: s}
	p.List = append(p.List, q)
	p.byName[s.Name] = q
	return q
}

// ByName finds a parameter; nil if there is none.
func (p *Params[T]) ByName(name string) *Param[T] { return p.byName[name] }

// Sorted is the parameters in ascending name order.
func (p *Params[T]) Sorted() []*Param[T] {
	s := append([]*Param[T](nil), p.List...)
	sort.Slice(s, func(i, j int) bool { return s[i].Name < s[j].Name })
	return s
}

// All is every parameter of the model, those of other ranks too, in ascending name order.
func (p *Params[T]) All() []Spec {
	all := append([]Spec(nil), p.Foreign...)
	for _, q := range p.List {
		all = append(all, q.Spec)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// Build lays out memory: weights and gradients of every declared parameter, all zero. Neighbours of one kind in
// declaration order are neighbours in memory.
func (p *Params[T]) Build() {
	p.SumTP.build(p.List, func(q *Param[T]) bool { return q.SumTP })
	p.Experts.build(p.List, func(q *Param[T]) bool { return q.Expert })
	p.Rest.build(p.List, func(q *Param[T]) bool { return !q.SumTP && !q.Expert })
}

// build lays out the parameters of a list that belong here.
func (f *Flat[T]) build(list []*Param[T], belongs func(*Param[T]) bool) {
	n := 0
	for _, q := range list {
		if belongs(q) {
			f.Params = append(f.Params, q)
			n += q.Local()
		}
	}
	f.Data, f.Grad = make([]T, n), make([]T, n)
	at := 0
	for _, q := range f.Params {
		n := q.Local()
		q.Data, q.Grad = f.Data[at:at+n:at+n], f.Grad[at:at+n:at+n]
		at += n
		for range max(q.Spec.Uses, 1) - 1 {
			q.Uses = append(q.Uses, newUse[T](&q.Spec))
		}
	}
}

// ZeroGrads clears every accumulator.
func (p *Params[T]) ZeroGrads() {
	for _, f := range [...]*Flat[T]{&p.SumTP, &p.Experts, &p.Rest} {
		clear(f.Grad)
	}
	for _, q := range p.List {
		for _, u := range q.Uses {
			u.clear()
		}
	}
}

// Joined sees neighbouring parameters as one flat buffer of n elements, weights and gradients.
type Joined[T tensor.Float] struct{ parts []*Param[T] }

// Join declares that parts are used as one matrix, stacked by rows. They must be declared one after another.
func Join[T tensor.Float](parts ...*Param[T]) Joined[T] { return Joined[T]{parts} }

// Data is the stacked weights.
func (j Joined[T]) Data() []T { return extend(j.parts, func(p *Param[T]) []T { return p.Data }) }

// Grad is the stacked gradients.
func (j Joined[T]) Grad() []T { return extend(j.parts, func(p *Param[T]) []T { return p.Grad }) }

// Elements is the number of elements of a rank's weights and of its gradient accumulators.
func (p *Params[T]) Elements() (weights, grads int) {
	for _, q := range p.List {
		weights += len(q.Data)
		grads += len(q.Data) * (1 + len(q.Uses))
	}
	return weights, grads
}
