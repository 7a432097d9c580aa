package nn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/nn"
)

// The oracles below are arithmetic on lengths. None of them calls a roll.

// frame is the frame of one rank, one document a row.
func frame(b, s int) *nn.Frame { return nn.NewFrames(nil, b, s, 1, 1)[0] }

// padOf is the padding mask of rows with the given numbers of valid tokens, n positions further on:
// position s is padding when s+n is at or beyond the row's length.
func padOf(lengths []int, s, n int) []bool {
	out := make([]bool, 0, len(lengths)*s)
	for _, l := range lengths {
		for i := range s {
			out = append(out, i+n >= l)
		}
	}
	return out
}

// validSet is the positions of row b that are not padding.
func validSet(p *nn.PadMask, b int) []int {
	set := []int{}
	for i, pad := range p.Pad[b*p.S : (b+1)*p.S] {
		if !pad {
			set = append(set, i)
		}
	}
	return set
}

// depth is the padding mask of MTP depth n made as a depth makes it: validity rolled, then inverted.
func depth(p *nn.PadMask, n int) *nn.PadMask {
	v := p.Validity()
	for range n {
		v = v.RollWhole(frame(v.B, v.S))
	}
	return v.PadMask()
}

func TestWorkedExample(t *testing.T) { // ids 11 to 14, two depths
	ids, labels := []int32{11, 12, 13, 14}, []int32{12, 13, 14, 15}
	loss := &nn.LossMask{B: 1, S: 4, AllOnes: true}
	ids, labels, loss = nn.RollWhole(frame(1, 4), ids), nn.RollWhole(frame(1, 4), labels), loss.RollWhole(frame(1, 4))
	require.Equal(t, []int32{12, 13, 14, 0}, ids)
	require.Equal(t, []int32{13, 14, 15, 0}, labels)
	require.Equal(t, []float32{1, 1, 1, 0}, loss.Weight)
	require.False(t, loss.AllOnes)
	require.EqualValues(t, 3, loss.Count())
	ids, labels, loss = nn.RollWhole(frame(1, 4), ids), nn.RollWhole(frame(1, 4), labels), loss.RollWhole(frame(1, 4))
	require.Equal(t, []int32{13, 14, 0, 0}, ids)
	require.Equal(t, []int32{14, 15, 0, 0}, labels)
	require.Equal(t, []float32{1, 1, 0, 0}, loss.Weight)
	require.EqualValues(t, 2, loss.Count())
}

func TestArtificialEndIsPadding(t *testing.T) { // docs/examples.md, A2
	p := &nn.PadMask{B: 2, S: 8, Pad: padOf([]int{5, 0}, 8, 0)}
	want := [][]int{{0, 1, 2, 3}, {0, 1, 2}, {0, 1}}
	for k, row0 := range want {
		d := depth(p, k+1)
		require.Equal(t, row0, validSet(d, 0), "depth %d", k+1)
		require.Empty(t, validSet(d, 1), "depth %d", k+1)
	}
}

func TestShardsAreGatheredBeforeRolling(t *testing.T) { // docs/examples.md, A3
	full := &nn.PadMask{B: 1, S: 8, Pad: padOf([]int{7}, 8, 0)}
	for _, tp := range []int{1, 2, 4} {
		shards := make([][]bool, tp)
		for r := range tp {
			shards[r] = full.Shard(r, tp).Pad
		}
		whole := nn.JoinPadMask(shards, 1, 8/tp)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, validSet(depth(whole, 1), 0), "tp %d", tp)
		require.Equal(t, []int{0, 1, 2, 3, 4}, validSet(depth(whole, 2), 0), "tp %d", tp)
	}
	if nn.SPShard == nn.Full {
		t.Fatal("layouts must differ")
	}
	require.PanicsWithValue(t, "nn: roll of a Validity in layout SPShard: the end of a shard is not the end of the "+
		"sequence; gather the shards of the tensor-parallel group first", func() { full.Shard(0, 2).Validity().RollWhole(frame(full.B, full.S/2)) })
}

func TestShardValues(t *testing.T) {
	p := &nn.PadMask{B: 2, S: 4, Pad: []bool{false, false, true, true, false, true, true, true}}
	a, b := p.Shard(0, 2), p.Shard(1, 2)
	require.Equal(t, &nn.PadMask{B: 2, S: 2, Layout: nn.SPShard, Pad: []bool{false, false, false, true}}, a)
	require.Equal(t, &nn.PadMask{B: 2, S: 2, Layout: nn.SPShard, Pad: []bool{true, true, true, true}}, b)
	require.Equal(t, nn.Full, p.Shard(0, 1).Layout, "one rank holds the whole")
	require.Equal(t, nn.SPShard, a.Validity().PadMask().Layout, "the layout travels with the conversion")
}

func TestNilInNilOut(t *testing.T) {
	var p *nn.PadMask
	var v *nn.Validity
	require.Nil(t, p.Validity())
	require.Nil(t, p.Shard(0, 2))
	require.Nil(t, v.PadMask())
	require.Nil(t, v.RollWhole(frame(1, 4)))
}

func TestLossMask(t *testing.T) {
	m := &nn.LossMask{B: 1, S: 3, Weight: []float32{0, 1, 1}}
	require.EqualValues(t, 2, m.Count())
	require.EqualValues(t, 0, m.At(0, 0))
	require.EqualValues(t, 1, m.At(0, 2))
	ones := &nn.LossMask{B: 2, S: 3, AllOnes: true}
	require.EqualValues(t, 6, ones.Count())
	require.EqualValues(t, 1, ones.At(1, 2))
	require.EqualValues(t, 4, ones.RollWhole(frame(ones.B, ones.S)).Count())
	require.EqualValues(t, 0, ones.RollWhole(frame(ones.B, ones.S)).At(1, 2))
}

func TestMisuseNamesItsReason(t *testing.T) {
	p := &nn.PadMask{B: 1, S: 6, Pad: make([]bool, 6)}
	ones := &nn.LossMask{B: 1, S: 2, AllOnes: true}
	for want, f := range map[string]func(){
		"nn: Shard of a PadMask in layout SPShard: a shard cannot be cut again":   func() { p.Shard(0, 2).Shard(0, 2) },
		"nn: Shard 2 of 2: the rank must be in [0, size)":                         func() { p.Shard(2, 2) },
		"nn: Shard: sequence length 6 is not divisible by tensor parallel size 4": func() { p.Shard(0, 4) },
		"nn: Roll: 3 elements are no [1, 4, 1] tensor":                            func() { nn.RollWhole(frame(1, 4), []int32{1, 2, 3}) },
		"nn: PadMask: 1 elements are no [2, 3] tensor":                            func() { (&nn.PadMask{B: 2, S: 3, Pad: []bool{true}}).Validity() },
		"nn: Validity: 1 elements are no [2, 3] tensor":                           func() { (&nn.Validity{B: 2, S: 3, Valid: []bool{true}}).PadMask() },
		"nn: LossMask: 0 elements are no [1, 2] tensor":                           func() { (&nn.LossMask{B: 1, S: 2}).Count() },
		"nn: LossMask.At(0, 2) of a [1, 2] mask":                                  func() { ones.At(0, 2) },
		"nn: JoinPadMask shard 1: 1 elements are no [1, 2] tensor":                func() { nn.JoinPadMask([][]bool{{true, true}, {true}}, 1, 2) },
	} {
		require.PanicsWithValue(t, want, f)
	}
	require.Equal(t, "Full SPShard CPLocal+SPShard Layout(9)", fmt.Sprint(nn.Full, " ", nn.SPShard, " ", nn.CPLocal|nn.SPShard, " ", nn.Layout(9)))
}

// drawRows is a batch of right-padded rows: sizes and per-row lengths.
func drawRows(r *rapid.T) (b, s int, lengths []int) {
	b, s = rapid.IntRange(1, 4).Draw(r, "b"), rapid.IntRange(1, 12).Draw(r, "s")
	for range b {
		lengths = append(lengths, rapid.IntRange(0, s).Draw(r, "length"))
	}
	return b, s, lengths
}

func TestI2_RollsAreOneGather(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b, s, _ := drawRows(r)
		x := rapid.SliceOfN(rapid.Int32(), b*s, b*s).Draw(r, "x")
		valid := rapid.SliceOfN(rapid.Bool(), b*s, b*s).Draw(r, "valid")
		weight := rapid.SliceOfN(rapid.SampledFrom([]float32{0, 1}), b*s, b*s).Draw(r, "weight")
		n := rapid.IntRange(1, 6).Draw(r, "rolls")
		gx, gv, gm := x, &nn.Validity{B: b, S: s, Valid: valid}, &nn.LossMask{B: b, S: s, Weight: weight}
		for range n {
			gx, gv, gm = nn.RollWhole(frame(b, s), gx), gv.RollWhole(frame(b, s)), gm.RollWhole(frame(b, s))
		}
		for i := range b * s {
			if i%s+n < s {
				require.Equal(r, x[i+n], gx[i])
				require.Equal(r, valid[i+n], gv.Valid[i])
				require.Equal(r, weight[i+n], gm.Weight[i])
			} else {
				require.Zero(r, gx[i])
				require.False(r, gv.Valid[i])
				require.Zero(r, gm.Weight[i])
			}
		}
	})
}

func TestI3_PaddingGrowsMonotonically(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b, s, lengths := drawRows(r)
		p := &nn.PadMask{B: b, S: s, Pad: padOf(lengths, s, 0)}
		v := p.Validity()
		before := slices.Clone(v.Valid)
		for n := 1; n <= 6; n++ {
			d := depth(p, n)
			require.Equal(r, padOf(lengths, s, n), d.Pad, "depth %d", n)
			for i, was := range depth(p, n-1).Pad {
				require.True(r, !was || d.Pad[i], "padding of depth %d must stay padding at depth %d", n-1, n)
			}
			for row := range b {
				for i := s - min(n, s); i < s; i++ {
					require.True(r, d.Pad[row*s+i], "the last min(n, S) positions are padding")
				}
			}
		}
		v.RollWhole(frame(v.B, v.S))
		require.Equal(r, before, v.Valid, "a roll must not change its input")
		require.Equal(r, padOf(lengths, s, 0), p.Pad, "a conversion must not change its input")
	})
}

func TestI5_RollNeverInventsValidTokens(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b, s, _ := drawRows(r)
		v := &nn.Validity{B: b, S: s, Valid: rapid.SliceOfN(rapid.Bool(), b*s, b*s).Draw(r, "valid")}
		got := v.RollWhole(frame(v.B, v.S))
		for i, ok := range got.Valid {
			if ok {
				require.Less(r, i%s+1, s, "valid beyond the end of the row")
				require.True(r, v.Valid[i+1], "valid although its token was padding")
			}
		}
	})
}

func TestI4_ShardsJoinToTheSameMask(t *testing.T) { // unpacked case, context parallel 1
	rapid.Check(t, func(r *rapid.T) {
		b, tp := rapid.IntRange(1, 3).Draw(r, "b"), rapid.SampledFrom([]int{1, 2, 3, 4}).Draw(r, "tp")
		local := rapid.IntRange(1, 4).Draw(r, "local")
		s := local * tp
		p := &nn.PadMask{B: b, S: s, Pad: rapid.SliceOfN(rapid.Bool(), b*s, b*s).Draw(r, "pad")}
		shards := make([][]bool, tp)
		for rank := range tp {
			shards[rank] = p.Shard(rank, tp).Pad
		}
		require.Equal(r, p, nn.JoinPadMask(shards, b, local))
	})
}
