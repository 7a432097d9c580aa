package data

import (
	"cmp"
	"fmt"
	"strconv"

	"phalanx/config"
	"phalanx/nn"
)

// windows is one long text cut into rows: window w is the tokens [w·S, w·S+S], S inputs and S labels, so that each
// label is used once and each window starts with the last label of the one before. What does not fill a window at
// the end is not used.
type windows struct {
	geometry
	tokens []int32
	order  order
}

// openText reads the files one after the other as one text. Its parts for validation and test are never seen in
// training: no window reaches over a cut.
func openText(g geometry, s *config.Scenario) (*Data, error) {
	tok, err := tokenizerOf(g, s)
	if err != nil {
		return nil, err
	}
	var tokens []int32
	for _, path := range s.Dataset.Paths {
		path = located(s, path)
		b, err := readFile(path, fileBytesMax)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			return nil, problem(path, 0, "found an empty file, expected a text")
		}
		if err := checkUTF8(path, b); err != nil {
			return nil, err
		}
		tokens = append(tokens, tok.Encode(string(b))...)
	}
	return splitText(g, s, tok, tokens)
}

// splitText makes the sources.
func splitText(g geometry, s *config.Scenario, tok Tokenizer, tokens []int32) (*Data, error) {
	d := s.Dataset
	at := cutsOf(d, len(tokens))
	train, err := windowsOf(g, tokens[:at[1]], "for training", order{seed: g.seed, name: "text train", shuffle: d.Shuffle})
	if err != nil {
		return nil, err
	}
	var rest [2]sampler
	said := ""
	for i, use := range heldOut {
		part := tokens[at[i+1]:at[i+2]]
		if len(part) == 0 {
			continue
		}
		w, err := windowsOf(g, part, use+" from token "+strconv.Itoa(at[i+1])+" on", order{})
		if err != nil {
			return nil, err
		}
		rest[i] = w
		said += fmt.Sprintf(", %d %s from token %d on", w.order.n, use, at[i+1])
	}
	out := g.opened(train, rest[0], rest[1])
	out.VocabSize, out.Tokenizer = tok.VocabSize(), tok
	out.Summary = fmt.Sprintf("text: %s, %s, %s of %d for training", count(len(d.Paths), "file"), count(len(tokens), "token"),
		count(train.order.n, "row"), g.s) + said
	return out, nil
}

func windowsOf(g geometry, tokens []int32, use string, o order) (*windows, error) {
	if o.n = (len(tokens) - 1) / g.s; o.n < 1 {
		return nil, problem("dataset.paths", 0, "found %s %s, expected at least %d, which make one row of seq_length %d "+
			"and its labels", count(len(tokens), "token"), use, g.s+1, g.s)
	}
	return &windows{geometry: g, tokens: tokens, order: o}, nil
}

// batch is B windows [B, S], the next ones of the epoch's order.
func (d *windows) batch(first int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	for i := range rows {
		w := d.order.at(first + i)
		rows[i] = predicting(d.tokens[w*d.s : (w+1)*d.s+1])
	}
	return d.assemble(rows, d.s)
}

// tokenizerOf is the tokenizer of text and jsonl, and says whether the model has room for its ids.
func tokenizerOf(g geometry, s *config.Scenario) (Tokenizer, error) {
	tok, err := NewTokenizer(s.Tokenizer, s.Dir)
	if err != nil {
		return nil, err
	}
	if g.v < tok.VocabSize() {
		return nil, problem("model.padded_vocab_size", 0, "found %d, expected at least %d, the ids of the %s tokenizer",
			g.v, tok.VocabSize(), cmp.Or(s.Tokenizer.Kind, "byte"))
	}
	if len(s.Dataset.Paths) == 0 {
		return nil, problem("dataset.paths", 0, "found no file, expected at least one")
	}
	return tok, nil
}
