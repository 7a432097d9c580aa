// Package data turns the dataset section of a scenario into microbatches.
//
// A source is a pure function of (seed, step, microbatch): files are read or mapped when the data is opened, no call
// depends on an earlier one, and no layout, rank or restart enters. Any rank may ask for any microbatch, at any time
// and from several goroutines. The rows of a run are numbered: a Cursor is how many have been used.
//
// Conventions. A row of length n has n input tokens x[0..n) and n labels, y[i] = x[i+1], where y[n-1]
// is the token after the last input: n+1 tokens make a row of n. Positions ≥ n are padding by their position, never
// by the value of a token: input and label there are the pad token, the padding mask is true and the loss mask 0.
// Ids of labels that do not count are still ids of the vocabulary; -100 becomes mask 0 and label 0 here.
//
// A packed row has documents behind each other, each a row of its own: n+1 tokens make n inputs and n labels, no label
// is a token of another document, positions start at 0. A document's place may be longer than the document: what is
// behind its logical end is padding. What is behind the last document is one more. The presence of
// documents, as of masks and embeddings, is a property of the dataset, the same in every microbatch. Rows are whole:
// layouts cut them, and insert what context parallelism needs, in the model.
package data

import (
	"path/filepath"
	"slices"

	"phalanx/config"
	"phalanx/nn"
)

// Source gives the microbatches of a run.
type Source interface {
	// Microbatch is microbatch mb of a step, both from 0, newly allocated: the caller may keep and change it. mb is
	// the global index, over all data-parallel ranks. In a validation source, step counts the iterations of one
	// evaluation, so that every evaluation sees the same rows.
	Microbatch(step, mb int) *nn.Microbatch
	// Microbatches is the number of microbatches of a step, M = global_batch_size / micro_batch_size.
	Microbatches() int
}

// Data is an opened dataset.
type Data struct {
	Train      Source
	Validation Source    // nil: none
	Test       Source    // what dataset.split keeps for a test, and no run reads; nil: none
	VocabSize  int       // every id of the data is below it
	Tokenizer  Tokenizer // nil when the data is not text
	Summary    string    // files, tokens, rows and splits in one line
}

// Owned is the microbatches that data-parallel rank r of size owns, [from, to) of the step's m: contiguous, and
// never split. size divides m.
func Owned(m, size, r int) (from, to int) { return r * m / size, (r + 1) * m / size }

// geometry is the sizes every source shares.
type geometry struct {
	b int // rows of a microbatch
	m int // microbatches of a step
	s int // sequence length
	v int // vocabulary: ids are in [0, v)

	padToken          int32
	padMask, lossMask bool // whether batches carry them
	packed            bool // whether batches carry documents
	hidden            int  // width of precomputed embeddings; 0: none
	seed              uint64
}

// Open reads the data of a scenario whose values have been validated. What is wrong with a file is an *Error.
func Open(s *config.Scenario) (*Data, error) {
	g, err := geometryOf(s)
	if err != nil {
		return nil, err
	}
	switch s.Dataset.Kind {
	case "rows":
		return openRows(g, s.Dataset.Rows)
	case "synthetic":
		return openSynthetic(g, s.Dataset), nil
	case "text":
		return openText(g, s)
	case "jsonl":
		return openJSONL(g, s)
	case "indexed":
		return openIndexed(g, s)
	case "reference":
		return openReference(g, s)
	}
	return nil, problem("dataset.kind", 0, "found %q, expected rows, synthetic, text, jsonl, indexed or reference", s.Dataset.Kind)
}

func geometryOf(s *config.Scenario) (geometry, error) {
	d, b, global := s.Dataset, s.Train.MicroBatchSize, s.Train.GlobalBatchSize
	if b < 1 || global < b || global%b != 0 {
		return geometry{}, problem("train", 0, "found micro_batch_size %d and global_batch_size %d, "+
			"expected a positive size and a multiple of it", b, global)
	}
	g := geometry{b: b, m: global / b, s: d.SeqLength, v: s.Model.PaddedVocabSize, padToken: int32(d.PadToken), seed: s.RNG.Seed}
	if g.v == 0 {
		g.v = byteVocab
	}
	if d.Embeddings == "precomputed" {
		g.hidden = s.Model.HiddenSize
	}
	g.packed = d.Packed || d.Kind == "rows" && slices.ContainsFunc(d.Rows, func(r config.Row) bool { return r.Packed() })
	padded := d.Kind == "rows" || d.Kind == "jsonl" || d.Kind == "synthetic" && (d.MinValid > 0 || d.Packed)
	g.padMask = present(d.PaddingMask, padded)
	g.lossMask = present(d.LossMask, d.Kind != "text" && (d.Kind != "indexed" || d.Packed))
	if d.Kind == "reference" { // its sizes come from the case
		return g, nil
	}
	if g.s < 1 {
		return g, problem("dataset.seq_length", 0, "found %d, expected at least 1", g.s)
	}
	if d.PadToken < 0 || d.PadToken >= g.v {
		return g, problem("dataset.pad_token", 0, "found %d, expected an id of the vocabulary, from 0 to %d", d.PadToken, g.v-1)
	}
	return g, nil
}

// present reads present | absent, with a default for the empty string.
func present(key string, otherwise bool) bool {
	if key == "" {
		return otherwise
	}
	return key == "present"
}

// located is a path of the scenario: relative ones start in the scenario's folder.
func located(s *config.Scenario, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.Dir, path)
}
