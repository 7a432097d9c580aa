package data_test

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/data"
	"phalanx/nn"
)

// scenario is a scenario of b rows a microbatch and m microbatches a step.
func scenario(kind string, b, m, s, v int) *config.Scenario {
	return &config.Scenario{
		Model:   config.Model{PaddedVocabSize: v},
		Train:   config.Train{MicroBatchSize: b, GlobalBatchSize: b * m},
		Dataset: config.Dataset{Kind: kind, SeqLength: s, Shuffle: true},
		RNG:     config.RNG{Seed: 1234},
	}
}

func open(t *testing.T, s *config.Scenario) *data.Data {
	t.Helper()
	d, err := data.Open(s)
	require.NoError(t, err)
	return d
}

// refused is the text of the *data.Error that opening gives.
func refused(t *testing.T, s *config.Scenario) string {
	t.Helper()
	_, err := data.Open(s)
	var de *data.Error
	require.ErrorAs(t, err, &de)
	return err.Error()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	return put(t, t.TempDir(), name, text)
}

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestSourcesAreFunctions(t *testing.T) {
	for kind, s := range everyKind(t) {
		t.Run(kind, func(t *testing.T) {
			a, b := open(t, s), open(t, s)
			require.Contains(t, a.Summary, s.Dataset.Kind+": ")
			require.Equal(t, a.Summary, b.Summary)
			require.Equal(t, 2, a.Train.Microbatches())
			for _, src := range [][2]data.Source{{a.Train, b.Train}, {a.Validation, b.Validation}} {
				if src[0] == nil {
					continue
				}
				var want [12][2]*nn.Microbatch
				for step := range want {
					for mb := range 2 {
						want[step][mb] = src[0].Microbatch(step, mb)
						wellFormed(t, want[step][mb], a.VocabSize)
					}
				}
				for step := len(want) - 1; step >= 0; step-- { // another instance, another order
					for mb := 1; mb >= 0; mb-- {
						require.Equal(t, want[step][mb], src[1].Microbatch(step, mb))
					}
				}
			}
		})
	}
}

func TestSourcesAreSafeForRanksAtOnce(t *testing.T) {
	for kind, s := range everyKind(t) {
		d := open(t, s)
		want := d.Train.Microbatch(3, 1)
		var wg sync.WaitGroup
		bad := make([]bool, 4)
		for r := range bad {
			wg.Go(func() {
				got := d.Train.Microbatch(3, 1)
				bad[r] = !reflect.DeepEqual(want, got)
				for i := range got.IDs { // it is this rank's to change
					got.IDs[i], got.Labels[i], got.Positions[i] = -1, -1, -1
				}
				for i := range got.Embeddings {
					got.Embeddings[i] = 9
				}
				for b := range got.Docs {
					if got.Docs[b] != nil {
						got.Docs[b][0].Logical = 1000
					}
				}
				if got.Pad != nil {
					got.Pad.Pad[0] = !got.Pad.Pad[0]
				}
				if !got.Loss.AllOnes {
					got.Loss.Weight[0] = 7
				}
			})
		}
		wg.Wait()
		require.NotContains(t, bad, true, kind)
		require.Equal(t, want, d.Train.Microbatch(3, 1), "%s: a caller's change must not come back", kind)
	}
}

func TestIndicesOutsideTheStep(t *testing.T) {
	for kind, s := range everyKind(t) {
		d := open(t, s)
		for _, at := range [][2]int{{-1, 0}, {0, -1}, {0, 2}} {
			require.Panics(t, func() { d.Train.Microbatch(at[0], at[1]) }, kind)
		}
	}
}

func TestOwnedCutsTheStep(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {4, 1}, {4, 2}, {4, 4}, {12, 3}} {
		next := 0
		for r := range c[1] {
			from, to := data.Owned(c[0], c[1], r)
			require.Equal(t, next, from)
			require.Equal(t, c[0]/c[1], to-from)
			next = to
		}
		require.Equal(t, c[0], next)
	}
}

func TestOpenRefusals(t *testing.T) {
	s := scenario("parquet", 1, 1, 8, 16)
	require.Equal(t, `dataset.kind: found "parquet", expected rows, synthetic, text, jsonl, indexed or reference`, refused(t, s))
	s = scenario("synthetic", 2, 1, 8, 16)
	s.Train.GlobalBatchSize = 3
	require.Contains(t, refused(t, s), "train: found micro_batch_size 2 and global_batch_size 3, expected a positive size and a multiple of it")
	require.Contains(t, refused(t, scenario("synthetic", 1, 1, 0, 16)), "dataset.seq_length: found 0, expected at least 1")
	s = scenario("synthetic", 1, 1, 8, 16)
	s.Dataset.PadToken = 16
	require.Contains(t, refused(t, s), "dataset.pad_token: found 16, expected an id of the vocabulary, from 0 to 15")
}

func TestSyntheticRows(t *testing.T) {
	s := scenario("synthetic", 3, 2, 12, 64)
	d := open(t, s)
	require.Equal(t, 64, d.VocabSize)
	require.Nil(t, d.Tokenizer)
	m := d.Train.Microbatch(0, 0)
	require.Nil(t, m.Pad, "full rows have no padding mask by default")
	require.EqualValues(t, 36, m.Loss.Count())
	for b := range 3 {
		require.Equal(t, m.IDs[b*12+1:b*12+12], m.Labels[b*12:b*12+11], "the label is the next token")
	}
	require.NotEqual(t, m.IDs, d.Train.Microbatch(0, 1).IDs)
	require.NotEqual(t, m.IDs, d.Train.Microbatch(1, 0).IDs)
	require.NotEqual(t, m.IDs, d.Validation.Microbatch(0, 0).IDs)
	s.RNG.Seed++
	require.NotEqual(t, m.IDs, open(t, s).Train.Microbatch(0, 0).IDs)
}

func TestSyntheticPadding(t *testing.T) {
	s := scenario("synthetic", 4, 4, 10, 64)
	s.Dataset.MinValid, s.Dataset.PadToken = 3, 5
	d := open(t, s)
	seen := map[int]bool{}
	for step := range 10 {
		for mb := range 4 {
			m := d.Train.Microbatch(step, mb)
			for b := range 4 {
				n := 0
				for n < 10 && !m.Pad.Pad[b*10+n] {
					n++
				}
				seen[n] = true
				for i := range 10 {
					require.Equal(t, i >= n, m.Pad.Pad[b*10+i])
					require.Equal(t, i < n, m.Loss.At(b, i) == 1, "n inputs, n labels")
					if i >= n {
						require.EqualValues(t, 5, m.IDs[b*10+i])
						require.EqualValues(t, 5, m.Labels[b*10+i])
					}
				}
			}
		}
	}
	require.Len(t, seen, 8, "every length from min_valid to seq_length")
	require.False(t, seen[2])
}

// TestSyntheticIsLearnable compares entropies: knowing one token helps, knowing two helps more.
func TestSyntheticIsLearnable(t *testing.T) {
	m := open(t, scenario("synthetic", 8, 1, 4000, 512)).Train.Microbatch(0, 0)
	entropy := func(context int) float64 { // of the label, in nats, given that many tokens
		joint, of := map[[3]int32]float64{}, map[[3]int32]float64{}
		n := 0.0
		for i := 2; i < len(m.IDs); i++ {
			c := [3]int32{}
			for k := range context {
				c[k] = m.IDs[i-k]
			}
			of[c]++
			c[2] = m.Labels[i] + 1
			joint[c]++
			n++
		}
		h := 0.0
		for c, k := range joint {
			c[2] = 0
			h -= k / n * math.Log(k/of[c])
		}
		return h
	}
	h0, h1, h2 := entropy(0), entropy(1), entropy(2)
	require.Less(t, h0, math.Log(16)+0.01, "16 symbols")
	require.Less(t, h1, h0-0.3)
	require.Less(t, h2, h1-0.4)
}
