// Package mtp holds the depths of multi-token prediction: what travels from depth to depth, how it is rolled, the
// block of a depth and the weight of its loss.
package mtp

import (
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// Inputs is what a depth gets from the one before it (from the trunk, for depth 1) and, rolled, gives to the next.
// All are of one microbatch; ids, positions, labels and loss mask are of all slots of this context-parallel rank [B, L],
// hidden and padding mask are in the layout of activations.
type Inputs[T tensor.Float] struct {
	Hidden    tensor.Mat[T] // h_{k−1}: [local rows, H], never rolled
	IDs       []int32       // of depth k−1
	Positions []int32
	Labels    []int32
	Loss      *nn.LossMask
	Pad       *nn.PadMask // nil: absent, and stays so
	// Embeddings take the place of the table's, if given: they are rolled like ids.
	Embeddings Embeddings[T]
}

// Embeddings are precomputed embeddings of all slots, batch-first [B, L, H]; nil: none.
type Embeddings[T tensor.Float] []T

func (e Embeddings[T]) roll(c *nn.Ctx[T]) Embeddings[T] {
	if e == nil {
		return nil
	}
	return nn.RollSlots(c, e, len(e)/(c.B*c.L()), nn.TagRollEmbeddings)
}

// ToHead is what a depth gives to the loss.
type ToHead[T tensor.Float] struct {
	Hidden tensor.Mat[T] // h_k after the depth's final norm
	Labels []int32
	Loss   *nn.LossMask
}

// Roll is one roll of everything but the hidden states.
func Roll[T tensor.Float](c *nn.Ctx[T], in Inputs[T]) Inputs[T] {
	out := Inputs[T]{
		Hidden:     in.Hidden,
		IDs:        nn.RollSlots(c, in.IDs, 1, nn.TagRollIDs),
		Positions:  nn.RollSlots(c, in.Positions, 1, nn.TagRollPositions),
		Labels:     nn.RollSlots(c, in.Labels, 1, nn.TagRollLabels),
		Loss:       nn.RollLossMask(c, in.Loss),
		Pad:        rollPad(c, in.Pad),
		Embeddings: in.Embeddings.roll(c),
	}
	if c.Mut != 0 {
		mutate(c, in, &out)
	}
	return out
}

// rollPad rolls validity, not padding, so that the fill of the roll means padding. A mask that is cut over the
// tensor-parallel group is gathered first, one boolean all-gather, rolled in the layout of the context-parallel rank and
// cut again: the end of a shard is not the end of the sequence. An absent mask stays absent and sends nothing.
func rollPad[T tensor.Float](c *nn.Ctx[T], pad *nn.PadMask) *nn.PadMask {
	if pad == nil {
		return nil
	}
	if pad.Layout&nn.SPShard == 0 {
		return nn.RollValidity(c, pad.Validity()).PadMask()
	}
	return nn.RollValidity(c, gatherMask(c, pad).Validity()).PadMask().Shard(c.TPRank(), c.TP())
}

func gatherMask[T tensor.Float](c *nn.Ctx[T], pad *nn.PadMask) *nn.PadMask {
	n := pad.B * pad.S
	in, out := make([]byte, n), make([]byte, n*c.TP())
	for i, p := range pad.Pad {
		if p {
			in[i] = 1
		}
	}
	c.Comm.Do(&nn.Op{Axis: mesh.TP, Kind: nn.AllGather, DType: tensor.Bool, Tag: nn.TagMaskGather, Site: c.Site, In: in, Out: out})
	shards := make([][]bool, c.TP())
	for r := range shards {
		shards[r] = make([]bool, n)
		for i, v := range out[r*n : (r+1)*n] {
			shards[r][i] = v != 0
		}
	}
	whole := nn.JoinPadMask(shards, pad.B, pad.S)
	whole.Layout = pad.Layout &^ nn.SPShard
	return whole
}

// Weight is the gradient weight of one counted token of a depth: factor/D over the number of tokens that share the
// mean, over the number of such means in the step. Default: tokens of the microbatch, M microbatches. Per-token:
// tokens of the whole step, one mean.
func Weight(factor float64, depths int, tokens, means float64) float64 {
	return factor / float64(depths) / tokens / means
}
