package data_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/data"
)

func embedded(kind string, b, m, s, h int) *config.Scenario {
	sc := scenario(kind, b, m, s, 32)
	sc.Dataset.Embeddings, sc.Model.HiddenSize = "precomputed", h
	if kind == "rows" {
		sc.Dataset.Rows = []config.Row{{Valid: ptr(s)}, {Valid: ptr(2)}, {Documents: []int{1, 2}}}
	}
	return sc
}

func TestEmbeddingsAreSmallNormals(t *testing.T) {
	m := open(t, embedded("synthetic", 4, 1, 64, 128)).Train.Microbatch(0, 0)
	require.Len(t, m.Embeddings, 4*64*128)
	var sum, squares, near float64
	for _, x := range m.Embeddings {
		sum, squares = sum+x, squares+x*x
		if math.Abs(x) < 0.02 {
			near++
		}
	}
	n := float64(len(m.Embeddings))
	require.InDelta(t, 0, sum/n, 5*0.02/math.Sqrt(n))
	require.InDelta(t, 0.02, math.Sqrt(squares/n), 0.0004)
	require.InDelta(t, 0.6827, near/n, 0.013, "one deviation of a normal distribution")
	require.Len(t, m.IDs, 4*64, "ids and labels are there all the same")
}

// TestEmbeddingsBelongToTheRow: no microbatch size, step or other row enters.
func TestEmbeddingsBelongToTheRow(t *testing.T) {
	const s, h = 6, 4
	for _, kind := range []string{"rows", "synthetic"} {
		one, many := open(t, embedded(kind, 1, 6, s, h)), open(t, embedded(kind, 3, 2, s, h))
		seen := map[float64]bool{}
		for i := range 6 {
			m := many.Train.Microbatch(0, i/3)
			row := m.Embeddings[i%3*s*h : (i%3+1)*s*h]
			require.Equal(t, one.Train.Microbatch(0, i).Embeddings, row)
			for _, x := range row {
				require.False(t, seen[x], "%s: every value is drawn on its own, also in repeated rows and at padding", kind)
				seen[x] = true
			}
		}
		again := many.Train.Microbatch(1, 0).Embeddings
		require.Equal(t, kind == "rows", again[0] == many.Train.Microbatch(0, 0).Embeddings[0], "rows come again in the next step, synthetic ones do not")
	}
}

func TestEmbeddingsOfOtherRowsSeedsAndLengths(t *testing.T) {
	sc := embedded("synthetic", 1, 1, 6, 4)
	d := open(t, sc)
	first := d.Train.Microbatch(0, 0).Embeddings
	require.NotEqual(t, first[0], d.Validation.Microbatch(0, 0).Embeddings[0])
	sc.Dataset.SeqLength = 9
	require.Equal(t, first, open(t, sc).Train.Microbatch(0, 0).Embeddings[:6*4], "a longer row goes on")
	sc.RNG.Seed++
	require.NotEqual(t, first[0], open(t, sc).Train.Microbatch(0, 0).Embeddings[0])
	require.Contains(t, d.Summary, ", precomputed embeddings of 4")
	require.Contains(t, open(t, embedded("rows", 1, 1, 6, 4)).Summary, ", precomputed embeddings of 4")
	sc.Dataset.Embeddings = ""
	require.Nil(t, open(t, sc).Train.Microbatch(0, 0).Embeddings)
}

// TestEmbeddingsOfAPackedRow: documents change no value, and every microbatch has them.
func TestEmbeddingsOfAPackedRow(t *testing.T) {
	sc := embedded("rows", 1, 3, 6, 4)
	d := open(t, sc)
	sc.Dataset.Rows[2] = config.Row{Valid: ptr(3)}
	plain := open(t, sc)
	for mb := range 3 {
		require.Equal(t, plain.Train.Microbatch(0, mb).Embeddings, d.Train.Microbatch(0, mb).Embeddings)
	}
	s := referenceScenario(t, "moe-embeddings")
	require.Contains(t, open(t, s).Summary, "vocabulary of 32, precomputed embeddings of 16")
}

func BenchmarkEmbeddings(b *testing.B) {
	d, err := data.Open(embedded("synthetic", 4, 1, 256, 384))
	require.NoError(b, err)
	b.SetBytes(4 * 256 * 384 * 8)
	for i := 0; b.Loop(); i++ {
		d.Train.Microbatch(i, 0)
	}
}
