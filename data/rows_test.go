package data_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// ptr is the address of a value.
func ptr[T any](n T) *T { return &n }

// one opens a single row of length s and gives its microbatch's ids, labels, loss weights and padding.
func one(t *testing.T, s int, row config.Row) (ids, labels []int32, weight []float32, pad []bool) {
	t.Helper()
	sc := scenario("rows", 1, 1, s, 16)
	sc.Dataset.Rows, sc.Dataset.PadToken = []config.Row{row}, 1
	m := open(t, sc).Train.Microbatch(0, 0)
	wellFormed(t, m, 16)
	return m.IDs, m.Labels, m.Loss.Weight, m.Pad.Pad
}

func TestRowConventions(t *testing.T) {
	const T, F = true, false
	for name, c := range map[string]struct {
		row    config.Row
		ids    []int32
		labels []int32
		weight []float32
		pad    []bool
	}{
		"tokens: the last label is not known": {config.Row{Tokens: []int{5, 6, 7}},
			[]int32{5, 6, 7, 1, 1}, []int32{6, 7, 1, 1, 1}, []float32{1, 1, 0, 0, 0}, []bool{F, F, F, T, T}},
		"labels: every one counts": {config.Row{Tokens: []int{5, 6, 7}, Labels: []int{6, 7, 8}},
			[]int32{5, 6, 7, 1, 1}, []int32{6, 7, 8, 1, 1}, []float32{1, 1, 1, 0, 0}, []bool{F, F, F, T, T}},
		"-100: mask 0, label 0": {config.Row{Tokens: []int{5, 6, 7}, Labels: []int{-100, 7, -100}},
			[]int32{5, 6, 7, 1, 1}, []int32{0, 7, 0, 1, 1}, []float32{0, 1, 0, 0, 0}, []bool{F, F, F, T, T}},
		"-100 under a loss mask": {config.Row{Tokens: []int{5, 6, 7}, Labels: []int{-100, 7, 8}, LossMask: []int{1, 1, 0}},
			[]int32{5, 6, 7, 1, 1}, []int32{0, 7, 8, 1, 1}, []float32{0, 1, 0, 0, 0}, []bool{F, F, F, T, T}},
		"loss mask": {config.Row{Tokens: []int{5, 6, 7}, LossMask: []int{0, 1, 1}},
			[]int32{5, 6, 7, 1, 1}, []int32{6, 7, 1, 1, 1}, []float32{0, 1, 1, 0, 0}, []bool{F, F, F, T, T}},
		"padding mask": {config.Row{Tokens: []int{5, 6, 1, 1, 1}, PaddingMask: []int{0, 0, 1, 1, 1}},
			[]int32{5, 6, 1, 1, 1}, []int32{6, 1, 1, 1, 1}, []float32{1, 0, 0, 0, 0}, []bool{F, F, T, T, T}},
		"labels and padding mask": {config.Row{Tokens: []int{5, 6, 1, 1, 1}, Labels: []int{6, 7, 1, 1, 1}, PaddingMask: []int{0, 0, 1, 1, 1}},
			[]int32{5, 6, 1, 1, 1}, []int32{6, 7, 1, 1, 1}, []float32{1, 1, 0, 0, 0}, []bool{F, F, T, T, T}},
		"answer": {config.Row{Tokens: []int{5, 6, 7, 8}, Labels: []int{6, 7, 8, 9}, Answer: &[2]int{1, 3}},
			[]int32{5, 6, 7, 8, 1}, []int32{6, 7, 8, 9, 1}, []float32{0, 1, 1, 0, 0}, []bool{F, F, F, F, T}},
		"the pad token inside the row is a token": {config.Row{Tokens: []int{1, 1, 1}, Labels: []int{1, 1, 1}},
			[]int32{1, 1, 1, 1, 1}, []int32{1, 1, 1, 1, 1}, []float32{1, 1, 1, 0, 0}, []bool{F, F, F, T, T}},
		"nothing": {config.Row{Tokens: []int{}},
			[]int32{1, 1, 1, 1, 1}, []int32{1, 1, 1, 1, 1}, []float32{0, 0, 0, 0, 0}, []bool{T, T, T, T, T}},
		"valid: 0": {config.Row{Valid: ptr(0)},
			[]int32{1, 1, 1, 1, 1}, []int32{1, 1, 1, 1, 1}, []float32{0, 0, 0, 0, 0}, []bool{T, T, T, T, T}},
	} {
		ids, labels, weight, pad := one(t, 5, c.row)
		require.Equal(t, c.ids, ids, name)
		require.Equal(t, c.labels, labels, name)
		require.Equal(t, c.weight, weight, name)
		require.Equal(t, c.pad, pad, name)
	}
}

func TestValidRows(t *testing.T) {
	for n := range 9 {
		ids, labels, weight, pad := one(t, 8, config.Row{Valid: ptr(n)})
		for i := range 8 {
			require.Equal(t, i >= n, pad[i])
			require.Equal(t, i < n, weight[i] == 1, "n inputs, n labels")
			if i+1 < n {
				require.Equal(t, ids[i+1], labels[i])
			}
		}
	}
	_, _, weight, _ := one(t, 8, config.Row{Valid: ptr(6), Answer: &[2]int{4, 6}})
	require.Equal(t, []float32{0, 0, 0, 0, 1, 1, 0, 0}, weight)
	_, _, weight, pad := one(t, 8, config.Row{Valid: ptr(3), PaddingMask: []int{0, 1, 0}})
	require.Equal(t, []float32{1, 0, 1, 0, 0, 0, 0, 0}, weight)
	require.Equal(t, []bool{false, true, false, true, true, true, true, true}, pad)
}

// TestPaddingIsByPosition: rows of 5 and 3 labels with the pad label 2, which is also the true end (G6).
func TestPaddingIsByPosition(t *testing.T) {
	s := scenario("rows", 2, 1, 8, 16)
	s.Dataset.PadToken = 2
	s.Dataset.Rows = []config.Row{
		{Tokens: []int{3, 5, 7, 4, 9}, Labels: []int{5, 7, 4, 9, 2}}, {Tokens: []int{3, 6, 8}, Labels: []int{6, 8, 2}}}
	m := open(t, s).Train.Microbatch(0, 0)
	require.EqualValues(t, 8, m.Loss.Count())
	twos := 0
	for i, y := range m.Labels {
		if y == 2 && m.Loss.At(i/8, i%8) == 1 {
			twos++
		}
	}
	require.Equal(t, 2, twos, "both true ends are targets")
}

func TestMaskPresence(t *testing.T) {
	s := scenario("rows", 1, 1, 4, 16)
	s.Dataset.Rows = []config.Row{{Valid: ptr(2)}}
	s.Dataset.PaddingMask, s.Dataset.LossMask = "absent", "absent"
	m := open(t, s).Train.Microbatch(0, 0)
	require.Nil(t, m.Pad)
	require.True(t, m.Loss.AllOnes)
	require.EqualValues(t, 4, m.Loss.Count())
	s.Dataset.Rows = []config.Row{{Valid: ptr(4)}}
	s.Dataset.PaddingMask, s.Dataset.LossMask = "present", "present"
	m = open(t, s).Train.Microbatch(0, 0)
	require.Equal(t, make([]bool, 4), m.Pad.Pad)
	require.Equal(t, []float32{1, 1, 1, 1}, m.Loss.Weight)
}

func TestRowsFillTheStep(t *testing.T) {
	s := scenario("rows", 2, 2, 4, 16)
	s.Dataset.Rows = []config.Row{{Tokens: []int{1}}, {Tokens: []int{2}}, {Tokens: []int{3}}}
	d := open(t, s)
	first := func(step, mb int) [2]int32 {
		m := d.Train.Microbatch(step, mb)
		return [2]int32{m.IDs[0], m.IDs[4]}
	}
	for step := range 3 { // fewer rows than a step takes: every step is the same
		require.Equal(t, [2]int32{1, 2}, first(step, 0))
		require.Equal(t, [2]int32{3, 1}, first(step, 1))
	}
	s.Dataset.Rows = append(s.Dataset.Rows, config.Row{Tokens: []int{4}}, config.Row{Tokens: []int{5}})
	d = open(t, s)
	require.Equal(t, [2]int32{1, 2}, first(0, 0))
	require.Equal(t, [2]int32{5, 1}, first(1, 0), "more rows than a step takes: the next step goes on")
	require.Equal(t, [2]int32{2, 3}, first(1, 1))
}

func TestRepeatedSyntheticRowsDiffer(t *testing.T) { // docs/examples.md, M2
	s := scenario("rows", 1, 4, 16, 16)
	s.Dataset.Rows = []config.Row{{Valid: ptr(16)}}
	d := open(t, s)
	for mb := 1; mb < 4; mb++ {
		require.NotEqual(t, d.Train.Microbatch(0, 0).IDs, d.Train.Microbatch(0, mb).IDs)
	}
	require.Equal(t, d.Train.Microbatch(0, 1).IDs, d.Train.Microbatch(5, 1).IDs, "explicit rows are the same at every step")
	require.Equal(t, "rows: 1 row of 16, 16 tokens, vocabulary of 16", d.Summary)
}

func TestRowProblems(t *testing.T) {
	s := scenario("rows", 1, 1, 4, 16)
	require.Equal(t, "dataset.rows: found no rows, expected at least one", refused(t, s))
	s.Dataset.Rows = []config.Row{
		{},
		{Valid: ptr(2), Tokens: []int{1, 2}},
		{Valid: ptr(5)},
		{Tokens: []int{1, 2, 3, 4, 5}},
		{Tokens: []int{1, 16}},
		{Tokens: []int{1, 2}, Labels: []int{1}, LossMask: []int{1, 1, 1}, PaddingMask: []int{1}, Answer: &[2]int{1, 3}},
		{Tokens: []int{1, 2}, Labels: []int{-1, 99}, LossMask: []int{2, 1}, PaddingMask: []int{0, 7}},
	}
	require.Equal(t, `dataset.rows[0].valid: found valid and tokens both set or both missing, expected one of them, or documents
dataset.rows[1].valid: found valid and tokens both set or both missing, expected one of them, or documents
dataset.rows[2].valid: found 5, expected a length from 0 to seq_length 4
dataset.rows[3].tokens: found 5 tokens, expected at most seq_length 4
dataset.rows[4].tokens: found 16 at 1, expected an id of the vocabulary, from 0 to 15
dataset.rows[5].labels: found 1 entries, expected 2, one per token
dataset.rows[5].loss_mask: found 3 entries, expected 2, one per token
dataset.rows[5].padding_mask: found 1 entries, expected 2, one per token
dataset.rows[5].answer: found [1, 3), expected label positions [from, to) in [0, 2)
dataset.rows[6].padding_mask: found 7 at 1, expected 0 or 1
dataset.rows[6].labels: found -1 at 0, expected an id of the vocabulary, from 0 to 15
dataset.rows[6].labels: found 99 at 1, expected an id of the vocabulary, from 0 to 15
dataset.rows[6].loss_mask: found 2 at 0, expected 0 or 1`, refused(t, s))
	s.Dataset.LossMask = "absent"
	s.Dataset.Rows = []config.Row{{Tokens: []int{1, 2}, Labels: []int{-100, 2}}}
	require.Equal(t, "dataset.rows[0].labels: found -100, which a loss mask has to hide; expected dataset.loss_mask: present", refused(t, s))
	s.Dataset.Rows = nil
	for range 30 {
		s.Dataset.Rows = append(s.Dataset.Rows, config.Row{})
	}
	require.Contains(t, refused(t, s), "dataset.rows[19].valid: found valid and tokens both set or both missing, expected one of them, or documents\nand 10 more")
}
