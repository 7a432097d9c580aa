package run

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/tensor"
)

// What ranks of other processes show: parameters and observed quantities, in deterministic CBOR. Two lives of a rank show the
// same bytes. Numbers travel as they lie in memory, little-endian.

type shippedShard struct {
	Spec           nn.Spec
	F32, F64       []byte
	TPRank, DPRank int
}

type shippedParts struct {
	Frames       []*nn.Frame // each once
	Observations []shippedObservation
}

type shippedObservation struct {
	Name   string
	Site   nn.Site
	Shape  nn.Shape
	Layout nn.Layout
	Cols   nn.Cols
	Frame  int // of Frames; −1: none
	R, C   int
	Values []byte
	Exact  bool
}

var unshipMode = func() cbor.DecMode {
	m, err := cbor.DecOptions{MaxArrayElements: 1 << 30}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}()

// shipShards makes an event of parameters of a rank.
func shipShards(rank int, what string, step int, views []model.ShardView) messages.Shards {
	list := make([]shippedShard, len(views))
	for i, v := range views {
		list[i] = shippedShard{Spec: *v.Spec, TPRank: v.TPRank, DPRank: v.DPRank}
		if v.F64 != nil {
			list[i].F64 = tensor.Bytes(v.F64)
		} else {
			list[i].F32 = tensor.Bytes(v.F32)
		}
	}
	return messages.Shards{Rank: rank, Step: step, What: what, Body: messages.CBOR(list)}
}

// unshipShards is the inverse.
func unshipShards(e messages.Shards) ([]model.ShardView, error) {
	var list []shippedShard
	if err := unshipMode.Unmarshal(e.Body, &list); err != nil {
		return nil, fmt.Errorf("%s of rank %d cannot be read: %w", e.What, e.Rank, err)
	}
	views := make([]model.ShardView, len(list))
	for i := range list {
		s := &list[i]
		views[i] = model.ShardView{Spec: &s.Spec, TPRank: s.TPRank, DPRank: s.DPRank}
		if s.F64 != nil {
			views[i].F64 = aligned[float64](s.F64)
		} else {
			views[i].F32 = aligned[float32](s.F32)
		}
	}
	return views, nil
}

// aligned copies bytes into memory that is aligned for their type.
func aligned[T float32 | float64](b []byte) []T {
	x := make([]T, len(b)/tensor.DTypeOf[T]().Size())
	copy(tensor.Bytes(x), b)
	return x
}

// shipper is the observer of a rank whose observations go to another process, all of a step at once. Programs of the rank call
// it at the same time; what one program shows of a name stays in its order.
type shipper struct {
	rank  int
	wants func(name string, step int) bool
	mu    sync.Mutex
	shown []nn.Observation
}

// Wants implements nn.Observer.
func (s *shipper) Wants(name string, step int) bool { return s.wants(name, step) }

// Observe implements nn.Observer.
func (s *shipper) Observe(o nn.Observation) {
	o.Values = slices.Clone(o.Values)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = append(s.shown, o)
}

// Forget drops what was shown of a step that runs again.
func (s *shipper) Forget(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = slices.DeleteFunc(s.shown, func(o nn.Observation) bool { return o.Site.Step == step })
}

// take is what has been shown since the last time; false: nothing.
func (s *shipper) take() (messages.Shards, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.shown) == 0 {
		return messages.Shards{}, false
	}
	slices.SortStableFunc(s.shown, func(a, b nn.Observation) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Site.Step, b.Site.Step), cmp.Compare(a.Site.Microbatch, b.Site.Microbatch))
	})
	var parts shippedParts
	frames := map[*nn.Frame]int{nil: -1}
	for _, o := range s.shown {
		at, known := frames[o.Frame]
		if !known {
			at = len(parts.Frames)
			frames[o.Frame] = at
			parts.Frames = append(parts.Frames, o.Frame)
		}
		parts.Observations = append(parts.Observations, shippedObservation{o.Name, o.Site, o.Shape, o.Layout, o.Cols, at, o.R, o.C, tensor.Bytes(o.Values), o.Exact})
	}
	step := s.shown[0].Site.Step
	s.shown = nil
	return messages.Shards{Rank: s.rank, Step: step, What: observed, Body: messages.CBOR(parts)}, true
}

// observed is messages.Shards.What of observations.
const observed = "observed"

// unshipObservations shows to an observer what a rank has shown.
func unshipObservations(e messages.Shards, to nn.Observer) error {
	var parts shippedParts
	if err := unshipMode.Unmarshal(e.Body, &parts); err != nil {
		return fmt.Errorf("observations of rank %d cannot be read: %w", e.Rank, err)
	}
	for _, o := range parts.Observations {
		x := nn.Observation{Name: o.Name, Site: o.Site, Shape: o.Shape, Layout: o.Layout, Cols: o.Cols, R: o.R, C: o.C, Values: aligned[float64](o.Values), Exact: o.Exact}
		if o.Frame >= 0 {
			x.Frame = parts.Frames[o.Frame]
		}
		to.Observe(x)
	}
	return nil
}
