// Package oracle holds what results are compared with: recordings of a run, joined over ranks, and the reference
// cases with their tolerances.
package oracle

import (
	"fmt"
	"slices"
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

// Value is a quantity joined over ranks, row-major [R, C]. Activations have rows position·B + b.
type Value struct {
	R, C  int
	Data  []float64
	Exact bool
}

// Recorder collects observations of all ranks and joins them. It is safe for concurrent use.
type Recorder struct {
	sizes mesh.Sizes
	local int // microbatches per data-parallel rank
	wants func(name string, step int) bool

	mu    sync.Mutex
	parts map[Key]map[place][]shown // chunks of rows in order
}

// NewRecorder records what wants says, of a job with local microbatches per data-parallel rank.
func NewRecorder(sizes mesh.Sizes, local int, wants func(name string, step int) bool) *Recorder {
	return &Recorder{sizes: sizes, local: local, wants: wants, parts: map[Key]map[place][]shown{}}
}

// place is a rank's place among those that share a microbatch.
type place struct{ cp, tp int }

// shown is an observation and the pipeline stage that made it.
type shown struct {
	nn.Observation
	stage int
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
		o.r.parts[k] = map[place][]shown{}
	}
	at := place{o.coord.CP, o.coord.TP}
	o.r.parts[k][at] = append(o.r.parts[k][at], shown{x, o.coord.PP})
}

// Forget drops what this rank showed of a step: it runs again.
func (o *rankObserver) Forget(step int) {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	at := place{o.coord.CP, o.coord.TP}
	for k, parts := range o.r.parts {
		if k.Step != step || k.Microbatch/o.r.local != o.coord.DP {
			continue
		}
		parts[at] = slices.DeleteFunc(parts[at], func(x shown) bool { return x.stage == o.coord.PP })
		if len(parts[at]) == 0 {
			delete(parts, at)
		}
		if len(parts) == 0 {
			delete(o.r.parts, k)
		}
	}
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

// Get joins a quantity over the ranks that share its microbatch. The second result is false if it was not recorded.
// Copies that should be the same bits and are not make an error that names the quantity and the ranks.
func (r *Recorder) Get(k Key) (Value, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts, ok := r.parts[k]
	if !ok {
		return Value{}, false, nil
	}
	per := make([][]nn.Observation, r.sizes.CP)
	for cp := range r.sizes.CP {
		for tp := range r.sizes.TP {
			chunks := parts[place{cp, tp}]
			if len(chunks) == 0 {
				return Value{}, true, fmt.Errorf("%s was not seen on cp rank %d tp rank %d", k.Name, cp, tp)
			}
			per[cp] = append(per[cp], stacked(chunks))
		}
	}
	v, err := joinAll(per)
	if err != nil {
		return v, true, fmt.Errorf("%s, step %d microbatch %d: %w", k.Name, k.Step+1, k.Microbatch, err)
	}
	return v, true, nil
}

// stacked joins the chunks of rows that one rank showed one after another.
func stacked(chunks []shown) nn.Observation {
	out := chunks[0].Observation
	out.Values = append([]float64(nil), out.Values...)
	for _, c := range chunks[1:] {
		out.R += c.R
		out.Values = append(out.Values, c.Values...)
	}
	return out
}
