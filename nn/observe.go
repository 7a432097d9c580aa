package nn

import "phalanx/tensor"

// Cols says how the columns of an observed matrix are cut.
type Cols uint8

// The column layouts.
const (
	Whole   Cols = iota // every rank has all columns
	TPShard             // columns are cut over the tensor-parallel group, in rank order
)

// Shape says what the rows of an observation are.
type Shape uint8

// The shapes.
const (
	Plain Shape = iota // numbers without a sequence: counts, sums
	Slots              // rows of activations, slot-major: row = slot·B + b
	Batch              // [B, slots], batch first
)

// Observation is one rank's part of a named quantity, row-major. Layout and Cols say how the parts join to the whole.
type Observation struct {
	Name   string // "layer.0.hidden", "mtp.1.router.logits", …
	Site   Site
	Shape  Shape
	Layout Layout // over which axes the part is cut; Plain: over which axes parts are added
	Cols   Cols
	Frame  *Frame // where the slots lie; nil for Plain
	R, C   int
	Values []float64
	Exact  bool // ids, masks, counts, choices: compared exactly
}

// Observer receives observations. It is called from the program's turn and must not keep Values' source.
type Observer interface {
	Wants(name string, step int) bool // asked before values are copied
	Observe(Observation)
}

// Wants reports whether somebody looks at a quantity of this scope.
func (c *Ctx[T]) Wants(name string) bool {
	return c.Obs != nil && c.Obs.Wants(c.Scope+"."+name, c.Site.Step)
}

func (c *Ctx[T]) observe(name string, o Observation) {
	o.Name, o.Site = c.Scope+"."+name, c.Site
	c.Obs.Observe(o)
}

// ObserveMat reports a matrix whose rows are slots.
func (c *Ctx[T]) ObserveMat(name string, x tensor.Mat[T], rows Layout, cols Cols) {
	if c.Wants(name) {
		c.observe(name, Observation{Shape: Slots, Layout: rows, Cols: cols, Frame: c.Frame, R: x.Rows, C: x.Cols, Values: Float64s(x.Data)})
	}
}

// ObserveRows reports whole numbers, one row of cols a slot.
func (c *Ctx[T]) ObserveRows(name string, values []float64, cols int, rows Layout) {
	if c.Wants(name) {
		c.observe(name, Observation{Shape: Slots, Layout: rows, Frame: c.Frame, R: len(values) / cols, C: cols, Values: values, Exact: true})
	}
}

// ObserveBatch reports a [B, slots] tensor.
func (c *Ctx[T]) ObserveBatch(name string, values []float64, rows Layout, exact bool) {
	if c.Wants(name) {
		c.observe(name, Observation{Shape: Batch, Layout: rows, Frame: c.Frame, R: c.B, C: len(values) / c.B, Values: values, Exact: exact})
	}
}

// ObserveCounts reports whole numbers. over says over which axes the ranks' numbers add up; where they do not, every
// rank has the whole.
func (c *Ctx[T]) ObserveCounts(name string, values []float64, over Layout) {
	if c.Wants(name) {
		c.observe(name, Observation{Layout: over, R: 1, C: len(values), Values: values, Exact: true})
	}
}

// ObserveNumber reports one real number, alike.
func (c *Ctx[T]) ObserveNumber(name string, v float64, over Layout) {
	if c.Wants(name) {
		c.observe(name, Observation{Layout: over, R: 1, C: 1, Values: []float64{v}})
	}
}

// Float64s copies numbers to float64; every type of Phalanx but large int64 converts without loss.
func Float64s[N tensor.Number](x []N) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// Bools are 0 and 1.
func Bools(x []bool) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		if v {
			out[i] = 1
		}
	}
	return out
}
