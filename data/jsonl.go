package data

import (
	"bytes"
	"fmt"

	"phalanx/config"
	"phalanx/nn"
)

// lineBytesMax bounds one document: far above any sequence length, far below what would fill the memory.
const lineBytesMax = 16 << 20

// documents is a jsonl dataset: one document a row, padded on the right, or several packed into one.
type documents struct {
	geometry
	docs       []document
	order      order
	answerOnly bool
	longest    bool  // pad to the longest row of the microbatch, else to seq_length
	multiple   int   // of which a padded length is: the tensor-parallel size under sequence parallelism, else 1
	placed     int   // packed: of which a place's length is
	window     int   // packed: best fit over so many documents; 0: next fit
	plan       *plan // packed: the rows
}

// openJSONL reads the files one after the other.
func openJSONL(g geometry, s *config.Scenario) (*Data, error) {
	tok, err := tokenizerOf(g, s)
	if err != nil {
		return nil, err
	}
	d := s.Dataset
	if d.AnswerOnlyLoss && !g.lossMask {
		return nil, problem("dataset.answer_only_loss", 0, "found true with loss_mask: absent, "+
			"expected loss_mask: present, which carries it")
	}
	longest := g.s
	if g.packed {
		longest -= g.s % max(d.PadToMultiple, 1)
	}
	r := &jsonlReader{tok: tok, keep: longest + 1, answerOnly: d.AnswerOnlyLoss, lineMax: lineBytesMax, errs: &Error{}}
	for _, path := range d.Paths {
		if err := r.file(located(s, path)); err != nil {
			return nil, err
		}
	}
	if err := r.errs.orNil(); err != nil {
		return nil, err
	}
	return splitDocuments(g, s, r)
}

// splitDocuments makes the sources.
func splitDocuments(g geometry, s *config.Scenario, r *jsonlReader) (*Data, error) {
	d, n := s.Dataset, len(r.docs)
	at := cutsOf(d, n)
	if at[1] == 0 || wantsValidation(d) && at[1] == at[2] {
		return nil, problem("dataset.paths", 0, "found %s with %s, expected at least one for training and one for validation",
			count(n, "document"), splitWords(d))
	}
	src := documents{geometry: g, answerOnly: d.AnswerOnlyLoss, longest: d.PadTo == "longest", multiple: 1, placed: max(d.PadToMultiple, 1)}
	if s.Model.SequenceParallel {
		src.multiple = max(s.Model.TensorParallel, 1)
	}
	if d.PackingAlgorithm == "best_fit" {
		src.window = d.PackingWindow
	}
	part := func(i, rows int, o order) sampler {
		if at[i] == at[i+1] {
			return nil
		}
		out := src
		out.docs, out.order = r.docs[at[i]:at[i+1]], o
		out.order.n = len(out.docs)
		if g.packed {
			out.pack(rows)
		}
		return &out
	}
	train := part(0, s.Train.TrainIters*s.Train.GlobalBatchSize, order{seed: g.seed, name: "jsonl train", shuffle: d.Shuffle})
	out := g.opened(train, part(1, 0, order{}), part(2, 0, order{}))
	out.VocabSize, out.Tokenizer = r.tok.VocabSize(), r.tok
	out.Summary = fmt.Sprintf("jsonl: %s, %s, %s, %s, %d cut to %d tokens", count(len(d.Paths), "file"),
		count(n, "document"), count(r.tokens, "token"), at, r.cuts, r.keep)
	if d.AnswerOnlyLoss {
		out.Summary += fmt.Sprintf(", %d without an answer (%d by cutting)", r.answerless, r.answersCut)
	}
	if g.packed {
		out.Summary += ", " + train.(*documents).plan.String()
	}
	return out, nil
}

// pack plans rows; a run that uses more plans them when it gets there.
func (d *documents) pack(rows int) {
	tokens := func(doc int) int { return len(d.docs[doc].tokens) - 1 }
	places := func(doc int) int { return rounded(tokens(doc), d.placed) }
	d.plan = planner{order: d.order, s: d.s, limit: plannedMax, window: d.window, places: places, tokens: tokens}.plan(rows)
}

// batch is B documents [B, S], the next ones of the epoch's order, or the next B rows of the plan; S is
// seq_length, or with pad_to: longest the longest of the B, rounded up to a multiple that sequence parallelism can cut.
func (d *documents) batch(first int) *nn.Microbatch {
	rows := make([]sequence, d.b)
	longest := 0
	for i := range rows {
		rows[i] = d.row(first + i)
		longest = max(longest, len(rows[i].ids))
	}
	s := d.s
	if d.longest {
		s = rounded(longest, d.multiple)
	}
	return d.assemble(rows, s)
}

// row is row g of the run.
func (d *documents) row(g int) sequence {
	if !d.packed {
		return d.docs[d.order.at(g)].sequence(d.answerOnly)
	}
	var docs []placed
	for _, i := range d.plan.row(g) {
		q := d.docs[d.order.at(i)].sequence(d.answerOnly)
		docs = append(docs, placed{q, rounded(len(q.ids), d.placed)})
	}
	return packedRow(docs, d.padToken)
}

// jsonlReader collects documents and what is wrong with them.
type jsonlReader struct {
	tok        Tokenizer
	keep       int // tokens of a document that are used
	answerOnly bool
	lineMax    int
	errs       *Error

	docs                         []document
	tokens                       int // in the files, before cutting
	cuts, answersCut, answerless int
}

// file reads one file; an error of the file as a whole ends the reading, problems of lines are collected.
func (r *jsonlReader) file(path string) error {
	b, err := readFile(path, fileBytesMax)
	if err != nil {
		return err
	}
	before := len(r.docs) + len(r.errs.Problems)
	for line := 1; len(b) > 0; line++ {
		var text []byte
		text, b, _ = bytes.Cut(b, []byte{'\n'})
		if text = bytes.TrimSpace(text); len(text) > 0 {
			r.line(path, line, text)
		}
	}
	if len(r.docs)+len(r.errs.Problems) == before && r.errs.More == 0 {
		return problem(path, 0, "found no line, expected one JSON object a line")
	}
	return nil
}

// line reads one document.
func (r *jsonlReader) line(path string, line int, text []byte) {
	if len(text) > r.lineMax {
		r.errs.add(path, line, "found a line of %d bytes, expected at most %d", len(text), r.lineMax)
		return
	}
	d, err := parseDocument(text, r.tok)
	switch {
	case err != nil:
		r.errs.add(path, line, "%v", err)
		return
	case r.answerOnly && d.answer == nil:
		r.errs.add(path, line, "found text, which has no answer; expected prompt + completion or messages for answer_only_loss")
		return
	}
	r.tokens += len(d.tokens)
	cut, lost := d.cut(r.keep)
	if cut {
		r.cuts++
	}
	if lost {
		r.answersCut++
	}
	if d.answer != nil && !d.hasTarget() {
		r.answerless++
	}
	r.docs = append(r.docs, d)
}
