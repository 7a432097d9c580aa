package nn

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Init is a parameter's initial distribution: normal with deviation Std (0: the constant zero), or the constant One.
type Init struct {
	Std float64
	One bool
}

// Ones initialises gains.
var Ones = Init{One: true}

// Normal is Megatron's init_method.
func Normal(std float64) Init { return Init{Std: std} }

// ScaledNormal is Megatron's output_layer_init_method: deviation std/√(2·layers).
func ScaledNormal(std float64, layers int) Init { return Init{Std: std / math.Sqrt(2*float64(layers))} }

// Fill writes the initial value of every element of a shard. Each value is a pure function of (seed, name, index in
// the whole parameter), so that no layout, rank or restart enters it.
func Fill[T tensor.Float](p *Param[T], seed uint64) {
	if p.Init.One {
		for i := range p.Data {
			p.Data[i] = 1
		}
		return
	}
	if p.Init.Std == 0 {
		clear(p.Data)
		return
	}
	key := seed ^ xxhash.Sum64String(p.Name)
	p.eachRun(func(local, global, n int) {
		for i := range n {
			p.Data[local+i] = T(p.Init.Std * gaussian(key, uint64(global+i)))
		}
	})
}

// gaussian is the index-th standard normal of a stream.
func gaussian(key, index uint64) float64 {
	r := kernel.Philox([2]uint32{uint32(key), uint32(key >> 32)}, [4]uint32{uint32(index), uint32(index >> 32)})
	bits := uint64(r[0])<<21 ^ uint64(r[1])>>11 // 53 bits
	return kernel.NormalFromUniform((float64(bits&(1<<53-1)) + 0.5) / (1 << 53))
}

// eachRun calls f for every run of elements that are neighbours both in the shard and in the whole parameter.
func (s *Spec) eachRun(f func(local, global, n int)) {
	inner, outer := 1, 1
	dim := s.Shard.Dim
	if s.Shard.Parts == 1 {
		dim = 0
	}
	for i, d := range s.Shape {
		if i < dim {
			outer *= d
		} else {
			inner *= d
		}
	}
	run := inner / s.Shard.Parts
	for o := range outer {
		f(o*run, o*inner+s.Shard.Index*run, run)
	}
}

// FromWhole copies this shard's elements out of the whole parameter.
func FromWhole[T, W tensor.Float](p *Param[T], whole []W) {
	p.eachRun(func(local, global, n int) {
		for i := range n {
			p.Data[local+i] = T(whole[global+i])
		}
	})
}

// IntoWhole copies a shard's elements (weights, gradients or moments) to their place in the whole parameter.
func IntoWhole[T tensor.Float](s *Spec, shard, whole []T) {
	s.eachRun(func(local, global, n int) { copy(whole[global:global+n], shard[local:local+n]) })
}

// OutOfWhole copies a shard out of the whole: the inverse of IntoWhole.
func OutOfWhole[T tensor.Float](s *Spec, whole, shard []T) {
	s.eachRun(func(local, global, n int) { copy(shard[local:local+n], whole[global:global+n]) })
}

// Elements is the number of elements of the whole parameter.
func (s *Spec) Elements() int { return s.Local() * s.Shard.Parts }
