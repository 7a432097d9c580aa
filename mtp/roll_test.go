package mtp_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/collective"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
)

const embedded = 3 // features of given embeddings

// set is everything that travels from depth to depth, whole, and the layout it is cut to.
type set struct {
	docs                   nn.Docs
	b, s                   int
	tp, cp                 int
	sp                     bool
	ids, positions, labels []int32
	weight                 []float32
	valid                  []bool // nil: no padding mask
	right                  bool   // padding is at the end of documents only
	embeddings             []float64
	order                  uint64
	src                    [][]int
	l                      int
}

func drawSet(t *rapid.T) set {
	d := set{b: rapid.IntRange(1, 3).Draw(t, "rows"), s: rapid.IntRange(1, 14).Draw(t, "positions"), tp: rapid.IntRange(1, 4).Draw(t, "tp"),
		cp: rapid.IntRange(1, 3).Draw(t, "cp"), order: rapid.Uint64().Draw(t, "order")}
	d.sp = d.tp > 1 && rapid.Bool().Draw(t, "sp")
	if rapid.Bool().Draw(t, "packed") {
		d.docs = trial.DrawDocs(t, d.b, d.s)
	}
	masked, given := rapid.IntRange(0, 3).Draw(t, "masked") > 0, rapid.Bool().Draw(t, "embeddings")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "values"), 0))
	d.right = rapid.Bool().Draw(t, "padding at ends")
	ends := rng.Perm(d.s)
	for i, p := range trial.Places(d.docs, d.b, d.s) {
		d.ids, d.labels = append(d.ids, rng.Int32()|1), append(d.labels, rng.Int32()|1)
		d.positions, d.weight = append(d.positions, rng.Int32()|1), append(d.weight, float32(rng.IntN(2)))
		if masked && d.right {
			d.valid = append(d.valid, p.Off < p.Logical && (d.docs != nil || p.Off < ends[i/d.s%d.s]))
		} else if masked {
			d.valid = append(d.valid, rng.IntN(4) > 0)
		}
		for range embedded {
			if given {
				d.embeddings = append(d.embeddings, 1+rng.Float64())
			}
		}
	}
	d.src, d.l = trial.Slots(d.docs, d.b, d.s, d.cp, d.align())
	return d
}

func (d *set) align() int {
	if d.sp {
		return d.tp
	}
	return 1
}

// at is the whole set after n rolls as a rank must see it, by arithmetic on lengths. Only the padding mask is cut over
// the tensor-parallel group, under sequence parallelism.
func (d *set) at(cpRank, tpRank, n int) mtp.Inputs[float64] {
	src := d.src[cpRank]
	ints := func(x []int32) []int32 {
		return trial.Local(src, d.b, d.s, 1, trial.Rolled(d.docs, d.b, d.s, 1, n, x, 0), 0)
	}
	in := mtp.Inputs[float64]{IDs: ints(d.ids), Positions: ints(d.positions), Labels: ints(d.labels),
		Loss: &nn.LossMask{B: d.b, S: d.l, Weight: trial.Local(src, d.b, d.s, 1, trial.Rolled(d.docs, d.b, d.s, 1, n, d.weight, 0), 0)}}
	if d.embeddings != nil {
		in.Embeddings = trial.Local(src, d.b, d.s, embedded, trial.Rolled(d.docs, d.b, d.s, embedded, n, d.embeddings, 0), 0)
	}
	if d.valid == nil {
		return in
	}
	valid := trial.Local(src, d.b, d.s, 1, trial.Rolled(d.docs, d.b, d.s, 1, n, d.valid, false), false)
	parts := 1
	if d.sp {
		parts = d.tp
	}
	in.Pad = &nn.PadMask{B: d.b, S: d.l / parts}
	for b := range d.b {
		for i := range in.Pad.S {
			in.Pad.Pad = append(in.Pad.Pad, !valid[b*d.l+tpRank%parts*in.Pad.S+i])
		}
	}
	return in
}

// run gives every rank its part and rolls it n times; check sees the result of every roll.
func (d *set) run(t require.TestingT, n int, sent func(messages.Header, []byte), check func(cpRank, tpRank, k int, got mtp.Inputs[float64])) {
	sizes := mesh.Sizes{TP: d.tp, CP: d.cp, DP: 1, PP: 1}
	err := inproc.Run(sizes, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			at := sizes.Coord(rank)
			frames := nn.NewFrames(d.docs, d.b, d.s, d.cp, d.align())
			ctx := &nn.Ctx[float64]{Comm: c, Arena: &tensor.Arena[float64]{}, B: d.b, Frame: frames[at.CP], Frames: frames, SP: d.sp,
				Site: nn.Site{Phase: nn.Forward, Layer: -1}}
			in := d.at(at.CP, at.TP, 0)
			in.Hidden = tensor.NewMat[float64](1, 1)
			if in.Pad != nil {
				in.Pad.Layout = ctx.RowsLayout()
			}
			for k := 1; k <= n; k++ {
				before := cloned(in)
				got := mtp.Roll(ctx, in)
				require.Equal(t, before, in, "a roll must not change its input")
				check(at.CP, at.TP, k, got)
				in = got
			}
		}}
	}, inproc.Options{Seed: d.order, Sent: sent})
	require.NoError(t, err)
}

func cloned(in mtp.Inputs[float64]) mtp.Inputs[float64] {
	out := in
	out.IDs, out.Positions, out.Labels = slices.Clone(in.IDs), slices.Clone(in.Positions), slices.Clone(in.Labels)
	out.Embeddings = slices.Clone(in.Embeddings)
	loss := *in.Loss
	loss.Weight = slices.Clone(loss.Weight)
	out.Loss = &loss
	if in.Pad != nil {
		pad := *in.Pad
		pad.Pad = slices.Clone(pad.Pad)
		out.Pad = &pad
	}
	return out
}

// Everything rolls together; the padding mask is that of the single rank on every layout, grows from depth to depth, and
// is never lost at the end of a shard.
func TestI3_I4_I5_DepthsSeeTheSameOnEveryLayout(t *testing.T) {
	property.Check(t, 300, func(t *rapid.T) {
		d := drawSet(t)
		d.run(t, 3, nil, func(cpRank, tpRank, k int, got mtp.Inputs[float64]) {
			want, before := d.at(cpRank, tpRank, k), d.at(cpRank, tpRank, k-1)
			require.Equal(t, want.IDs, got.IDs)
			require.Equal(t, want.Positions, got.Positions)
			require.Equal(t, want.Labels, got.Labels)
			require.Equal(t, want.Loss.Weight, got.Loss.Weight)
			require.Equal(t, want.Embeddings, got.Embeddings)
			require.Equal(t, tensor.NewMat[float64](1, 1), got.Hidden, "hidden states are not rolled")
			if d.valid == nil {
				require.Nil(t, got.Pad, "an absent mask stays absent")
				return
			}
			require.Equal(t, want.Pad.Pad, got.Pad.Pad)
			require.Equal(t, want.Pad.S, got.Pad.S)
			require.Equal(t, d.sp, got.Pad.Layout&nn.SPShard != 0)
			for i, was := range before.Pad.Pad {
				require.True(t, !d.right || !was || got.Pad.Pad[i], "padding at an end stays padding")
			}
		})
	})
}

// One boolean all-gather a masked depth under sequence parallelism and none without; over context parallelism one
// message each way over every link and rolled tensor.
func TestI4_MessagesOfADepth(t *testing.T) {
	property.Check(t, 150, func(t *rapid.T) {
		d := drawSet(t)
		n := rapid.IntRange(1, 3).Draw(t, "depths")
		got := map[nn.Tag][2]int{}
		d.run(t, n, func(h messages.Header, payload []byte) {
			v := got[collective.NameIn(h).Tag]
			got[collective.NameIn(h).Tag] = [2]int{v[0] + 1, v[1] + len(payload)}
		}, func(int, int, int, mtp.Inputs[float64]) {})
		want := map[nn.Tag][2]int{}
		edges, links := trial.Links(d.docs, d.b, d.s), 2*(d.cp-1)*d.tp*n
		rolled := func(tag nn.Tag, bytes int) {
			if links > 0 {
				want[tag] = [2]int{links, links * edges * bytes}
			}
		}
		rolled(nn.TagRollIDs, 4)
		rolled(nn.TagRollPositions, 4)
		rolled(nn.TagRollLabels, 4)
		rolled(nn.TagRollLossMask, 4)
		if d.valid != nil {
			rolled(nn.TagRollPaddingMask, 1)
		}
		if d.embeddings != nil {
			rolled(nn.TagRollEmbeddings, 8*embedded)
		}
		if d.valid != nil && d.sp {
			copies := d.tp * (d.tp - 1) * d.cp * n
			want[nn.TagMaskGather] = [2]int{copies, copies * d.b * d.l / d.tp}
		}
		require.Equal(t, want, got)
	})
}

// A2, A3 and A5 of docs/examples.md with their own numbers, through a depth's roll.
func TestPublicBugs(t *testing.T) {
	validSets := func(d set, n int) [][]int {
		sets := make([][]int, n)
		d.src, d.l = trial.Slots(d.docs, d.b, d.s, d.cp, d.align())
		d.ids, d.positions, d.labels, d.weight = make([]int32, d.b*d.s), make([]int32, d.b*d.s), make([]int32, d.b*d.s), make([]float32, d.b*d.s)
		d.run(t, n, nil, func(cpRank, tpRank, k int, got mtp.Inputs[float64]) {
			for i, p := range got.Pad.Pad {
				slot := i/got.Pad.S*d.l + i%got.Pad.S
				if d.sp {
					slot += tpRank * got.Pad.S
				}
				if !p {
					sets[k-1] = append(sets[k-1], slot/d.l*d.s+d.src[cpRank][slot])
				}
			}
		})
		for _, s := range sets {
			slices.Sort(s)
		}
		return sets
	}
	ends := func(s int, lengths ...int) (valid []bool) {
		for _, n := range lengths {
			for i := range s {
				valid = append(valid, i < n)
			}
		}
		return valid
	}
	require.Equal(t, [][]int{{0, 1, 2, 3}, {0, 1, 2}, {0, 1}}, validSets(set{b: 2, s: 8, tp: 1, cp: 1, valid: ends(8, 5, 0)}, 3))
	require.Equal(t, [][]int{{0, 1, 2, 3}, {0, 1, 2}, {0, 1}}, validSets(set{b: 2, s: 8, tp: 1, cp: 2, valid: ends(8, 5, 0)}, 3))
	for _, tp := range []int{2, 4} {
		require.Equal(t, [][]int{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}}, validSets(set{b: 1, s: 8, tp: tp, cp: 1, sp: true, valid: ends(8, 7)}, 2))
	}
	require.Equal(t, [][]int{{0, 1, 4, 5, 6, 7}}, validSets(set{b: 1, s: 12, tp: 1, cp: 2, valid: ends(12, 12),
		docs: nn.Docs{{{Start: 0, Logical: 3, Physical: 4}, {Start: 4, Logical: 5, Physical: 8}}}}, 1))
}
