package data

import (
	"fmt"

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

// openText reads the files one after the other as one text. The last validation_share of its tokens is kept for
// validation and never seen in training: no window reaches over the cut.
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

// splitText makes the two sources.
func splitText(g geometry, s *config.Scenario, tok Tokenizer, tokens []int32) (*Data, error) {
	d := s.Dataset
	cut := len(tokens) - int(d.ValidationShare*float64(len(tokens)))
	train, err := windowsOf(g, tokens[:cut], "for training", order{seed: g.seed, name: "text train", shuffle: d.Shuffle})
	if err != nil {
		return nil, err
	}
	out := &Data{Train: train, VocabSize: tok.VocabSize(), Tokenizer: tok, Summary: fmt.Sprintf(
		"text: %s, %s, %s of %d for training", count(len(d.Paths), "file"), count(len(tokens), "token"),
		count(train.order.n, "row"), g.s)}
	if d.ValidationShare == 0 {
		return out, nil
	}
	use := fmt.Sprintf("in the last %g of the text for validation", d.ValidationShare)
	val, err := windowsOf(g, tokens[cut:], use, order{})
	if err != nil {
		return nil, err
	}
	out.Validation = val
	out.Summary += fmt.Sprintf(", %d for validation from token %d on", val.order.n, cut)
	return out, nil
}

func windowsOf(g geometry, tokens []int32, use string, o order) (*windows, error) {
	if o.n = (len(tokens) - 1) / g.s; o.n < 1 {
		return nil, problem("dataset.paths", 0, "found %s %s, expected at least %d, which make one row of seq_length %d "+
			"and its labels", count(len(tokens), "token"), use, g.s+1, g.s)
	}
	return &windows{geometry: g, tokens: tokens, order: o}, nil
}

// Microbatch is B windows [B, S], the next ones of the epoch's order.
func (d *windows) Microbatch(step, mb int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	for i := range rows {
		w := d.order.at(d.sample(step, mb, i))
		rows[i] = predicting(d.tokens[w*d.s : (w+1)*d.s+1])
	}
	return d.assemble(rows, d.s)
}

// tokenizerOf is the tokenizer of text and jsonl, and says whether the model has room for its ids.
func tokenizerOf(g geometry, s *config.Scenario) (Tokenizer, error) {
	if k := s.Tokenizer.Kind; k != "" && k != "byte" {
		return nil, problem("tokenizer.kind", 0, "found %q, expected byte", k)
	}
	tok := Bytes{}
	if g.v < tok.VocabSize() {
		return nil, problem("model.padded_vocab_size", 0, "found %d, expected at least %d, the ids of the byte tokenizer",
			g.v, tok.VocabSize())
	}
	if len(s.Dataset.Paths) == 0 {
		return nil, problem("dataset.paths", 0, "found no file, expected at least one")
	}
	return tok, nil
}
