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
	seen map[int]shardCopy // by shard index
}

type shardCopy struct {
	rank int
	f32  []float32
	f64  []float64
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
			w = &gathered{Whole: Whole{Name: s.Spec.Name, Shape: s.Spec.Shape}, seen: map[int]shardCopy{}}
			if s.F32 != nil {
				w.F32 = make([]float32, s.Spec.Elements())
			} else {
				w.F64 = make([]float64, s.Spec.Elements())
			}
			g.whole[s.Spec.Name] = w
		}
		index := s.Spec.Shard.Index
		if before, ok := w.seen[index]; ok {
			g.note(compareCopies(s, before, rank))
			continue
		}
		if s.F32 != nil {
			nn.IntoWhole(s.Spec, s.F32, w.F32)
			w.seen[index] = shardCopy{rank: rank, f32: append([]float32(nil), s.F32...)}
		} else {
			nn.IntoWhole(s.Spec, s.F64, w.F64)
			w.seen[index] = shardCopy{rank: rank, f64: append([]float64(nil), s.F64...)}
		}
	}
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
func compareCopies(s model.ShardView, before shardCopy, rank int) error {
	for i := range max(len(s.F32), len(s.F64)) {
		var a, b float64
		if s.F32 != nil {
			a, b = float64(before.f32[i]), float64(s.F32[i])
		} else {
			a, b = before.f64[i], s.F64[i]
		}
		if math.Float64bits(a) != math.Float64bits(b) {
			e := &DriftError{Name: s.Spec.Name, Index: i, First: before.rank, Second: rank, FirstValue: a, SecondValue: b}
			if rank < before.rank {
				e.First, e.Second, e.FirstValue, e.SecondValue = rank, before.rank, b, a
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
