package nn

import "phalanx/tensor"

// Cols says how the columns of an observed matrix are cut.
type Cols uint8

// The column layouts.
const (
	Whole   Cols = iota // every rank has all columns
	TPShard             // columns are cut over the tensor-parallel group, in rank order
)

// Observation is one rank's part of a named quantity. Values are row-major; rows are sequence-major (s·B + b) for
// activations. Rows and Cols say how the parts join to the whole.
type Observation struct {
	Name string // "layer.0.hidden", "mtp.1.router.logits", …
	Site Site
	Rows Layout
	Cols Cols
	R, C int
	// BatchFirst: the part is [B, S/tp] and joins along its columns (a padding mask cut over the tensor-parallel group).
	BatchFirst bool
	Values     []float64
	Sum        bool // parts are added, not joined (SPShard: over the tensor-parallel group)
	Exact      bool // ids, masks, counts, choices: compared exactly
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

// ObserveMat reports a matrix.
func (c *Ctx[T]) ObserveMat(name string, x tensor.Mat[T], rows Layout, cols Cols) {
	if !c.Wants(name) {
		return
	}
	c.Obs.Observe(Observation{Name: c.Scope + "." + name, Site: c.Site, Rows: rows, Cols: cols, R: x.Rows, C: x.Cols,
		Values: Float64s(x.Data)})
}

// ObserveExact reports whole numbers, the same on every tensor-parallel rank unless rows says otherwise.
func (c *Ctx[T]) ObserveExact(name string, values []float64, r, cols int, rows Layout) {
	if !c.Wants(name) {
		return
	}
	c.Obs.Observe(Observation{Name: c.Scope + "." + name, Site: c.Site, Rows: rows, R: r, C: cols, Values: values, Exact: true})
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

// ObserveSum reports this rank's part of a number that is the sum over shards; without sequence parallelism every
// tensor-parallel rank has the whole number.
func (c *Ctx[T]) ObserveSum(name string, v float64) {
	if !c.Wants(name) {
		return
	}
	c.Obs.Observe(Observation{Name: c.Scope + "." + name, Site: c.Site, Rows: c.RowsLayout(), R: 1, C: 1,
		Values: []float64{v}, Sum: true})
}

// ObserveScalar reports a number that every tensor-parallel rank has whole.
func (c *Ctx[T]) ObserveScalar(name string, v float64) {
	if c.Wants(name) {
		c.Obs.Observe(Observation{Name: c.Scope + "." + name, Site: c.Site, Rows: Full, R: 1, C: 1, Values: []float64{v}})
	}
}
