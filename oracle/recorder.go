// Package oracle holds what results are compared with: recordings of a run, joined over ranks, and the reference
// cases with their tolerances.
package oracle

import (
	"fmt"
	"math"
	"sort"
	"sync"

	"phalanx/mesh"
	"phalanx/nn"
)

// Key names one recorded quantity of a microbatch. Microbatch counts over the whole step.
type Key struct {
	Name       string
	Step       int
	Microbatch int
}

// Value is a quantity joined over ranks, row-major [R, C].
type Value struct {
	R, C   int
	Data   []float64
	Exact  bool
	Layout string // how it lay on the ranks, for messages
}

// Recorder collects observations of all ranks and joins them. It is safe for concurrent use.
type Recorder struct {
	sizes mesh.Sizes
	local int // microbatches per data-parallel rank
	wants func(name string, step int) bool

	mu    sync.Mutex
	parts map[Key]map[int][]nn.Observation // tensor-parallel rank → chunks in order
}

// NewRecorder records what wants says, of a job with local microbatches per data-parallel rank.
func NewRecorder(sizes mesh.Sizes, local int, wants func(name string, step int) bool) *Recorder {
	return &Recorder{sizes: sizes, local: local, wants: wants, parts: map[Key]map[int][]nn.Observation{}}
}

// For is the observer of one rank.
func (r *Recorder) For(rank int) nn.Observer { return &rankObserver{r, r.sizes.Coord(rank)} }

type rankObserver struct {
	r     *Recorder
	coord mesh.Coord
}

// Wants implements nn.Observer.
func (o *rankObserver) Wants(name string, step int) bool { return o.r.wants(name, step) }

// Observe implements nn.Observer.
func (o *rankObserver) Observe(x nn.Observation) {
	k := Key{x.Name, x.Site.Step, o.coord.DP*o.r.local + x.Site.Microbatch}
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	if o.r.parts[k] == nil {
		o.r.parts[k] = map[int][]nn.Observation{}
	}
	o.r.parts[k][o.coord.TP] = append(o.r.parts[k][o.coord.TP], x)
}

// Keys lists what was recorded, in name, step, microbatch order.
func (r *Recorder) Keys() []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]Key, 0, len(r.parts))
	for k := range r.parts {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		if a.Name != b.Name {
			return a.Name < b.Name
		}
		if a.Step != b.Step {
			return a.Step < b.Step
		}
		return a.Microbatch < b.Microbatch
	})
	return keys
}

// Get joins a quantity over its tensor-parallel ranks. The second result is false if it was not recorded. Copies
// that should be the same bits and are not make an error that names the quantity and the ranks.
func (r *Recorder) Get(k Key) (Value, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts, ok := r.parts[k]
	if !ok {
		return Value{}, false, nil
	}
	per := make([]nn.Observation, 0, r.sizes.TP)
	for tp := range r.sizes.TP {
		if len(parts[tp]) == 0 {
			return Value{}, true, fmt.Errorf("%s was not seen on tp rank %d", k.Name, tp)
		}
		per = append(per, stacked(parts[tp]))
	}
	v, err := join(per)
	if err != nil {
		return v, true, fmt.Errorf("%s, step %d microbatch %d: %w", k.Name, k.Step+1, k.Microbatch, err)
	}
	return v, true, nil
}

// stacked joins the chunks of rows that one rank showed one after another.
func stacked(chunks []nn.Observation) nn.Observation {
	out := chunks[0]
	out.Values = append([]float64(nil), out.Values...)
	for _, c := range chunks[1:] {
		out.R += c.R
		out.Values = append(out.Values, c.Values...)
	}
	return out
}

// join puts the parts of the tensor-parallel ranks together as their layout says.
func join(per []nn.Observation) (Value, error) {
	first := per[0]
	v := Value{R: first.R, C: first.C, Exact: first.Exact, Layout: first.Rows.String()}
	switch {
	case first.Cols == nn.TPShard && len(per) > 1:
		return joinCols(v, per), nil
	case first.Rows == nn.SPShard && first.Sum:
		v.Data = append([]float64(nil), first.Values...)
		for _, p := range per[1:] {
			for i, x := range p.Values {
				v.Data[i] += x
			}
		}
		return v, nil
	case first.Rows == nn.SPShard && first.BatchFirst:
		return joinCols(v, per), nil
	case first.Rows == nn.SPShard:
		v.R = 0
		for _, p := range per {
			v.R += p.R
			v.Data = append(v.Data, p.Values...)
		}
		return v, nil
	}
	v.Data = first.Values
	return v, sameBits(per)
}

func joinCols(v Value, per []nn.Observation) Value {
	v.C = 0
	for _, p := range per {
		v.C += p.C
	}
	v.Data = make([]float64, 0, v.R*v.C)
	for row := range v.R {
		for _, p := range per {
			v.Data = append(v.Data, p.Values[row*p.C:(row+1)*p.C]...)
		}
	}
	return v
}

// sameBits checks that every tensor-parallel rank shows the same replica.
func sameBits(per []nn.Observation) error {
	for tp, p := range per[1:] {
		for i, x := range p.Values {
			if math.Float64bits(x) != math.Float64bits(per[0].Values[i]) {
				return fmt.Errorf("replicas differ: tp rank 0 has %v, tp rank %d has %v at element %d", per[0].Values[i], tp+1, x, i)
			}
		}
	}
	return nil
}
