package model

import (
	"phalanx/config"
	"phalanx/mesh"
	"phalanx/nn"
)

// Shapes of this file: N rows of all slots of a context-parallel rank, n rows of activations between layers (N/tp under
// sequence parallelism), H hidden features. Every function counts the elements that the layer of its name takes from an
// arena, forward and backward, in the order of its code.

// tally is how much of an arena is in use, and the most that was.
type tally struct{ now, most int }

func (t *tally) take(n int) {
	t.now += n
	t.most = max(t.most, t.now)
}

// keeping counts what layers keep.
type keeping struct {
	m            *config.Model
	sizes        mesh.Sizes
	sp           bool
	b, l         int // rows of the batch, slots of each
	rows, all, h int // n, N, H
	isMoE        func(layer int) bool
	here         func(depth int) bool // on this stage
	uses         func(depth int) bool // its embedding learns
	given        bool                 // embeddings come with the data
	tally
}

func newKeeping[T float32 | float64](r *Rank[T]) *keeping {
	s := r.env.Scenario
	k := &keeping{m: &s.Model, sizes: s.Sizes(), h: s.Model.HiddenSize, isMoE: r.isMoE, here: r.isHere, given: s.Dataset.Embeddings != ""}
	k.sp = k.m.SequenceParallel && k.sizes.TP > 1
	align := 1
	if k.sp {
		align = k.sizes.TP
	}
	f := nn.NewFrames(nil, s.Train.MicroBatchSize, s.Dataset.SeqLength, k.sizes.CP, align)[0]
	k.b, k.l = f.B, f.L
	k.all, k.rows = f.B*f.L, f.B*f.L/align
	return k
}

// whole are rows gathered over tensor parallelism; reduced are partial sums brought back to this rank's rows.
func (k *keeping) whole(cols int) {
	if k.sp {
		k.take(k.all * cols)
	}
}

func (k *keeping) reduced(cols int) {
	if k.sp {
		k.take(k.rows * cols)
	}
}

func (k *keeping) add() { k.take(k.rows * k.h) }

func (k *keeping) norm() {
	k.take(k.rows*k.h + k.rows)
	if k.m.Normalization == "LayerNorm" {
		k.add()
	}
	k.gain(k.h)
}

func (k *keeping) normGrad() {
	k.take(k.rows * k.h)
	k.gain(k.h)
}

// gain is a gain of n features that is not used as it is kept.
func (k *keeping) gain(n int) {
	if k.m.LayernormZeroCentered {
		k.take(n)
	}
}

func (k *keeping) column(in, out int) { k.whole(in); k.take(k.all * out) }
func (k *keeping) columnGrad(in int)  { k.take(k.all * in); k.reduced(in) }

func (k *keeping) row(out int)         { k.take(k.all * out); k.reduced(out) }
func (k *keeping) rowGrad(in, out int) { k.whole(out); k.take(k.all * in) }

// drop is the dropout of activations.
func (k *keeping) drop() {
	if k.m.HiddenDropout > 0 {
		k.add()
	}
}

// chunk is a chunk's microbatch on the stage, forward and backward.
func (k *keeping) chunk(c mesh.Chunk, before int, norm, normed bool) int {
	k.tally = tally{}
	switch {
	case c.Embedding:
		k.embedding()
	case normed:
		k.take((before + 1) * k.rows * k.h)
	default:
		k.add()
	}
	for _, i := range c.Layers {
		k.block(k.isMoE(i))
	}
	if norm {
		k.norm()
	}
	if c.Loss {
		for range 1 + k.m.MTPNumLayers {
			k.head()
		}
	}
	k.chunkGrad(c, before, norm, normed)
	return k.most
}

func (k *keeping) chunkGrad(c mesh.Chunk, before int, norm, normed bool) {
	switch {
	case c.Loss:
	case norm || normed:
		k.take((before + len(c.Depths) + 1) * k.rows * k.h)
	default:
		k.add()
	}
	if len(c.Depths) > 0 && (before > 0 || !k.m.MTPDetachHeads) {
		k.add()
	}
	if normed {
		return
	}
	if norm {
		k.normGrad()
	}
	for i := len(c.Layers) - 1; i >= 0; i-- {
		k.blockGrad(k.isMoE(c.Layers[i]))
	}
	if c.Embedding && !k.given {
		k.drop()
		k.whole(k.h)
	}
}

func (k *keeping) embedding() {
	if k.given {
		k.add()
		return
	}
	k.take(k.all * k.h)
	k.reduced(k.h)
	k.drop()
}

// depth is a microbatch of depth d, forward and backward.
func (k *keeping) depth(d int) int {
	k.tally = tally{}
	moe, tp := k.isMoE(k.m.NumLayers-1), k.sizes.TP
	k.embedding()
	k.norm()
	k.norm()
	k.take(2 * k.rows * k.h)
	k.column(2*k.h, k.h/tp)
	if tp > 1 {
		k.take(2 * k.all * k.h)
	}
	k.block(moe)
	k.norm()

	if k.here(d + 1) {
		k.add()
	}
	k.normGrad()
	k.blockGrad(moe)
	k.whole(k.h)
	if tp > 1 {
		k.take(k.all * k.h / tp)
	}
	k.columnGrad(2 * k.h)
	k.take(2 * k.rows * k.h)
	k.normGrad()
	if !k.m.MTPDetachHeads && !k.given {
		k.drop()
		k.whole(k.h)
	}
	k.normGrad()
	return k.most
}

// headRows is the number of rows whose logits exist at once.
const headRows = 256

// head is one loss, forward and backward together.
func (k *keeping) head() {
	k.whole(k.h)
	k.take(k.all * k.h)
	n, before := min(headRows, k.all), k.now
	k.take(n*k.m.PaddedVocabSize/k.sizes.TP + 3*n)
	k.now = before
	k.reduced(k.h)
}

func (k *keeping) block(moe bool) {
	if k.m.RecomputeGranularity != "full" {
		k.blockWhole(moe)
		return
	}
	k.add()
	before := k.now
	k.blockWhole(moe)
	k.now = before
}

func (k *keeping) blockWhole(moe bool) {
	k.norm()
	k.attention()
	k.drop()
	k.add()
	k.norm()
	k.ffn(moe)
	k.drop()
	k.add()
}

func (k *keeping) blockGrad(moe bool) {
	if k.m.RecomputeGranularity != "full" {
		k.blockWholeGrad(moe)
		return
	}
	k.add()
	before := k.now
	k.blockWhole(moe)
	k.blockWholeGrad(moe)
	k.now = before
}

func (k *keeping) blockWholeGrad(moe bool) {
	k.drop()
	k.ffnGrad(moe)
	k.normGrad()
	k.add()
	k.drop()
	k.attentionGrad()
	k.normGrad()
	k.add()
}
