package model

import (
	"phalanx/config"
	"phalanx/nn"
	"phalanx/tensor"
)

// out is a linear map by the name of its parameters and the number of its features.
type out struct {
	name     string
	features int
}

// biases declares the biases of column-parallel maps, cut as the rows of their weights; none if off. They start at zero.
func (b *builder[T]) biases(on bool, group string, of ...out) []*nn.Param[T] {
	if !on {
		return nil
	}
	var all []*nn.Param[T]
	for _, o := range of {
		all = append(all, b.declare(nn.Spec{Name: o.name + ".bias", Shape: []int{o.features}, Shard: b.shard(0), Group: group}))
	}
	return all
}

// rowBias declares the bias of a row-parallel map: whole on every rank, which sees its own rows of the gradient only
// under sequence parallelism.
func (b *builder[T]) rowBias(name, group string) []*nn.Param[T] {
	if !b.cfg.AddBiasLinear {
		return nil
	}
	return []*nn.Param[T]{b.declare(nn.Spec{Name: name + ".bias", Shape: []int{b.cfg.HiddenSize}, Shard: nn.Unsharded, SumTP: b.sp(), Group: group})}
}

// fc1Bias declares the biases of fc1's rows.
func (b *builder[T]) fc1Bias(prefix string, f int, group string) []*nn.Param[T] {
	of := []out{{prefix + "up_proj", f}}
	if b.cfg.GatedLinearUnit {
		of = append([]out{{prefix + "gate_proj", f}}, of...)
	}
	return b.biases(b.cfg.AddBiasLinear, group, of...)
}

func biasOf[T tensor.Float](parts []*nn.Param[T]) nn.Bias[T] {
	if parts == nil {
		return nn.Bias[T]{}
	}
	return nn.BiasOf(parts...)
}

// ropeOf is how positions [0, length) turn heads; nil: they do not.
func ropeOf[T tensor.Float](m *config.Model, length int) *nn.RopeTable[T] {
	if m.PositionEmbedding != "rope" && m.PositionEmbedding != "" {
		return nil
	}
	r := nn.Rope{Dim: m.RotaryDims(), Base: m.RotaryBase, Interleaved: m.RotaryInterleaved}
	if m.RopeScaling {
		r.Scale = m.RopeScalingFactor
	}
	return nn.RopeTableOf[T](r, length)
}
