package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLayoutSpellings: lengths and boundaries say the same thing, and documents follow each other.
func TestLayoutSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "documents")
		logical := rapid.SliceOfN(rapid.IntRange(0, 9), n, n).Draw(t, "lengths")
		padding := rapid.SliceOfN(rapid.IntRange(0, 3), n, n).Draw(t, "padding")
		physical, bounds, padded := make([]int, n), []int{0}, []int{0}
		for i := range n {
			physical[i] = logical[i] + padding[i]
			bounds, padded = append(bounds, bounds[i]+logical[i]), append(padded, padded[i]+physical[i])
		}
		a, b := Row{Documents: logical, DocumentsPadded: physical}, Row{CuSeqlens: bounds, CuSeqlensPadded: padded}
		docs, fault := a.Layout()
		require.Nil(t, fault)
		again, fault := b.Layout()
		require.Nil(t, fault)
		require.Equal(t, docs, again)
		for i, d := range docs {
			require.Equal(t, Document{padded[i], logical[i], physical[i]}, d)
		}
		require.Equal(t, []int{padded[n], padded[n]}, []int{a.length(), b.length()})
		a.DocumentsPadded, b.CuSeqlensPadded = nil, nil
		docs, _ = a.Layout()
		again, _ = b.Layout()
		require.Equal(t, docs, again)
		require.Equal(t, bounds[n], a.length(), "without padding the places are the documents")
	})
}

// TestLayoutOfAnything: whatever the lists say, they lay out a row or have a fault, and what is laid out is in order.
func TestLayoutOfAnything(t *testing.T) {
	list := rapid.OneOf(rapid.Just([]int(nil)), rapid.SliceOfN(rapid.OneOf(rapid.IntRange(-1, 9), rapid.Int()), 0, 5))
	rapid.Check(t, func(t *rapid.T) {
		r := Row{Documents: list.Draw(t, "documents"), DocumentsPadded: list.Draw(t, "documents_padded"),
			CuSeqlens: list.Draw(t, "cu_seqlens"), CuSeqlensPadded: list.Draw(t, "cu_seqlens_padded"), Tokens: list.Draw(t, "tokens")}
		docs, fault := r.Layout()
		if fault != nil {
			require.Nil(t, docs)
			require.NotEmpty(t, fault.Key+fault.Message)
			return
		}
		require.Equal(t, r.Packed(), docs != nil)
		at := 0
		for _, d := range docs {
			require.Equal(t, at, d.Start)
			require.True(t, d.Logical >= 0 && d.Logical <= d.Physical && d.Physical <= MaxSeqLength)
			at += d.Physical
		}
		require.True(t, r.Tokens == nil || len(r.Tokens) >= at)
	})
}

func TestLayoutKey(t *testing.T) {
	require.Empty(t, (&Row{Tokens: []int{1}}).LayoutKey())
	require.Equal(t, "documents", (&Row{Documents: []int{1}}).LayoutKey())
	require.Equal(t, "documents_padded", (&Row{Documents: []int{1}, DocumentsPadded: []int{2}}).LayoutKey())
	require.Equal(t, "cu_seqlens", (&Row{CuSeqlens: []int{0, 1}}).LayoutKey())
	require.Equal(t, "cu_seqlens_padded", (&Row{CuSeqlens: []int{0, 1}, CuSeqlensPadded: []int{0, 2}}).LayoutKey())
}
