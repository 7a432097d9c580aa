package data_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/data"
	"phalanx/nn"
)

// packedLines is a jsonl scenario of one file, unshuffled and packed: documents of these many inputs, the i-th of the
// i-th letter.
func packedLines(t *testing.T, b, s int, lengths ...int) *config.Scenario {
	t.Helper()
	var docs []string
	for i, n := range lengths {
		docs = append(docs, fmt.Sprintf(`{"text":%q}`, strings.Repeat(string(rune('A'+i%58)), n+1)))
	}
	sc := lines(t, b, s, docs...)
	sc.Dataset.Packed, sc.Dataset.PadToken = true, 1
	return sc
}

// layout is the documents of row b: logical/physical, and the letter of each, . for the tail.
func layout(m *nn.Microbatch, b int) string {
	var parts []string
	for _, d := range m.Docs[b] {
		letter := string(rune(m.IDs[b*m.S+d.Start]))
		if letter == "\x01" {
			letter = "."
		}
		parts = append(parts, fmt.Sprintf("%s%d/%d", letter, d.Logical, d.Physical))
	}
	return strings.Join(parts, " ")
}

func TestNextFit(t *testing.T) {
	s := packedLines(t, 1, 8, 3, 4, 2, 8, 1, 1, 5)
	d := open(t, s)
	for step, want := range []string{"A3/3 B4/4 .1/1", "C2/2 .6/6", "D8/8", "E1/1 F1/1 G5/5 .1/1", "A3/3 B4/4 .1/1"} {
		m := d.Train.Microbatch(step, 0)
		wellFormed(t, m, 256)
		require.Equal(t, want, layout(m, 0))
	}
	require.Equal(t, "jsonl: 1 file, 7 documents, 31 tokens, 7 for training, 0 for validation, 0 cut to 9 tokens, "+
		"packed by next fit: 4 rows in 1 epoch, 1.8 documents a row, 75.0 % of positions are tokens", d.Summary)
	m := d.Train.Microbatch(0, 0)
	require.Equal(t, []int32{'A', 'A', 'A', 'B', 'B', 'B', 'B', 1}, m.IDs)
	require.Equal(t, []int32{'A', 'A', 'A', 'B', 'B', 'B', 'B', 1}, m.Labels, "the last label of a document is its own")
	require.Equal(t, []float32{1, 1, 1, 1, 1, 1, 1, 0}, m.Loss.Weight)
	require.Equal(t, []bool{false, false, false, false, false, false, false, true}, m.Pad.Pad)
	require.Equal(t, []int64{7, 5, 3}, counted(m, 2))
}

func TestPlacesOfAMultiple(t *testing.T) {
	s := packedLines(t, 2, 9, 3, 4, 9, 1, 8)
	s.Dataset.PadToMultiple = 4
	d := open(t, s)
	require.Contains(t, d.Summary, "1 cut to 9 tokens, packed by next fit: 4 rows in 1 epoch, 1.2 documents a row, 66.7 % of positions are tokens")
	require.Equal(t, []string{"A3/4 B4/4 .1/1", "C8/8 .1/1"}, []string{layout(d.Train.Microbatch(0, 0), 0), layout(d.Train.Microbatch(0, 0), 1)},
		"9 inputs do not fit a place of 8")
	m := d.Train.Microbatch(1, 0)
	require.Equal(t, []string{"D1/4 .5/5", "E8/8 .1/1"}, []string{layout(m, 0), layout(m, 1)})
	require.Equal(t, []bool{false, true, true, true, true, true, true, true, true}, m.Pad.Pad[:9])
	require.Equal(t, []int64{9, 7}, counted(m, 1))
	s.Dataset.PadTo = "longest"
	m = open(t, s).Train.Microbatch(0, 0)
	require.Equal(t, 8, m.S)
	require.Equal(t, []string{"A3/4 B4/4", "C8/8"}, []string{layout(m, 0), layout(m, 1)})
}

// TestPackingIsNextFit: each document once an epoch, in the order of the samples, and no row that could have taken the
// next document.
func TestPackingIsNextFit(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 12), 1, 40).Draw(r, "lengths")
		multiple := rapid.IntRange(1, 4).Draw(r, "multiple")
		sc := packedScenario(t, dir, lengths, multiple, rapid.Bool().Draw(r, "shuffle"))
		d, err := data.Open(sc)
		require.NoError(r, err)
		var seen []string
		for step, used := 0, 0; len(seen) < 2*len(lengths); step++ {
			m := d.Train.Microbatch(step, 0)
			require.True(r, len(seen)%len(lengths) == 0 || used+m.Docs[0][0].Physical > 12, "a row took less than fits")
			used = 0
			for _, doc := range m.Docs[0] {
				letter := m.IDs[doc.Start]
				if letter == 1 { // the tail
					continue
				}
				n := min(lengths[letter-'A'], 12-12%multiple)
				require.Equal(r, nn.Doc{Start: used, Logical: n, Physical: (n + multiple - 1) / multiple * multiple}, doc)
				used += doc.Physical
				seen = append(seen, string(letter))
			}
		}
		for epoch := range 2 {
			var once [64]bool
			for _, letter := range seen[epoch*len(lengths) : (epoch+1)*len(lengths)] {
				require.False(r, once[letter[0]-'A'], "twice in an epoch")
				once[letter[0]-'A'] = true
			}
			if !sc.Dataset.Shuffle {
				require.IsIncreasing(r, append(seen[epoch*len(lengths):(epoch+1)*len(lengths):(epoch+1)*len(lengths)], "~"))
			}
		}
	})
}

// packedScenario is documents of these many inputs packed into rows of 12, for two epochs at least.
func packedScenario(t *testing.T, dir string, lengths []int, multiple int, shuffle bool) *config.Scenario {
	t.Helper()
	var text strings.Builder
	for i, n := range lengths {
		fmt.Fprintf(&text, "{\"text\":%q}\n", strings.Repeat(string(rune('A'+i)), n+1))
	}
	sc := scenario("jsonl", 1, 1, 12, 256)
	sc.Dataset.Paths = []string{put(t, dir, "d.jsonl", text.String())}
	sc.Dataset.Packed, sc.Dataset.PadToMultiple, sc.Dataset.Shuffle, sc.Dataset.PadToken = true, multiple, shuffle, 1
	sc.Train.TrainIters = 2 * len(lengths)
	return sc
}

func TestPackedEpochsDiffer(t *testing.T) {
	lengths := []int{5, 3, 7, 2, 9, 4, 6, 1, 8, 3, 5, 2, 10, 4}
	sc := packedScenario(t, t.TempDir(), lengths, 1, true)
	long := open(t, sc)
	rows := func(d *data.Data, from, n int) (out []string) {
		for i := range n {
			out = append(out, layout(d.Train.Microbatch(from+i, 0), 0))
		}
		return out
	}
	first := rows(long, 0, 28)
	require.NotEqual(t, first[:5], first[7:12])
	require.Regexp(t, `packed by next fit: \d+ rows in [34] epochs, `, long.Summary)
	sc.Train.TrainIters = 1
	short := open(t, sc)
	require.Regexp(t, `packed by next fit: \d+ rows in 1 epoch, `, short.Summary)
	require.Equal(t, first[:5], rows(short, 0, 5), "a longer run starts with the same rows")
	sc.RNG.Seed++
	require.NotEqual(t, first[:5], rows(open(t, sc), 0, 5))
}

func TestPackedAnswersAndValidation(t *testing.T) {
	s := lines(t, 1, 8, `{"prompt":"abc","completion":"de"}`, `{"prompt":"f","completion":"gh"}`, `{"prompt":"ij","completion":"klm"}`, `{"prompt":"x","completion":"yz"}`)
	s.Dataset.AnswerOnlyLoss, s.Dataset.ValidationShare, s.Dataset.Packed, s.Dataset.PadToMultiple = true, 0.25, true, 3
	d := open(t, s)
	m := d.Train.Microbatch(0, 0)
	require.Equal(t, []float32{0, 0, 1, 1, 0, 0, 0, 0}, m.Loss.Weight)
	m = d.Train.Microbatch(1, 0)
	require.Equal(t, []int32{'f', 'g', 0, 0, 0, 0, 0, 0}, m.IDs)
	require.Equal(t, []int32{'g', 'h', 0, 0, 0, 0, 0, 0}, m.Labels)
	require.Equal(t, []float32{1, 1, 0, 0, 0, 0, 0, 0}, m.Loss.Weight, "the first label is part of the answer")
	v := d.Validation.Microbatch(0, 0)
	require.Equal(t, nn.Docs{{{Start: 0, Logical: 2, Physical: 3}, {Start: 3, Logical: 5, Physical: 5}}}, v.Docs)
	require.Equal(t, v, d.Validation.Microbatch(7, 0))
}

// TestPackedSynthetic: documents of drawn lengths fill a row as far as their places go.
func TestPackedSynthetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.IntRange(1, 30).Draw(t, "s")
		multiple := rapid.IntRange(1, s).Draw(t, "multiple")
		least := rapid.IntRange(0, s-s%multiple).Draw(t, "min_valid")
		sc := scenario("synthetic", 2, 1, s, 64)
		sc.Dataset.Packed, sc.Dataset.PadToMultiple, sc.Dataset.MinValid = true, multiple, least
		d, err := data.Open(sc)
		require.NoError(t, err)
		least = max(least, 1)
		m := d.Train.Microbatch(rapid.IntRange(0, 9).Draw(t, "step"), 0)
		for b := range m.B {
			tokens, at := 0, 0
			for _, doc := range m.Docs[b] {
				if m.Pad.Pad[b*s+doc.Start] { // the tail
					require.Less(t, doc.Physical-doc.Physical%multiple, least, "another document would fit")
					continue
				}
				require.GreaterOrEqual(t, doc.Logical, least)
				require.Equal(t, (doc.Logical+multiple-1)/multiple*multiple, doc.Physical)
				require.Equal(t, at, doc.Start)
				for i := range doc.Logical - 1 {
					require.Equal(t, m.IDs[b*s+at+i+1], m.Labels[b*s+at+i])
				}
				tokens, at = tokens+doc.Logical, at+doc.Physical
			}
			n := 0
			for i := range s {
				require.Equal(t, m.Pad.Pad[b*s+i], m.Loss.At(b, i) == 0, "every token has a label")
				n += int(m.Loss.At(b, i))
			}
			require.Equal(t, tokens, n)
		}
	})
}

func TestPackedSyntheticSummary(t *testing.T) {
	sc := scenario("synthetic", 4, 2, 64, 64)
	sc.Dataset.Packed, sc.Dataset.PadToMultiple, sc.Dataset.MinValid = true, 4, 5
	d := open(t, sc)
	require.Regexp(t, `^synthetic: rows of 64 packed with documents of 5 or more, first 8 rows: [1-6]\.\d documents a row, [89]\d\.\d % of positions are tokens, `+
		`16 symbols of a vocabulary of 64, seed 1234$`, d.Summary)
	require.NotEqual(t, d.Train.Microbatch(0, 0).Docs, d.Train.Microbatch(0, 1).Docs)
	require.NotEqual(t, d.Train.Microbatch(0, 0).Docs, d.Validation.Microbatch(0, 0).Docs)
}
