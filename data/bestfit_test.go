package data_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/data"
)

// TestBestFitByHand: documents of 3 4 2 8 1 1 5 and then 6 2 in rows of 8, packed by hand. Longest first: D8 | G5 | B4 |
// A3 goes to G, not B: 0 left instead of 1 | C2 to B | E1, F1 to B. So 3 rows where next fit needs 4.
func TestBestFitByHand(t *testing.T) {
	s := packedLines(t, 1, 8, 3, 4, 2, 8, 1, 1, 5, 6, 2)
	s.Dataset.PackingAlgorithm, s.Dataset.PackingWindow = "best_fit", 7
	d := open(t, s)
	for step, want := range []string{"A3/3 G5/5", "B4/4 C2/2 E1/1 F1/1", "D8/8", "H6/6 I2/2", "A3/3 G5/5"} {
		m := d.Train.Microbatch(step, 0)
		wellFormed(t, m, 256)
		require.Equal(t, want, layout(m, 0))
	}
	require.Contains(t, d.Summary, "packed by best fit over 7 documents: 4 rows in 1 epoch, 2.2 documents a row, 100.0 % of positions are tokens")
	s.Dataset.PackingAlgorithm = "next_fit"
	require.Contains(t, open(t, s).Summary, "packed by next fit: 5 rows in 1 epoch, 1.8 documents a row, 80.0 % of positions are tokens")
	s.Dataset.PackingAlgorithm, s.Dataset.PackingWindow = "best_fit", 1
	require.Equal(t, "A3/3 .5/5", layout(open(t, s).Train.Microbatch(0, 0), 0), "a window of one document packs nothing")
}

// TestBestFit: each document once an epoch and whole, in sample order inside a row; no two rows of a window fit into one.
func TestBestFit(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 12), 1, 40).Draw(r, "lengths")
		multiple := rapid.IntRange(1, 4).Draw(r, "multiple")
		window := rapid.IntRange(1, 50).Draw(r, "window")
		sc := packedScenario(t, dir, lengths, multiple, false)
		sc.Dataset.PackingAlgorithm, sc.Dataset.PackingWindow = "best_fit", window
		d, err := data.Open(sc)
		require.NoError(r, err)
		place := func(i int) int {
			n := min(lengths[i], 12-12%multiple)
			return (n + multiple - 1) / multiple * multiple
		}
		seen := map[int]bool{}
		used := map[int][]int{} // by window: what rows use
		for step := 0; len(seen) < len(lengths); step++ {
			m, before, row := d.Train.Microbatch(step, 0), -1, 0
			for _, doc := range m.Docs[0] {
				if m.IDs[doc.Start] == 1 {
					continue // the tail
				}
				i := int(m.IDs[doc.Start] - 'A')
				require.False(r, seen[i])
				require.Greater(r, i, before)
				require.True(r, before < 0 || before/window == i/window, "a row of two windows")
				require.Equal(r, []int{row, min(lengths[i], 12-12%multiple), place(i)}, []int{doc.Start, doc.Logical, doc.Physical})
				seen[i], before = true, i
				row += doc.Physical
			}
			require.LessOrEqual(r, row, 12)
			used[before/window] = append(used[before/window], row)
		}
		for _, rows := range used {
			for i := range rows {
				for k := range i {
					require.Greater(r, rows[i]+rows[k], 12, fmt.Sprint(rows))
				}
			}
		}
	})
}

// TestBestFitFillsRows: over many documents of mixed lengths best fit leaves a small part of what next fit leaves.
func TestBestFitFillsRows(t *testing.T) {
	r := make([]int, 2000)
	for i := range r {
		r[i] = 1 + (i*i*7+i*13)%100 // mixed
	}
	share := func(algorithm string) (full float64) {
		sc := packedLines(t, 1, 128, r...)
		sc.Dataset.PackingAlgorithm, sc.Dataset.PackingWindow = algorithm, 512
		d := open(t, sc)
		tokens, positions := 0, 0
		for step := 0; tokens < sum(r); step++ {
			for _, padding := range d.Train.Microbatch(step, 0).Pad.Pad {
				positions++
				if !padding {
					tokens++
				}
			}
		}
		return float64(tokens) / float64(positions)
	}
	next, best := share("next_fit"), share("best_fit")
	require.Greater(t, best, 0.97)
	require.Less(t, 1-best, (1-next)/4, "next fit fills %.3f, best fit %.3f", next, best)
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}
