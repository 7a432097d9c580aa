package mtp

import (
	"phalanx/config/mutation"
	"phalanx/nn"
	"phalanx/tensor"
)

// mutate plants the bugs of a depth's inputs.
func mutate[T tensor.Float](c *nn.Ctx[T], in Inputs[T], out *Inputs[T]) {
	if c.Mut.Has(mutation.NoPositionRoll) {
		out.Positions = in.Positions
	}
	switch {
	case in.Pad == nil:
	case c.Mut.Has(mutation.EmbeddingsMaskUnshifted) && in.Embeddings != nil:
		out.Pad = in.Pad
	case c.Mut.Has(mutation.MaskFillWrong):
		out.Pad = filledWrong(in.Pad, out.Pad)
	case c.Mut.Has(mutation.ShardRoll):
		out.Pad = rolledAlone(in.Pad)
	}
}

// filledWrong is the roll of padding itself: what enters at the end of a row is 0, which means valid.
func filledWrong(before, rolled *nn.PadMask) *nn.PadMask {
	if rolled.Layout&nn.SPShard != 0 && before.S == 0 {
		return rolled
	}
	wrong := &nn.PadMask{B: rolled.B, S: rolled.S, Layout: rolled.Layout, Pad: make([]bool, len(rolled.Pad))}
	for b := range rolled.B {
		copy(wrong.Pad[b*rolled.S:(b+1)*rolled.S-1], before.Pad[b*rolled.S+1:(b+1)*rolled.S])
	}
	return wrong
}

// rolledAlone rolls a shard as if it were a sequence: its last position leaves it.
func rolledAlone(shard *nn.PadMask) *nn.PadMask {
	wrong := &nn.PadMask{B: shard.B, S: shard.S, Layout: shard.Layout, Pad: make([]bool, len(shard.Pad))}
	for b := range shard.B {
		row := wrong.Pad[b*shard.S : (b+1)*shard.S]
		copy(row, shard.Pad[b*shard.S+1:(b+1)*shard.S])
		row[len(row)-1] = true
	}
	return wrong
}
