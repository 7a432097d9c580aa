package data_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/golden"
	"phalanx/nn"
)

// ints is a list of ids as a scenario has it.
func ints(ids []int32) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out
}

// bits is a list of flags as a scenario has it.
func bits(flags []bool) []int {
	out := make([]int, len(flags))
	for i, f := range flags {
		if f {
			out[i] = 1
		}
	}
	return out
}

// eachBatch visits the microbatches of a reference case with the token counts that it expects: LM, then each depth.
func eachBatch(t *testing.T, name string, visit func(m *nn.Microbatch, counts []int64)) {
	t.Helper()
	dir, err := golden.Dir()
	require.NoError(t, err)
	c, err := golden.Load(filepath.Join(dir, name+".json"))
	require.NoError(t, err)
	defer c.Close()
	for i, step := range c.Steps {
		for j, scalars := range step.Microbatches {
			m, err := c.Microbatch(i, j)
			require.NoError(t, err)
			visit(m, append([]int64{scalars.LMTokens}, scalars.MTPTokens...))
		}
	}
}

func TestPackedRowsOfTheReferenceCase(t *testing.T) {
	eachBatch(t, "moe-packed", func(m *nn.Microbatch, counts []int64) {
		whole := config.Row{Tokens: ints(m.IDs), Labels: ints(m.Labels), LossMask: make([]int, 16), PaddingMask: bits(m.Pad.Pad),
			Documents: []int{5, 6, 3, 2}}
		for i, w := range m.Loss.Weight {
			whole.LossMask[i] = int(w)
		}
		require.Equal(t, m, batch(t, 16, whole), "everything said")
		require.Equal(t, counts, counted(batch(t, 16, whole), 2))
		whole.Documents, whole.CuSeqlens = nil, []int{0, 5, 11, 14, 16}
		require.Equal(t, m, batch(t, 16, whole), "in Megatron's words")

		got := batch(t, 16, config.Row{Tokens: ints(m.IDs[:14]), Documents: []int{5, 6, 3}})
		require.Equal(t, m.Docs, got.Docs, "the tail is a document")
		require.Equal(t, m.Loss, got.Loss, "the label of the last token is not known")
		require.Equal(t, m.Pad, got.Pad)
		require.Equal(t, m.Positions, got.Positions)
		require.Equal(t, m.IDs, got.IDs)
		require.Equal(t, counts, counted(got, 2))
	})
}

func TestPaddedRowsOfTheReferenceCase(t *testing.T) {
	eachBatch(t, "moe-packed-padded", func(m *nn.Microbatch, counts []int64) {
		row := config.Row{Tokens: ints(m.IDs), Labels: ints(m.Labels), Documents: []int{5, 7, 1}, DocumentsPadded: []int{8, 8, 4}}
		for range 2 {
			s := rowsScenario(20, row)
			s.Dataset.LossMask = "absent"
			got := open(t, s).Train.Microbatch(0, 0)
			require.Equal(t, m, got)
			require.Equal(t, counts, counted(got, 2), "logical ends alone keep padding out of the depths")
			row.Documents, row.DocumentsPadded = nil, nil
			row.CuSeqlens, row.CuSeqlensPadded = []int{0, 5, 12, 13}, []int{0, 8, 16, 20}
		}
		synthetic := batch(t, 20, config.Row{Documents: []int{5, 7, 1}, DocumentsPadded: []int{8, 8, 4}})
		require.Equal(t, m.Docs, synthetic.Docs)
		require.Equal(t, m.Pad, synthetic.Pad)
		require.Equal(t, m.Positions, synthetic.Positions)
		require.Equal(t, []int64{13, 10, 8}, counted(synthetic, 2))
	})
}
