package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/nn"
)

// Batch T1 of docs/examples.md, A1 and A7: N = 8, 6, 4; each depth has a denominator of its own.
func TestT1(t *testing.T) {
	for _, l := range layouts {
		s := scenario(2, l)
		s.Model.MTPLossScaling = 0.3
		r := reported(t, s, nil, t1())
		require.Equal(t, []int64{8, 6, 4}, counted(r), "%+v", l)
		require.InDelta(t, 1.0/8, r.Terms[0].Shares[0].TokenWeight, 1e-15)
		require.InDelta(t, 0.025, r.Terms[1].Shares[0].TokenWeight, 1e-15)
		require.InDelta(t, 0.0375, r.Terms[2].Shares[0].TokenWeight, 1e-15)
		require.Equal(t, []int64{8, 6, 4}, []int64{r.Terms[0].RouterValid, r.Terms[1].RouterValid, r.Terms[2].RouterValid})
		require.Equal(t, []int32{7, 4, 9, 2, 1, 1, 1, 0}, r.Rows[0].Terms[1].Labels)
		require.Equal(t, []int32{2, 1, 1, 1, 1, 1, 0, 0}, r.Rows[1].Terms[2].Labels)
	}
}

// A1: withheld, a depth counts every label that the roll has left.
func TestWithheld(t *testing.T) {
	s := scenario(1, single)
	s.Model.MTPLossMask = "withheld"
	r := reported(t, s, nil, t1())
	require.Equal(t, []int64{8, 14}, counted(r))
	require.EqualValues(t, 6, r.Terms[1].DataTokens)
	require.EqualValues(t, 8, r.states(1, Leaked))
	require.Equal(t, []State{Counted, Counted, Counted, Counted, Leaked, Leaked, Leaked, Filled}, r.Rows[0].Terms[1].State)
	require.Contains(t, r.Notes[0], "mtp_1 counts 14, the data's mask 6")
	require.Equal(t, []int64{5, 14}, counted(reported(t, s, nil, rowsOf(8, 5, 0))))
}

// A2: a row of 5 has 4, 3, 2 valid positions; an empty row none.
func TestPaddingOfDepths(t *testing.T) {
	for _, l := range layouts {
		r := reported(t, scenario(3, l), nil, rowsOf(8, 5, 0))
		for k := range 4 {
			require.Equal(t, upTo(5-k), zeros(r.Rows[0].Terms[k].PaddingMask), "%+v depth %d", l, k)
			require.Empty(t, zeros(r.Rows[1].Terms[k].PaddingMask))
			require.EqualValues(t, 5-k, r.Terms[k].RouterValid)
		}
		require.Contains(t, r.Notes, "row 1 is all padding")
	}
}

// A3 and D6: shards of a tensor-parallel group are no sequences.
func TestSequenceParallel(t *testing.T) {
	for _, tp := range []int{1, 2, 4} {
		r := reported(t, scenario(2, layout{tp, 1, 1, true}), nil, rowsOf(8, 7))
		require.Equal(t, upTo(6), zeros(r.Rows[0].Terms[1].PaddingMask))
		require.Equal(t, upTo(5), zeros(r.Rows[0].Terms[2].PaddingMask))
		if tp == 1 {
			require.Nil(t, r.Rows[0].TPRank)
			continue
		}
		for i, owner := range r.Rows[0].TPRank {
			require.Equal(t, i*tp/8, owner)
		}
	}
}

// A5: physical places, logical ends.
func TestPackedWithPlaces(t *testing.T) {
	for _, l := range []layout{single, {1, 2, 1, false}, {2, 2, 1, true}} {
		r := reported(t, scenario(1, l), nil, packed([]int{3, 5}, []int{4, 8}))
		depth := r.Rows[0].Terms[1]
		require.Equal(t, []int32{12, 13, 0, 0, 22, 23, 24, 25, 0, 0, 0, 0}, depth.InputIDs)
		require.Equal(t, []int{1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}, depth.LossMask)
		require.Equal(t, []int32{1, 2, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}, depth.PositionIDs)
		require.EqualValues(t, 6, r.Terms[1].Tokens)
		require.EqualValues(t, 6, r.Terms[1].RouterValid)
		require.Equal(t, []int{0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, r.Rows[0].Document)
		require.Equal(t, []Document{{0, 3, 4}, {4, 5, 8}}, r.Rows[0].Documents)
	}
}

// C5: zigzag, rank 0 [1,2,7,F], rank 1 [3,4,5,6].
func TestZigzag(t *testing.T) {
	mb := rowsOf(8, 8)
	for i := range mb.IDs {
		mb.IDs[i] = int32(i)
	}
	r := reported(t, scenario(1, layout{1, 2, 1, false}), nil, mb)
	require.Equal(t, []int{0, 1, 6, 7}, r.Ranks[0].Rows[0].Positions)
	require.Equal(t, []int{0, 0, 3, 3}, r.Ranks[0].Rows[0].Chunk)
	require.Equal(t, []int{2, 3, 4, 5}, r.Ranks[1].Rows[0].Positions)
	require.Equal(t, []int{1, 1, 2, 2}, r.Ranks[1].Rows[0].Chunk)
	require.Equal(t, []int32{1, 2, 7, 0}, r.Ranks[0].Rows[0].Terms[1].InputIDs)
	require.Equal(t, []int32{3, 4, 5, 6}, r.Ranks[1].Rows[0].Terms[1].InputIDs)
	require.Equal(t, []int{0, 0, 1, 1, 1, 1, 0, 0}, r.Rows[0].CPRank)
	require.Equal(t, []int{0, 1, 0, 1, 2, 3, 2, 3}, r.Rows[0].Slot)
}

// A9: one target, and where it lies.
func TestFewTargets(t *testing.T) {
	l := layout{1, 2, 1, false}
	r := reported(t, scenario(1, l), nil, rowsOf(8, 2, 0))
	require.Equal(t, []int64{1, 0}, []int64{r.Terms[1].Shares[0].Tokens, r.Terms[1].Shares[1].Tokens})
	require.Equal(t, []int{1, 0, 0, 0, 0, 0, 0, 0}, r.Rows[0].Terms[1].LossMask)
	require.Contains(t, fmt.Sprint(r.Notes), "mtp_1 counts no token on cp 1 in this microbatch")

	mb := rowsOf(8, 8)
	mb.Loss.Weight = []float32{0, 0, 1, 0, 0, 0, 0, 0}
	r = reported(t, scenario(1, l), nil, mb)
	require.Equal(t, []int{0, 1, 0, 0, 0, 0, 0, 0}, r.Rows[0].Terms[1].LossMask)
	require.Equal(t, 0, r.Rows[0].CPRank[1])
	require.EqualValues(t, 1, r.Terms[1].Shares[0].Divisor)
	require.InDelta(t, 0.1, r.Terms[1].Shares[0].TokenWeight, 1e-15)
}

// A length that 2·CP does not divide: slots without a token, which nobody counts.
func TestInsertedSlots(t *testing.T) {
	r := reported(t, scenario(1, layout{1, 2, 1, false}), nil, rowsOf(7, 7))
	require.Equal(t, []int{0, 1, 6, -1}, r.Ranks[0].Rows[0].Positions)
	require.Equal(t, 1, r.Ranks[0].Inserted)
	require.Equal(t, []State{Counted, Counted, Counted, Inserted}, r.Ranks[0].Rows[0].Terms[0].State)
	require.EqualValues(t, 7, r.Terms[0].RouterValid)
	require.EqualValues(t, 8, r.Terms[0].RouterSlots)
	require.Contains(t, fmt.Sprint(r.Notes), "inserted slots (over 1 rows) cp 0 1;")

	r = reported(t, scenario(1, layout{1, 4, 1, false}), nil, packed([]int{3, 9}, []int{3, 9}))
	require.Contains(t, fmt.Sprint(r.Notes), "shorter than 2·CP = 8 positions, so that some of their chunks hold nothing: row 0 document 0 (3)")
}

// Without padding mask, nothing keeps padding and what a roll filled in out of routers.
func TestAbsentPaddingMask(t *testing.T) {
	mb := rowsOf(8, 8)
	mb.Pad = nil
	r := reported(t, scenario(2, single), nil, mb)
	require.Nil(t, r.Rows[0].Terms[0].PaddingMask)
	require.EqualValues(t, 8, r.Terms[2].RouterValid)
	require.EqualValues(t, 2, r.Terms[2].RouterLeaks)
	require.Equal(t, []int{6, 7}, r.Rows[0].Terms[2].RouterLeaks)
	require.Contains(t, r.Notes[0], "no padding mask; routers count positions that are padding or that a roll filled in: mtp_1 1 of 8, mtp_2 2 of 8")
}

// Counts follow from lengths alone: a document of n tokens has max(n−k, 0) at depth k, on any layout.
func TestLengthsGiveCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 5).Draw(rt, "lengths")
		var places []int
		for _, n := range lengths {
			places = append(places, n+rapid.IntRange(0, 3).Draw(rt, "extra"))
		}
		places[0] = max(places[0], 1)
		l := rapid.SampledFrom(layouts).Draw(rt, "layout")
		r := reported(t, scenario(3, l), nil, packed(lengths, places))
		for k, term := range r.Terms {
			want := int64(0)
			for _, n := range lengths {
				want += int64(max(n-k, 0))
			}
			require.Equal(rt, want, term.Tokens)
			require.Equal(rt, want, term.RouterValid)
			require.EqualValues(rt, want, count(r.Rows[0].Terms[k].LossMask, 1))
			require.Zero(rt, term.RouterLeaks+term.RouterSkips)
			require.Zero(rt, r.states(k, Leaked)+r.states(k, Wrong)+r.states(k, Inserted))
		}
	})
}

// Planted bugs show as the ranks see them: A2's and A3's wrong values.
func TestPlanted(t *testing.T) {
	s := scenario(2, layout{2, 1, 1, true})
	s.Mutate = []string{"shard_roll"}
	r := reported(t, s, nil, rowsOf(8, 7))
	require.Equal(t, []int{0, 1, 2, 4, 5}, zeros(r.Rows[0].Terms[1].PaddingMask))
	require.Equal(t, []int{0, 1, 4}, zeros(r.Rows[0].Terms[2].PaddingMask))
	require.Equal(t, []int{3}, r.Rows[0].Terms[1].RouterSkips)

	s = scenario(3, single)
	s.Mutate = []string{"mask_fill_wrong"}
	r = reported(t, s, nil, rowsOf(8, 5, 0))
	require.Equal(t, []int{0, 1, 5, 6, 7}, zeros(r.Rows[0].Terms[3].PaddingMask))
	require.Equal(t, []int{5, 6, 7}, r.Rows[1].Terms[3].RouterLeaks)

	s = scenario(1, layout{1, 2, 1, false})
	s.Mutate = []string{"wrong_cp_layout_roll"}
	r = reported(t, s, nil, rowsOf(8, 8))
	require.Equal(t, []int32{11, 16, 17, 12}, r.Ranks[0].Rows[0].Terms[1].InputIDs)
	require.Positive(t, r.states(1, Wrong))
	require.Contains(t, r.Notes[0], "planted: wrong_cp_layout_roll")
}

func TestOutOfRange(t *testing.T) {
	s := scenario(0, single)
	var outside *RangeError
	_, err := newSubject(&s, data1(), Options{Step: 4})
	require.ErrorAs(t, err, &outside)
	require.EqualError(t, err, "found --step 4, expected 1 to 3")
	_, err = newSubject(&s, data1(), Options{Step: 1, Microbatch: 1})
	require.EqualError(t, err, "found --microbatch 1, expected 0 to 0")
	_, err = newSubject(&s, data1(), Options{})
	require.EqualError(t, err, "found --step 0, expected 1 to 3")
}

// No depths: one term, and a word about it.
func TestNoDepths(t *testing.T) {
	r := reported(t, scenario(0, single), nil, rowsOf(4, 3))
	require.Len(t, r.Terms, 1)
	require.Empty(t, r.Masks.Depths)
	require.Contains(t, r.Notes, "no MTP depth: model.mtp_num_layers is 0")
}

// A mask of ones has no weights.
func TestAllOnes(t *testing.T) {
	mb := rowsOf(4, 3)
	mb.Loss = &nn.LossMask{B: 1, S: 4, AllOnes: true}
	r := reported(t, scenario(1, layout{1, 2, 1, false}), nil, mb)
	require.Equal(t, []int64{4, 3}, counted(r))
	require.Equal(t, "ones", r.Masks.Loss)
	require.Equal(t, []State{Counted, Counted, Counted, Leaked}, r.Rows[0].Terms[0].State)
}
