package nn

import "fmt"

// Shapes of this file: every tensor is [B, S], batch first, element (b, s) at index b*S+s.
// What is aligned with what: ids, positions and padding talk about the input token x[s];
// labels and the loss mask talk about the label y[s] = x[s+1].

// Layout says how a sequence tensor is cut over ranks. It travels with the tensor and is never inferred from a
// length: a shard of a long sequence and a whole short one look alike.
type Layout uint8

// The layouts. A tensor may be cut both ways: over context parallelism first, then over tensor parallelism.
const (
	Full    Layout = 0
	SPShard Layout = 1 // this tensor-parallel rank's slice [tp·S, (tp+1)·S), S being the local length
	CPLocal Layout = 2 // this context-parallel rank's slots, as its Frame says
)

// String is the layout's name in errors.
func (l Layout) String() string {
	switch l {
	case Full:
		return "Full"
	case SPShard:
		return "SPShard"
	case CPLocal:
		return "CPLocal"
	case CPLocal | SPShard:
		return "CPLocal+SPShard"
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// PadMask marks padding: True = padding, input-aligned. A nil *PadMask is an absent mask, which is not the same as a
// mask without padding: absence is a property of the configuration, the same on every rank and in every microbatch.
// Its opposite is Validity; there is no other conversion than the two methods.
type PadMask struct {
	B, S   int // S is the local length under SPShard
	Layout Layout
	Pad    []bool // [B, S]
}

// Validity marks real tokens: True = valid. It is what rolls, because the fill of a roll, false, then means padding.
type Validity struct {
	B, S   int
	Layout Layout
	Valid  []bool // [B, S]
}

// Validity is the opposite of the mask, newly allocated; nil of nil.
func (p *PadMask) Validity() *Validity {
	if p == nil {
		return nil
	}
	checkLen("PadMask", len(p.Pad), p.B, p.S)
	return &Validity{B: p.B, S: p.S, Layout: p.Layout, Valid: inverted(p.Pad)}
}

// PadMask is the opposite of the validity, newly allocated; nil of nil.
func (v *Validity) PadMask() *PadMask {
	if v == nil {
		return nil
	}
	checkLen("Validity", len(v.Valid), v.B, v.S)
	return &PadMask{B: v.B, S: v.S, Layout: v.Layout, Pad: inverted(v.Valid)}
}

// Shard is the slice of a Full mask that tensor-parallel rank tp of tpSize holds under sequence parallelism:
// positions [tp·S/tpSize, (tp+1)·S/tpSize) of every row. Nil of nil. With one rank there is nothing to cut, and the
// result is a Full copy. A mask that is a shard already, or a length that tpSize does not divide, is a programmer error.
func (p *PadMask) Shard(tp, tpSize int) *PadMask {
	if p == nil {
		return nil
	}
	checkLen("PadMask", len(p.Pad), p.B, p.S)
	switch {
	case p.Layout&SPShard != 0:
		panic(fmt.Sprintf("nn: Shard of a PadMask in layout %s: a shard cannot be cut again", p.Layout))
	case tpSize < 1 || tp < 0 || tp >= tpSize:
		panic(fmt.Sprintf("nn: Shard %d of %d: the rank must be in [0, size)", tp, tpSize))
	case p.S%tpSize != 0:
		panic(fmt.Sprintf("nn: Shard: sequence length %d is not divisible by tensor parallel size %d", p.S, tpSize))
	}
	n := p.S / tpSize
	out := &PadMask{B: p.B, S: n, Layout: p.Layout | SPShard, Pad: make([]bool, 0, p.B*n)}
	if tpSize == 1 {
		out.Layout = p.Layout
	}
	for b := range p.B {
		from := b*p.S + tp*n
		out.Pad = append(out.Pad, p.Pad[from:from+n]...)
	}
	return out
}

// JoinPadMask puts the shards of all tensor-parallel ranks, in rank order, each [b, sLocal], back together:
// a Full mask [b, len(shards)·sLocal]. It is the inverse of Shard.
func JoinPadMask(shards [][]bool, b, sLocal int) *PadMask {
	out := &PadMask{B: b, S: len(shards) * sLocal, Layout: Full, Pad: make([]bool, b*len(shards)*sLocal)}
	for r, shard := range shards {
		checkLen(fmt.Sprintf("JoinPadMask shard %d", r), len(shard), b, sLocal)
		for row := range b {
			copy(out.Pad[row*out.S+r*sLocal:], shard[row*sLocal:(row+1)*sLocal])
		}
	}
	return out
}

// LossMask says which labels count, label-aligned. Weights are 0 or 1. AllOnes says explicitly that every label
// counts, and Weight is then nil. There is no nil LossMask where labels are.
type LossMask struct {
	B, S    int
	AllOnes bool
	Weight  []float32 // [B, S]; nil with AllOnes
}

// Count is the number of labels that count: N of the denominators.
func (m *LossMask) Count() int64 {
	if m.AllOnes {
		return int64(m.B) * int64(m.S)
	}
	checkLen("LossMask", len(m.Weight), m.B, m.S)
	n := int64(0)
	for _, w := range m.Weight {
		if w != 0 {
			n++
		}
	}
	return n
}

// At is the weight of the label at row b, position s.
func (m *LossMask) At(b, s int) float32 {
	if b < 0 || b >= m.B || s < 0 || s >= m.S {
		panic(fmt.Sprintf("nn: LossMask.At(%d, %d) of a [%d, %d] mask", b, s, m.B, m.S))
	}
	if m.AllOnes {
		return 1
	}
	return m.Weight[b*m.S+s]
}

// Microbatch is one microbatch, whole: Full layout, [B, S].
type Microbatch struct {
	B, S      int
	Docs      Docs    // documents of every row; nil: one a row
	IDs       []int32 // x[b, s]
	Labels    []int32 // y[b, s] = x[b, s+1]; at positions that do not count any id of the vocabulary, never negative
	Positions []int32 // 0…S-1 in every row
	Loss      *LossMask
	Pad       *PadMask // nil: no padding mask
	// Embeddings take the place of the embedding table's, [B, S, H]; nil: tokens are looked up.
	Embeddings []float64
}

func inverted(x []bool) []bool {
	out := make([]bool, len(x))
	for i, v := range x {
		out[i] = !v
	}
	return out
}

func checkLen(what string, n, b, s int) {
	if b < 0 || s < 0 || n != b*s {
		panic(fmt.Sprintf("nn: %s: %d elements are no [%d, %d] tensor", what, n, b, s))
	}
}
