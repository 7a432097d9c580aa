package oracle

import (
	"fmt"
	"math"
	"sort"
	"sync"

	"phalanx/model"
	"phalanx/nn"
	"phalanx/tensor"
)

// Whole is an unsharded parameter or gradient. One of F32 and F64 is set.
type Whole struct {
	Name  string
	Shape []int
	F32   []float32
	F64   []float64
}

// Floats is the values in float64.
func (w Whole) Floats() []float64 {
	if w.F64 != nil {
		return w.F64
	}
	return nn.Float64s(w.F32)
}

// Gatherer joins the shards that ranks hand out into whole tensors. Replicas must be the same bits: a replica that
// drifted is an error that names the parameter, the ranks and the values. It is safe for concurrent use.
type Gatherer struct {
	mu    sync.Mutex
	whole map[string]*gathered
	err   error
}

type gathered struct {
	Whole
	seen map[int]int // rank that gave it, by shard index
}

// NewGatherer is an empty gatherer for one kind of tensor at one step.
func NewGatherer() *Gatherer { return &Gatherer{whole: map[string]*gathered{}} }

// Add copies one rank's shards to their places.
func (g *Gatherer) Add(rank int, shards []model.ShardView) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range shards {
		w := g.whole[s.Spec.Name]
		if w == nil {
			w = &gathered{Whole: Whole{Name: s.Spec.Name, Shape: s.Spec.Shape}, seen: map[int]int{}}
			if s.F32 != nil {
				w.F32 = make([]float32, s.Spec.Elements())
			} else {
				w.F64 = make([]float64, s.Spec.Elements())
			}
			g.whole[s.Spec.Name] = w
		}
		index := s.Spec.Shard.Index
		if first, ok := w.seen[index]; ok {
			g.note(compareCopies(s, w.shard(s), first, rank))
			continue
		}
		w.seen[index] = rank
		if s.F32 != nil {
			nn.IntoWhole(s.Spec, s.F32, w.F32)
		} else {
			nn.IntoWhole(s.Spec, s.F64, w.F64)
		}
	}
}

// shard is the elements of a shard as they were given first.
func (w *gathered) shard(s model.ShardView) model.ShardView {
	before := model.ShardView{Spec: s.Spec}
	if s.F32 != nil {
		before.F32 = make([]float32, len(s.F32))
		nn.OutOfWhole(s.Spec, w.F32, before.F32)
	} else {
		before.F64 = make([]float64, len(s.F64))
		nn.OutOfWhole(s.Spec, w.F64, before.F64)
	}
	return before
}

func (g *Gatherer) note(err error) {
	if g.err == nil {
		g.err = err
	}
}

// DriftError says that two replicas of a parameter or gradient are not the same bits.
type DriftError struct {
	Name                    string
	Index                   int // element of the shard
	First, Second           int // ranks
	FirstValue, SecondValue float64
}

func (e *DriftError) Error() string {
	return fmt.Sprintf("replicas of %s drifted apart: rank %d has %v, rank %d has %v at element %d of the shard",
		e.Name, e.First, e.FirstValue, e.Second, e.SecondValue, e.Index)
}

// compareCopies finds the first element in which two replicas of a shard differ.
func compareCopies(s, before model.ShardView, first, rank int) error {
	for i := range max(len(s.F32), len(s.F64)) {
		var a, b float64
		if s.F32 != nil {
			a, b = float64(before.F32[i]), float64(s.F32[i])
		} else {
			a, b = before.F64[i], s.F64[i]
		}
		if math.Float64bits(a) != math.Float64bits(b) {
			e := &DriftError{Name: s.Spec.Name, Index: i, First: first, Second: rank, FirstValue: a, SecondValue: b}
			if rank < first {
				e.First, e.Second, e.FirstValue, e.SecondValue = rank, first, b, a
			}
			return e
		}
	}
	return nil
}

// All is every tensor in ascending name order, and the first drift that was seen.
func (g *Gatherer) All() ([]Whole, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Whole, 0, len(g.whole))
	for _, w := range g.whole {
		out = append(out, w.Whole)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, g.err
}

// Bytes is the little-endian memory of a tensor and its type.
func (w Whole) Bytes() ([]byte, tensor.DType) {
	if w.F64 != nil {
		return tensor.Bytes(w.F64), tensor.F64
	}
	return tensor.Bytes(w.F32), tensor.F32
}
