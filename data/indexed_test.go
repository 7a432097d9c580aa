package data_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/data"
	"phalanx/data/indexed"
	"phalanx/nn"
)

// corpusAt writes sequences of these lengths to dir; the tokens of all are 0, 1, 2 and so on, so that each tells its place.
func corpusAt(t require.TestingT, dir string, lengths ...int) string {
	prefix := filepath.Join(dir, "corpus")
	w, err := indexed.Create(prefix, indexed.Int32)
	require.NoError(t, err)
	next := int32(0)
	for _, n := range lengths {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = next
			next++
		}
		require.NoError(t, w.Add(tokens))
		w.EndDocument()
	}
	require.NoError(t, w.Close())
	return prefix
}

func indexedScenario(prefix string, b, m, s int) *config.Scenario {
	sc := scenario("indexed", b, m, s, 1<<20)
	sc.Dataset.Path, sc.Dataset.Split = prefix, "1"
	return sc
}

func TestIndexedInOrder(t *testing.T) {
	s := indexedScenario(corpusAt(t, t.TempDir(), 3, 0, 5, 1, 8), 2, 1, 4)
	s.Dataset.Shuffle = false
	d := open(t, s)
	require.Equal(t, "indexed: 17 tokens of int32 in 5 sequences, rows of 4, 4 rows of 5 sequences for training", d.Summary)
	m := d.Train.Microbatch(0, 0)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7}, m.IDs, "sequences are joined")
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6, 7, 8}, m.Labels)
	require.Nil(t, m.Pad)
	require.Nil(t, m.Docs)
	require.Equal(t, []int32{8, 9, 10, 11, 12, 13, 14, 15}, d.Train.Microbatch(1, 0).IDs)
	require.Equal(t, m, d.Train.Microbatch(2, 0), "the next epoch")
}

// TestIndexedEpochs: an epoch is the sequences in some order behind each other, cut into samples that overlap by one
// token, each used once; another epoch has another order of both.
func TestIndexedEpochs(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 40).Draw(r, "lengths")
		s := rapid.IntRange(1, 12).Draw(r, "s")
		lengths = append(lengths, s+1)
		total := 0
		end := map[int32]int{} // by first token of a sequence: one behind its last
		for _, n := range lengths {
			if n > 0 {
				end[int32(total)] = total + n
			}
			total += n
		}
		sc := indexedScenario(corpusAt(r, dir, lengths...), 1, 1, s)
		sc.RNG.Seed = rapid.Uint64().Draw(r, "seed")
		d, err := data.Open(sc)
		require.NoError(r, err)
		n := (total - 1) / s
		for epoch := range 2 {
			next := map[int32]int32{} // token after token
			seen := map[int32]bool{}
			for i := range n {
				m := d.Train.Microbatch(epoch*n+i, 0)
				for k, id := range m.IDs {
					require.False(r, seen[id], "each token is an input once")
					seen[id] = true
					next[id] = m.Labels[k]
				}
				require.Equal(r, m.IDs[1:], m.Labels[:s-1])
			}
			require.Len(r, seen, n*s)
			for a, b := range next { // only the end of a sequence is followed by something else than the next token
				if b == a+1 {
					continue
				}
				_, starts := end[b]
				require.True(r, starts, "%d follows %d: a sequence starts at its start", b, a)
				require.True(r, slices.Contains(ends(end), int(a)+1), "%d follows %d: a sequence ends at its end", b, a)
			}
		}
	})
}

func ends(end map[int32]int) []int {
	var out []int
	for _, e := range end {
		out = append(out, e)
	}
	return out
}

func TestIndexedEpochsDiffer(t *testing.T) {
	lengths := make([]int, 50)
	for i := range lengths {
		lengths[i] = 8
	}
	s := indexedScenario(corpusAt(t, t.TempDir(), lengths...), 1, 1, 8)
	order := func(d *data.Data, from int) string {
		var firsts []int32
		for i := range 49 {
			firsts = append(firsts, d.Train.Microbatch(from+i, 0).IDs[0])
		}
		return fmt.Sprint(firsts)
	}
	d := open(t, s)
	require.NotEqual(t, order(d, 0), order(d, 49))
	s.Train.TrainIters = 10000
	require.Equal(t, order(d, 0), order(open(t, s), 0), "a longer run starts with the same samples")
	s.RNG.Seed++
	require.NotEqual(t, order(d, 0), order(open(t, s), 0))
}

func TestIndexedApartByHand(t *testing.T) {
	s := indexedScenario(corpusAt(t, t.TempDir(), 3, 0, 5, 1, 8), 1, 1, 4)
	s.Dataset.Shuffle, s.Dataset.Packed, s.Dataset.PadToken = false, true, 0
	d := open(t, s)
	for step, want := range []struct {
		labels []int32
		loss   []float32
		docs   []nn.Doc
	}{
		{[]int32{1, 2, 0, 4}, []float32{1, 1, 0, 1}, []nn.Doc{{Start: 0, Logical: 3, Physical: 3}, {Start: 3, Logical: 1, Physical: 1}}},
		{[]int32{5, 6, 7, 0}, []float32{1, 1, 1, 0}, []nn.Doc{{Start: 0, Logical: 4, Physical: 4}}}, // 7 ends a sequence, and the row
		{[]int32{0, 10, 11, 12}, []float32{0, 1, 1, 1}, []nn.Doc{{Start: 0, Logical: 1, Physical: 1}, {Start: 1, Logical: 3, Physical: 3}}},
		{[]int32{13, 14, 15, 16}, []float32{1, 1, 1, 1}, []nn.Doc{{Start: 0, Logical: 4, Physical: 4}}},
	} {
		m := d.Train.Microbatch(step, 0)
		wellFormed(t, m, 1<<20)
		first := int32(4 * step)
		require.Equal(t, []int32{first, first + 1, first + 2, first + 3}, m.IDs, "the same tokens as joined")
		require.Equal(t, want.labels, m.Labels)
		require.Equal(t, want.loss, m.Loss.Weight)
		require.Equal(t, want.docs, m.Docs[0])
	}
}

// TestIndexedApart: the documents of a row are the parts of sequences in it; a label counts if the token behind it is of
// the same sequence.
func TestIndexedApart(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(r, "lengths")
		s := rapid.IntRange(1, 12).Draw(r, "s")
		lengths = append(lengths, s+1)
		var of []int // by token: its sequence
		for i, n := range lengths {
			for range n {
				of = append(of, i)
			}
		}
		sc := indexedScenario(corpusAt(r, dir, lengths...), 1, 1, s)
		sc.RNG.Seed = rapid.Uint64().Draw(r, "seed")
		joined, err := data.Open(sc)
		require.NoError(r, err)
		sc.Dataset.Packed = true
		d, err := data.Open(sc)
		require.NoError(r, err)
		for step := range 2 * (len(of) - 1) / s {
			m, whole := d.Train.Microbatch(step, 0), joined.Train.Microbatch(step, 0)
			require.Equal(r, whole.IDs, m.IDs)
			for i, id := range m.IDs {
				same := of[id] == of[whole.Labels[i]] && whole.Labels[i] == id+1
				require.Equal(r, same, m.Loss.Weight[i] == 1)
				if same {
					require.Equal(r, whole.Labels[i], m.Labels[i])
				}
			}
			for _, doc := range m.Docs[0] {
				for i := range doc.Logical - 1 {
					require.Equal(r, m.IDs[doc.Start+i]+1, m.IDs[doc.Start+i+1])
				}
			}
		}
	})
}

func TestIndexedSplit(t *testing.T) {
	s := indexedScenario(corpusAt(t, t.TempDir(), 20, 20, 20, 20, 20, 20, 20, 20, 20, 20), 1, 1, 4)
	s.Dataset.Split = "7,2,1"
	d := open(t, s)
	require.Contains(t, d.Summary, "34 rows of 7 sequences for training, 9 rows of 2 sequences for validation, 4 rows of 1 sequence for test")
	for step := range 68 {
		for _, id := range d.Train.Microbatch(step, 0).Labels {
			require.Less(t, id, int32(140))
		}
	}
	require.Equal(t, []int32{140, 141, 142, 143}, d.Validation.Microbatch(0, 0).IDs)
	require.Equal(t, []int32{180, 181, 182, 183}, d.Test.Microbatch(0, 0).IDs)
}

func TestIndexedProblems(t *testing.T) {
	dir := t.TempDir()
	s := indexedScenario(corpusAt(t, dir, 4, 4), 1, 1, 8)
	require.Contains(t, refused(t, s), "corpus.bin: found 8 tokens in 2 sequences for training (split 1), expected at least 9, which make one row of seq_length 8 and its labels")
	s.Dataset.SeqLength, s.Dataset.Split, s.Train.EvalInterval = 2, "99,1", 1
	require.Contains(t, refused(t, s), "found 0 tokens in 0 sequences for validation (split 99,1), expected at least 3")
	s.Dataset.Split, s.Train.EvalInterval = "1", 0
	s.Model.PaddedVocabSize = 6
	s.Dataset.Shuffle = false
	d := open(t, s)
	d.Train.Microbatch(1, 0)
	require.PanicsWithError(t, filepath.Join(dir, "corpus.bin")+": found token 6 at 2 of row 2, expected one below padded_vocab_size 6", func() {
		d.Train.Microbatch(2, 0)
	})
	require.NoError(t, os.Truncate(filepath.Join(dir, "corpus.bin"), 5))
	require.Contains(t, refused(t, s), "corpus.bin: found 5 bytes, expected 32")
	s.Dataset.Path = "none"
	s.Dir = dir
	require.Contains(t, refused(t, s), "none.idx: found no such file, expected PREFIX.idx and PREFIX.bin beside each other")
}
