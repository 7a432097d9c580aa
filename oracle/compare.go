package oracle

import (
	"fmt"
	"math"
	"sort"

	"phalanx/internal/golden"
)

// Quantity is the worst comparison of one kind of quantity.
type Quantity struct {
	Name      string
	Error     float64 // max|got − want| / max|want|, absolute where max|want| < 1e-12; exact ones: number of differences
	Tolerance float64
	Exact     bool
	Where     string // the first place of the worst error, with both values
	Compared  int    // elements compared
}

// OK reports whether the quantity holds.
func (q Quantity) OK() bool { return q.Error <= q.Tolerance }

// Outcome is what a run of a reference case left behind.
type Outcome struct {
	Record    *Recorder
	Grads     []Whole // step 0, before clipping
	Final     []Whole
	GradNorms []float64 // per step
}

// Tolerances of golden/README, for one element type.
type Tolerances struct{ Step0, Later, Final float64 }

// TolerancesOf gives the tolerances of a type.
func TolerancesOf(dtype string) Tolerances {
	if dtype == "fp64" {
		return Tolerances{Step0: 1e-9, Later: 1e-9, Final: 1e-9}
	}
	return Tolerances{Step0: 1e-4, Later: 2e-3, Final: 2e-2}
}

// Compare holds an outcome against a reference case. The error is one of the comparison itself: something that should
// have been recorded was not, or replicas differ.
func Compare(c *golden.Case, o Outcome, dtype string) ([]Quantity, error) {
	cmp := &comparison{c: c, o: o, fp64: dtype == "fp64", tol: TolerancesOf(dtype), found: map[string]*Quantity{}}
	for _, f := range []func() error{cmp.tensors, cmp.scalars, cmp.grads, cmp.final} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	return cmp.list(), nil
}

type comparison struct {
	c     *golden.Case
	o     Outcome
	fp64  bool
	tol   Tolerances
	found map[string]*Quantity
}

func (m *comparison) list() []Quantity {
	out := make([]Quantity, 0, len(m.found))
	for _, q := range m.found {
		out = append(out, *q)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// note keeps the worst error of a quantity.
func (m *comparison) note(q Quantity) {
	old := m.found[q.Name]
	if old == nil {
		m.found[q.Name] = &q
		return
	}
	n := old.Compared + q.Compared
	if q.Error/math.Max(q.Tolerance, 1e-300) > old.Error/math.Max(old.Tolerance, 1e-300) || math.IsNaN(q.Error) {
		*old = q
	}
	old.Compared = n
}

// close compares real numbers by the tensor rule of golden/README.
func (m *comparison) close(name, where string, got, want []float64, tol float64) {
	if len(got) != len(want) {
		m.note(Quantity{Name: name, Error: math.Inf(1), Tolerance: tol, Where: fmt.Sprintf("%s: %d elements, want %d", where, len(got), len(want))})
		return
	}
	err, at := RelativeError(got, want)
	q := Quantity{Name: name, Error: err, Tolerance: tol, Compared: len(want)}
	if len(want) > 0 {
		q.Where = fmt.Sprintf("%s[%d]: got %.12g, want %.12g", where, at, got[at], want[at])
	}
	m.note(q)
}

// RelativeError is max|got − want| / max|want| and where the maximum is; absolute where max|want| < 1e-12. Anything
// that is not a number is an infinite error.
func RelativeError(got, want []float64) (err float64, at int) {
	scale := 0.0
	for i, w := range want {
		d := math.Abs(got[i] - w)
		if math.IsNaN(d) {
			return math.Inf(1), i
		}
		if d > err {
			err, at = d, i
		}
		scale = math.Max(scale, math.Abs(w))
	}
	if scale >= 1e-12 {
		err /= scale
	}
	return err, at
}

// exact compares integers, masks and choices.
func (m *comparison) exact(name, where string, got, want []float64) {
	q := Quantity{Name: name, Exact: true, Compared: len(want)}
	if len(got) != len(want) {
		q.Error, q.Where = math.Inf(1), fmt.Sprintf("%s: %d elements, want %d", where, len(got), len(want))
		m.note(q)
		return
	}
	for i, w := range want {
		if got[i] != w {
			if q.Error == 0 {
				q.Where = fmt.Sprintf("%s[%d]: got %v, want %v", where, i, got[i], w)
			}
			q.Error++
		}
	}
	m.note(q)
}

// get is a recorded quantity; that it is missing is an error of the comparison.
func (m *comparison) get(name string, step, mb int) (Value, error) {
	v, ok, err := m.o.Record.Get(Key{name, step, mb})
	if err == nil && !ok {
		err = fmt.Errorf("%s was not recorded at step %d microbatch %d", name, step, mb)
	}
	return v, err
}

func (m *comparison) grads() error {
	return m.wholes("grads", m.o.Grads, m.c.GradNames(), m.c.Grad, func(name string, got, want []float64) {
		m.close("grads", name, got, want, m.tol.Step0)
	})
}

// final compares the weights after the last step: element-wise in fp64; in fp32 by ‖Δ‖₂ against the way they went.
func (m *comparison) final() error {
	return m.wholes("final weights", m.o.Final, m.c.ParamNames(), m.c.FinalParam, func(name string, got, want []float64) {
		if m.fp64 {
			m.close("final_params", name, got, want, m.tol.Final)
			return
		}
		initial, err := m.c.Param(name)
		if err != nil {
			m.note(Quantity{Name: "final_params", Error: math.Inf(1), Where: err.Error()})
			return
		}
		delta, way := distance(got, want), distance(want, initial.Data)
		if way > 1e-12 {
			delta /= way
		}
		m.note(Quantity{Name: "final_params", Error: delta, Tolerance: m.tol.Final, Compared: len(want),
			Where: fmt.Sprintf("%s: ‖got − want‖/‖want − initial‖", name)})
	})
}

func distance(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	sum := 0.0
	for i := range a {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	if math.IsNaN(sum) {
		return math.Inf(1)
	}
	return math.Sqrt(sum)
}

// wholes pairs gathered tensors with the expected ones, both ways: neither may have a name the other lacks.
func (m *comparison) wholes(what string, got []Whole, names []string, want func(string) (golden.Array[float64], error), f func(name string, got, want []float64)) error {
	byName := map[string]Whole{}
	for _, w := range got {
		byName[w.Name] = w
	}
	for _, name := range names {
		w, ok := byName[name]
		if !ok {
			return fmt.Errorf("%s: the model has no parameter %s", what, name)
		}
		delete(byName, name)
		expected, err := want(name)
		if err != nil {
			return err
		}
		f(name, w.Floats(), expected.Data)
	}
	for name := range byName {
		return fmt.Errorf("%s: the case has no parameter %s", what, name)
	}
	return nil
}
