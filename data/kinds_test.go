package data_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/nn"
)

// wellFormed checks what every microbatch promises.
func wellFormed(t *testing.T, m *nn.Microbatch, v int) {
	t.Helper()
	n := m.B * m.S
	require.Len(t, m.IDs, n)
	require.Len(t, m.Labels, n)
	require.Len(t, m.Positions, n)
	for b := range m.B {
		wellLaidOut(t, m, b)
	}
	for i := range n {
		require.True(t, m.IDs[i] >= 0 && int(m.IDs[i]) < v)
		require.True(t, m.Labels[i] >= 0 && int(m.Labels[i]) < v)
	}
	require.Equal(t, []int{m.B, m.S}, []int{m.Loss.B, m.Loss.S})
	require.Equal(t, m.Loss.AllOnes, m.Loss.Weight == nil)
	if m.Pad != nil {
		require.Equal(t, []int{m.B, m.S, n}, []int{m.Pad.B, m.Pad.S, len(m.Pad.Pad)})
		require.Equal(t, nn.Full, m.Pad.Layout)
	}
}

// wellLaidOut checks the documents of row b: they follow each other, cover it, and positions start at 0 in each.
func wellLaidOut(t *testing.T, m *nn.Microbatch, b int) {
	t.Helper()
	next := 0
	for _, d := range m.Docs.Row(b, m.S) {
		require.Equal(t, next, d.Start)
		require.True(t, d.Logical >= 0 && d.Logical <= d.Physical)
		for i := range d.Physical {
			at := b*m.S + d.Start + i
			require.EqualValues(t, i, m.Positions[at])
			if i >= d.Logical && m.Pad != nil {
				require.True(t, m.Pad.Pad[at], "what exceeds a document is padding")
			}
		}
		next += d.Physical
	}
	require.Equal(t, m.S, next)
	if m.Docs != nil {
		require.Len(t, m.Docs, m.B)
	}
}

// everyKind is one small dataset of each kind, of each way to pack, and with precomputed embeddings.
func everyKind(t *testing.T) map[string]*config.Scenario {
	kinds := plainKinds(t)
	packed := scenario("rows", 2, 2, 8, 16)
	packed.Dataset.Rows = []config.Row{{Documents: []int{3, 0, 2}, DocumentsPadded: []int{4, 0, 2}}, {Valid: ptr(5)}, {Tokens: []int{1, 2, 3}, CuSeqlens: []int{0, 1, 3}}}
	kinds["packed rows"] = packed
	kinds["packed synthetic"], kinds["packed jsonl"] = plainKinds(t)["synthetic"], plainKinds(t)["jsonl"]
	for _, kind := range []string{"synthetic", "jsonl"} {
		d := &kinds["packed "+kind].Dataset
		d.Packed, d.PadToMultiple = true, 2
	}
	best := plainKinds(t)["jsonl"]
	best.Dataset.Packed, best.Dataset.PackingAlgorithm, best.Dataset.PackingWindow = true, "best_fit", 3
	kinds["best fit jsonl"] = best
	apart := plainKinds(t)["indexed"]
	apart.Dataset.Packed = true
	kinds["indexed apart"] = apart
	for _, kind := range []string{"rows", "synthetic"} {
		s := plainKinds(t)[kind]
		s.Dataset.Embeddings, s.Model.HiddenSize = "precomputed", 4
		kinds["embedded "+kind] = s
	}
	for _, name := range []string{"moe-packed-padded", "moe-embeddings"} {
		kinds[name] = referenceScenario(t, name)
	}
	kinds["moe-packed-padded"].Train = config.Train{MicroBatchSize: 1, GlobalBatchSize: 2}
	return kinds
}

// plainKinds is one small dataset of each kind, a document a row.
func plainKinds(t *testing.T) map[string]*config.Scenario {
	n := 5
	rows := scenario("rows", 2, 2, 8, 16)
	rows.Dataset.Rows = []config.Row{{Valid: &n}, {Tokens: []int{1, 2, 3}}}
	synth := scenario("synthetic", 2, 2, 8, 16)
	synth.Dataset.MinValid = 2
	text := scenario("text", 2, 2, 8, 256)
	text.Dataset.Paths = []string{write(t, "a.txt", "The quick brown fox jumps over the lazy dog, again and again and again.")}
	text.Dataset.ValidationShare = 0.3
	jsonl := scenario("jsonl", 2, 2, 8, 256)
	jsonl.Dataset.Paths = []string{write(t, "a.jsonl", "{\"text\":\"hello\"}\n{\"text\":\"world!\"}\n{\"text\":\"some longer text\"}\n{\"text\":\"the end\"}\n")}
	jsonl.Dataset.ValidationShare = 0.25
	idx := indexedScenario(corpusAt(t, t.TempDir(), 5, 9, 1, 0, 12, 7, 30), 2, 2, 8)
	idx.Dataset.Split = "6,1"
	return map[string]*config.Scenario{"indexed": idx, "rows": rows, "synthetic": synth, "text": text, "jsonl": jsonl, "reference": referenceScenario(t, "moe-mtp")}
}
