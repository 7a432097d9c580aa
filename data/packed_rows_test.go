package data_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/data"
	"phalanx/nn"
)

// batch opens rows of length s and a vocabulary of 32 as one microbatch; 1 is the pad token.
func batch(t require.TestingT, s int, rows ...config.Row) *nn.Microbatch {
	d, err := data.Open(rowsScenario(s, rows...))
	require.NoError(t, err)
	return d.Train.Microbatch(0, 0)
}

func rowsScenario(s int, rows ...config.Row) *config.Scenario {
	sc := scenario("rows", len(rows), 1, s, 32)
	sc.Dataset.Rows, sc.Dataset.PadToken = rows, 1
	return sc
}

// counted is the labels that the LM loss and each depth count.
func counted(m *nn.Microbatch, depths int) []int64 {
	f := nn.NewFrames(m.Docs, m.B, m.S, 1, 1)[0]
	n, mask := []int64{m.Loss.Count()}, m.Loss
	for range depths {
		mask = mask.RollWhole(f)
		n = append(n, mask.Count())
	}
	return n
}

// drawn is documents that fit a row of s positions, as logical and physical lengths.
func drawn(t *rapid.T, s int) (logical, physical []int) {
	for left := s; len(logical) == 0 || rapid.Bool().Draw(t, "another"); {
		place := rapid.IntRange(0, left).Draw(t, "place")
		logical = append(logical, rapid.IntRange(0, place).Draw(t, "length"))
		physical = append(physical, place)
		left -= place
	}
	return logical, physical
}

// bounds is Megatron's spelling of lengths.
func bounds(lengths []int) []int {
	out := []int{0}
	for _, n := range lengths {
		out = append(out, out[len(out)-1]+n)
	}
	return out
}

// TestSyntheticDocuments: every position of a row of synthetic documents, by arithmetic on their lengths.
func TestSyntheticDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.IntRange(1, 20).Draw(t, "s")
		logical, physical := drawn(t, s)
		m := batch(t, s, config.Row{Documents: logical, DocumentsPadded: physical})
		require.Equal(t, m, batch(t, s, config.Row{CuSeqlens: bounds(logical), CuSeqlensPadded: bounds(physical)}))
		at, want := 0, make([]int64, 4)
		for i, n := range logical {
			require.Equal(t, nn.Doc{Start: at, Logical: n, Physical: physical[i]}, m.Docs[0][i])
			for o := range physical[i] {
				p := at + o
				require.EqualValues(t, o, m.Positions[p])
				require.Equal(t, o >= n, m.Pad.Pad[p])
				require.Equal(t, o < n, m.Loss.At(0, p) == 1, "n tokens, n labels")
				switch {
				case o >= n:
					require.EqualValues(t, []int32{1, 1}, []int32{m.IDs[p], m.Labels[p]}, "pad tokens")
				case o+1 < n:
					require.Equal(t, m.IDs[p+1], m.Labels[p])
				}
			}
			for depth := range want {
				want[depth] += int64(max(n-depth, 0))
			}
			at += physical[i]
		}
		for p := at; p < s; p++ { // the tail
			require.EqualValues(t, p-at, m.Positions[p])
			require.True(t, m.Pad.Pad[p])
			require.Zero(t, m.Loss.At(0, p))
		}
		require.Equal(t, want, counted(m, 3))
	})
}

// TestDocumentsOfTokens: labels of given tokens stay inside their document, the tail's too.
func TestDocumentsOfTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.IntRange(1, 20).Draw(t, "s")
		logical, physical := drawn(t, s)
		ends := bounds(physical)
		n := rapid.IntRange(max(ends[len(ends)-1], 1), s).Draw(t, "tokens")
		tokens := rapid.SliceOfN(rapid.IntRange(2, 31), n, n).Draw(t, "ids")
		m := batch(t, s, config.Row{Tokens: tokens, Documents: logical, DocumentsPadded: physical})
		tail := n - ends[len(ends)-1]
		count := max(tail-1, 0)
		for i, length := range append(slices.Clone(logical), tail) {
			from := ends[i]
			for o := range length {
				p := from + o
				require.False(t, m.Pad.Pad[p])
				require.Equal(t, o+1 < length, m.Loss.At(0, p) == 1)
				if o+1 < length {
					require.EqualValues(t, tokens[p+1], m.Labels[p])
				} else {
					require.EqualValues(t, 1, m.Labels[p], "not known")
				}
			}
			if i < len(logical) {
				count += max(length-1, 0)
			}
		}
		require.EqualValues(t, count, m.Loss.Count())
		for p := range s {
			require.Equal(t, p < n, int(m.IDs[p]) != 1 || p < n && tokens[p] == 1)
		}
	})
}

func TestDocumentsStandAlone(t *testing.T) {
	plain, one := batch(t, 12, config.Row{Valid: ptr(7)}), batch(t, 12, config.Row{Documents: []int{7}})
	require.Equal(t, []any{plain.IDs, plain.Labels, plain.Loss}, []any{one.IDs, one.Labels, one.Loss}, "valid: 7 is a document of 7")
	require.Nil(t, plain.Docs)
	require.Equal(t, nn.Docs{{{Start: 0, Logical: 7, Physical: 7}, {Start: 7, Logical: 5, Physical: 5}}}, one.Docs)
	a := batch(t, 12, config.Row{Documents: []int{2, 4}, DocumentsPadded: []int{4, 8}})
	b := batch(t, 12, config.Row{Documents: []int{7, 4, 1}})
	require.Equal(t, a.IDs[4:8], b.IDs[7:11], "a document's tokens do not depend on what is beside it")
	require.Equal(t, a.Labels[4:8], b.Labels[7:11])
}

// TestUnpaddedBoundaries is A5 of docs/examples.md: documents of 3 and 5 in places of 4 and 8, one roll.
func TestUnpaddedBoundaries(t *testing.T) {
	s := rowsScenario(12, config.Row{Tokens: []int{11, 12, 13, 0, 21, 22, 23, 24, 25, 0, 0, 0}, Documents: []int{3, 5}, DocumentsPadded: []int{4, 8},
		Labels: []int{12, 13, 14, 0, 22, 23, 24, 25, 26, 0, 0, 0}})
	m := open(t, s).Train.Microbatch(0, 0)
	f := nn.NewFrames(m.Docs, 1, 12, 1, 1)[0]
	require.Equal(t, []int32{12, 13, 0, 0, 22, 23, 24, 25, 0, 0, 0, 0}, nn.RollWhole(f, m.IDs))
	require.Equal(t, []float32{1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}, m.Loss.RollWhole(f).Weight)
	require.Equal(t, []int64{8, 6}, counted(m, 1))
}

// TestWaysToAskForDocuments shows the same documents in every way of asking, nothing overwrites them.
func TestWaysToAskForDocuments(t *testing.T) {
	tokens := []int{5, 6, 7, 8, 9, 10, 11, 12}
	want := batch(t, 8, config.Row{Tokens: tokens, Documents: []int{3, 5}})
	require.Equal(t, nn.Docs{{{Start: 0, Logical: 3, Physical: 3}, {Start: 3, Logical: 5, Physical: 5}}}, want.Docs)
	require.Equal(t, []float32{1, 1, 0, 1, 1, 1, 1, 0}, want.Loss.Weight)
	for name, row := range map[string]config.Row{
		"boundaries":            {CuSeqlens: []int{0, 3, 8}},
		"with a mask of all":    {CuSeqlens: []int{0, 3, 8}, PaddingMask: make([]int, 8)},
		"without the total":     {CuSeqlens: []int{0, 3}},
		"places of the lengths": {Documents: []int{3, 5}, DocumentsPadded: []int{3, 5}},
	} {
		row.Tokens = tokens
		require.Equal(t, want, batch(t, 8, row), name)
	}
}

func TestRowsOfBothSorts(t *testing.T) {
	m := batch(t, 8, config.Row{Valid: ptr(5)}, config.Row{Documents: []int{1, 0, 2}}, config.Row{Tokens: []int{3}})
	require.Equal(t, nn.Docs{nil, {{Start: 0, Logical: 1, Physical: 1}, {Start: 1}, {Start: 1, Logical: 2, Physical: 2}, {Start: 3, Logical: 5, Physical: 5}}, nil}, m.Docs)
	require.Equal(t, []int64{8, 5, 3}, counted(m, 2))
	wellFormed(t, m, 32)
	sc := scenario("rows", 1, 3, 8, 32)
	sc.Dataset.Rows = []config.Row{{Valid: ptr(5)}, {Valid: ptr(4)}, {Documents: []int{3}}}
	require.Equal(t, nn.Docs{nil}, open(t, sc).Train.Microbatch(0, 1).Docs, "documents are there in every microbatch or in none")
}

func TestPackedRowMasks(t *testing.T) {
	docs := config.Row{Documents: []int{3, 2}, DocumentsPadded: []int{4, 3}}
	weights := func(change func(r *config.Row)) []float32 {
		r := docs
		change(&r)
		return batch(t, 8, r).Loss.Weight
	}
	require.Equal(t, []float32{0, 1, 1, 0, 1, 0, 0, 0}, weights(func(r *config.Row) { r.Answer = &[2]int{1, 5} }))
	require.Equal(t, []float32{1, 1, 0, 0, 1, 1, 0, 0}, weights(func(r *config.Row) { r.PaddingMask = []int{0, 0, 1, 1, 0, 0, 1} }))
	require.Equal(t, []float32{0, 1, 0, 1, 1, 0, 0, 0}, weights(func(r *config.Row) { r.LossMask = []int{0, 1, 0, 1, 1, 0, 0} }), "what loss_mask says")
	require.Equal(t, []float32{0, 1, 1, 0, 1, 1, 0, 0}, weights(func(r *config.Row) { r.Labels = []int{-100, 3, 3, 3, 3, 3, 3} }))
	s := rowsScenario(8, docs)
	s.Dataset.PaddingMask = "absent"
	require.Nil(t, open(t, s).Train.Microbatch(0, 0).Pad)
}

func TestPositionIDs(t *testing.T) {
	m := batch(t, 8, config.Row{Documents: []int{3, 2}, PositionIDs: []int{7, 0, 3, 1, 1}}, config.Row{Valid: ptr(2), PositionIDs: []int{5, 5}})
	require.Equal(t, []int32{7, 0, 3, 1, 1, 0, 1, 2, 5, 5, 2, 3, 4, 5, 6, 7}, m.Positions)
}

func TestPackedRowSummary(t *testing.T) {
	d := open(t, rowsScenario(8, config.Row{Valid: ptr(5)}, config.Row{Documents: []int{3, 1}, DocumentsPadded: []int{4, 2}}))
	require.Equal(t, "rows: 2 rows of 8, 9 tokens in 3 documents, 56.2 % of positions are tokens, vocabulary of 32", d.Summary)
	s := referenceScenario(t, "moe-packed")
	s.Train.MicroBatchSize, s.Train.GlobalBatchSize = 1, 2
	require.Equal(t, "reference: case moe-packed, 3 steps of 2 microbatches of 1 row of 16, vocabulary of 32, 4.0 documents a row", open(t, s).Summary)
}

func TestPackedRowProblems(t *testing.T) {
	s := rowsScenario(8,
		config.Row{Documents: []int{3}, CuSeqlens: []int{0, 3}},
		config.Row{Documents: []int{3, -1}},
		config.Row{CuSeqlens: []int{0, 4, 3}},
		config.Row{Documents: []int{3, 1}, DocumentsPadded: []int{4}},
		config.Row{Documents: []int{5, 4}},
		config.Row{Documents: []int{5, 1}, DocumentsPadded: []int{5, 5}},
		config.Row{CuSeqlens: []int{0, 9}},
		config.Row{Tokens: []int{5, 6}, Documents: []int{3}},
		config.Row{Valid: ptr(2), Tokens: []int{5, 6}, Documents: []int{2}},
		config.Row{Valid: ptr(3), Documents: []int{2}},
		config.Row{Documents: []int{2}, DocumentsPadded: []int{4}, PaddingMask: []int{0, 0, 1, 0}},
		config.Row{Documents: []int{2}, PositionIDs: []int{0, 1, 2}, Labels: []int{1}},
		config.Row{Documents: []int{2}, PositionIDs: []int{8, -1}})
	require.Equal(t, `dataset.rows[0].cu_seqlens: is given beside documents, which says the same thing; remove one of the two
dataset.rows[1].documents.1: found -1, expected a length from 0 to 131072
dataset.rows[2].cu_seqlens.2: found 3, expected the end of document 1, from 4 to 131072; boundaries never fall
dataset.rows[3].documents_padded: has length 1, expected 2, as documents
dataset.rows[4].documents: found 9 positions, expected at most seq_length 8
dataset.rows[5].documents_padded: found 10 positions, expected at most seq_length 8
dataset.rows[6].cu_seqlens: found 9 positions, expected at most seq_length 8
dataset.rows[7].tokens: has length 2, expected at least 3, one for each position of the documents' places, padding written out
dataset.rows[8].valid: found valid and tokens both set or both missing, expected one of them, or documents
dataset.rows[9].valid: found 3, expected 2, the tokens of the documents; or remove valid
dataset.rows[10].padding_mask.3: found 0, expected 1: document 0 has length 2 in a place of 4, and the rest is padding
dataset.rows[11].labels: found 1 entries, expected 2, one per token
dataset.rows[11].position_ids: found 3 entries, expected 2, one per token
dataset.rows[12].position_ids: found 8 at 0, expected a position from 0 to 7, below seq_length
dataset.rows[12].position_ids: found -1 at 1, expected a position from 0 to 7, below seq_length`, refused(t, s))
}
