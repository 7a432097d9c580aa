package nn

import "fmt"

// Shapes of this file: every tensor is [B, S], batch first, element (b, s) at index b*S+s.
// What is aligned with what is SEMANTICS §0: ids, positions and padding talk about the input token x[s];
// labels and the loss mask talk about the label y[s] = x[s+1].

// Layout says how a sequence tensor is cut over ranks. It travels with the tensor and is never inferred from a
// length: a shard of a long sequence and a whole short one look alike.
type Layout uint8

// The layouts. A CPLocal layout comes with context parallelism.
const (
	Full    Layout = iota // the whole sequence
	SPShard               // this tensor-parallel rank's slice [tp·S, (tp+1)·S) of it, S being the local length
)

// String is the layout's name in errors.
func (l Layout) String() string {
	switch l {
	case Full:
		return "Full"
	case SPShard:
		return "SPShard"
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
	case p.Layout != Full:
		panic(fmt.Sprintf("nn: Shard of a PadMask in layout %s: only a Full mask can be cut", p.Layout))
	case tpSize < 1 || tp < 0 || tp >= tpSize:
		panic(fmt.Sprintf("nn: Shard %d of %d: the rank must be in [0, size)", tp, tpSize))
	case p.S%tpSize != 0:
		panic(fmt.Sprintf("nn: Shard: sequence length %d is not divisible by tensor parallel size %d", p.S, tpSize))
	}
	n := p.S / tpSize
	out := &PadMask{B: p.B, S: n, Layout: SPShard, Pad: make([]bool, 0, p.B*n)}
	if tpSize == 1 {
		out.Layout = Full
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
// counts, and Weight is then nil. There is no nil LossMask where labels are (SEMANTICS §15 D10).
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

// Microbatch is one microbatch as every rank of a tensor-parallel group sees it: Full layout, [B, S].
type Microbatch struct {
	B, S      int
	IDs       []int32 // x[b, s]
	Labels    []int32 // y[b, s] = x[b, s+1]; at positions that do not count any id of the vocabulary, never negative
	Positions []int32 // 0…S-1 in every row
	Loss      *LossMask
	Pad       *PadMask // nil: no padding mask
}

// RollInts is one roll of ids, labels or positions (SEMANTICS §2.1): out[b, s] = x[b, s+1], and 0 at the last
// position of every row. x is the whole sequence and is not changed. Nil of nil.
func RollInts(x []int32, b, s int) []int32 {
	if x == nil {
		return nil
	}
	return rolled("RollInts", x, b, s)
}

// Roll is one roll of validity: what leaves the sequence is not valid. Nil of nil. Rolling a shard would treat its
// end as the end of the sequence, so any layout but Full is a programmer error: gather, roll, cut again (§3.5).
func (v *Validity) Roll() *Validity {
	if v == nil {
		return nil
	}
	if v.Layout != Full {
		panic(fmt.Sprintf("nn: Roll of a Validity in layout %s: the end of a shard is not the end of the sequence; "+
			"gather the shards of the tensor-parallel group first", v.Layout))
	}
	return &Validity{B: v.B, S: v.S, Layout: Full, Valid: rolled("Validity.Roll", v.Valid, v.B, v.S)}
}

// Roll is one roll of the loss mask: the last position of every row stops counting, so AllOnes rolled is an
// explicit mask.
func (m *LossMask) Roll() *LossMask {
	weight := m.Weight
	if m.AllOnes {
		weight = make([]float32, m.B*m.S)
		for i := range weight {
			weight[i] = 1
		}
	}
	return &LossMask{B: m.B, S: m.S, Weight: rolled("LossMask.Roll", weight, m.B, m.S)}
}

// rolled is out[b, s] = x[b, s+1] with the zero value at the end of every row.
func rolled[T any](what string, x []T, b, s int) []T {
	checkLen(what, len(x), b, s)
	out := make([]T, len(x))
	if s == 0 {
		return out
	}
	for row := 0; row < len(x); row += s {
		copy(out[row:row+s-1], x[row+1:row+s])
	}
	return out
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
