package model_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
)

// Every rank comes by the points of what it holds, once for each microbatch, a layer's forward pass before its backward, and
// once a step by grad-reduce and then mid-optimizer.
func TestPoints(t *testing.T) {
	m := mixture()
	m.NumLayers, m.MoELayerFreq.Pattern, m.MTPNumLayers, m.MTPLossScaling = 2, []int{0, 1}, 1, 0.5
	j := &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 3}
	for range 2 {
		j.Batches = append(j.Batches, []*nn.Microbatch{plainBatch(m.PaddedVocabSize), plainBatch(m.PaddedVocabSize)})
	}
	s := j.Scenario(trial.Layout{TP: 1, CP: 1, DP: 1, PP: 2})
	var mu sync.Mutex
	seen := make([][]string, 2)
	require.NoError(t, inproc.Run(s.Sizes(), func(rank int) []func(nn.Comm) {
		programs, err := model.Programs(model.Env{Scenario: s, Rank: rank, Train: j, Emit: func(messages.Event) {}, Point: func(point string, step, mb int) {
			mu.Lock()
			defer mu.Unlock()
			seen[rank] = append(seen[rank], fmt.Sprintf("%s %d %d", point, step, mb))
		}})
		require.NoError(t, err)
		return programs
	}, inproc.Options{}))
	want := [][]string{nil, nil}
	for step := range 2 {
		for rank, parts := range [][]string{{"layer.0"}, {"layer.1", "mtp.1"}} {
			for _, part := range parts {
				for mb := range 2 {
					want[rank] = append(want[rank], fmt.Sprintf("%s.forward %d %d", part, step, mb), fmt.Sprintf("%s.backward %d %d", part, step, mb))
				}
			}
			want[rank] = append(want[rank], fmt.Sprintf("grad-reduce %d -1", step), fmt.Sprintf("mid-optimizer %d -1", step))
		}
	}
	for rank := range want {
		require.ElementsMatch(t, want[rank], seen[rank])
		for i, p := range seen[rank] {
			if back := strings.Replace(p, "forward", "backward", 1); back != p {
				require.Greater(t, slices.Index(seen[rank], back), i, p)
			}
			if red := strings.Replace(p, "grad-reduce", "mid-optimizer", 1); red != p {
				require.Equal(t, red, seen[rank][i+1])
			}
		}
	}
}

// Where nobody looks a point is a comparison.
func BenchmarkPointsWithoutAListener(b *testing.B) {
	model.BenchPoint(b)
}
