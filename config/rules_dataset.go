package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// kindKeys are the keys of the dataset section that each kind takes beside kind itself.
var kindKeys = map[string][]string{
	"rows":      {"seq_length", "rows", "embeddings", "pad_token", "padding_mask", "loss_mask"},
	"synthetic": {"seq_length", "min_valid", "packed", "pad_to_multiple", "embeddings", "pad_token", "padding_mask", "loss_mask"},
	"text":      {"seq_length", "paths", "validation_share", "split", "shuffle", "padding_mask", "loss_mask"},
	"indexed":   {"seq_length", "path", "split", "shuffle", "packed", "padding_mask", "loss_mask"},
	"jsonl": {"seq_length", "paths", "validation_share", "split", "shuffle", "packed", "pad_to_multiple", "packing_algorithm", "packing_window", "pad_to",
		"pad_token", "answer_only_loss",
		"padding_mask", "loss_mask"},
	"reference": {"seq_length", "path"},
}

// ignoreLabel in a file means that the label counts in no loss.
const ignoreLabel = -100

// dataset holds the rules of the dataset section.
func (c *checker) dataset() {
	d, m := &c.s.Dataset, &c.s.Model
	if !c.ok("dataset.kind") {
		return
	}
	c.kind()
	if d.Kind != "reference" {
		if m.PaddedVocabSize == 0 {
			c.fail("model.padded_vocab_size", fmt.Sprintf("required with %s; expected a whole number from 2 to %d, above all of them", c.s.vocabularyNeeds(), MaxVocab))
		}
		if d.SeqLength == 0 {
			c.fail("dataset.seq_length", fmt.Sprintf("required with dataset kind %s; expected a whole number from 1 to %d", d.Kind, MaxSeqLength), "dataset.rows")
		}
	}
	if (d.Kind == "text" || d.Kind == "jsonl") && c.s.Tokenizer.Kind == "byte" && m.PaddedVocabSize < byteVocab {
		c.fail("model.padded_vocab_size", fmt.Sprintf("%d is less than the byte tokenizer's %d tokens; nearest legal: %d", m.PaddedVocabSize, byteVocab, byteVocab), "tokenizer.kind")
	}
	if v := m.PaddedVocabSize; v > 0 && d.PadToken >= v {
		c.fail("dataset.pad_token", fmt.Sprintf("%d is not in the vocabulary of padded_vocab_size %d; nearest legal: %d", d.PadToken, v, v-1), "model.padded_vocab_size")
	}
	c.packing()
	if d.MinValid > d.SeqLength && d.Kind == "synthetic" {
		c.fail("dataset.min_valid", fmt.Sprintf("%d is more than seq_length %d; nearest legal: %d", d.MinValid, d.SeqLength, d.SeqLength), "dataset.seq_length")
	}
	if d.AnswerOnlyLoss && d.LossMask == "absent" {
		c.fail("dataset.answer_only_loss", "is a loss mask, and loss_mask: absent has none; remove one of the two")
	}
	c.split()
	c.tokenizer()
	if (d.Kind == "text" || d.Kind == "jsonl") && c.s.Train.EvalInterval > 0 && d.ValidationShare == 0 && d.Split == "" {
		c.fail("dataset.validation_share", "0 leaves nothing for the evaluations of train.eval_interval; expected a number above 0, or eval_interval: 0", "train.eval_interval")
	}
	if d.Kind == "rows" {
		for i := range d.Rows {
			c.row(i)
		}
	}
}

// kind checks that the keys which are set are those of the kind, and that the kind has what it needs.
func (c *checker) kind() {
	d := &c.s.Dataset
	set := map[string]bool{
		"paths": d.Paths != nil, "path": d.Path != "", "rows": d.Rows != nil, "validation_share": d.ValidationShare != 0, "pad_to": d.PadTo != "",
		"pad_token": d.PadToken != 0, "answer_only_loss": d.AnswerOnlyLoss, "padding_mask": d.PaddingMask != "", "loss_mask": d.LossMask != "",
		"shuffle": d.Shuffle, "split": d.Split != "", "min_valid": d.MinValid != 0, "packed": d.Packed, "pad_to_multiple": d.PadToMultiple != 0, "embeddings": d.Embeddings != "",
		"packing_algorithm": d.PackingAlgorithm != "", "packing_window": d.PackingWindow != 0,
	}
	for _, key := range sectionKeys("dataset") {
		if set[key] && !slices.Contains(kindKeys[d.Kind], key) {
			c.fail("dataset."+key, fmt.Sprintf("is not a key of kind %s, which has %s", d.Kind, strings.Join(kindKeys[d.Kind], ", ")))
		}
	}
	needs := map[string]string{"rows": "rows", "text": "paths", "jsonl": "paths", "indexed": "path", "reference": "path"}[d.Kind]
	if needs != "" && !set[needs] {
		c.fail("dataset."+needs, "required with dataset kind "+d.Kind+"; expected "+article(typeName(reflect.TypeOf(lookup(c.s, "dataset."+needs)))))
	}
	for i, path := range d.Paths {
		if path == "" {
			c.fail(fmt.Sprintf("dataset.paths.%d", i), "found an empty text, expected the path of a file")
		}
	}
}

// tokenizer holds the rules of the tokenizer section.
func (c *checker) tokenizer() {
	t := &c.s.Tokenizer
	if !c.ok("tokenizer.kind") {
		return
	}
	for _, k := range []struct {
		key          string
		given        bool
		needs, takes []string
		expected     string
	}{
		{"tokenizer_model", t.Model != "", []string{"huggingface", "tiktoken"}, []string{"huggingface", "tiktoken"}, "the path of a file"},
		{"tiktoken_pattern", t.TiktokenPattern != "", []string{"tiktoken"}, []string{"tiktoken"}, "one of " + strings.Join(tiktokenPatterns, ", ")},
		{"tiktoken_special_tokens", t.TiktokenSpecialTokens != nil, nil, []string{"tiktoken"}, ""},
	} {
		switch {
		case k.given && !slices.Contains(k.takes, t.Kind):
			c.fail("tokenizer."+k.key, "is a key of kind "+strings.Join(k.takes, " and ")+", found kind "+t.Kind, "tokenizer.kind")
		case !k.given && slices.Contains(k.needs, t.Kind):
			c.fail("tokenizer."+k.key, "required with tokenizer kind "+t.Kind+"; expected "+k.expected)
		}
	}
}

// split holds the rules of dataset.split.
func (c *checker) split() {
	d := &c.s.Dataset
	if d.Split == "" || !c.ok("dataset.split") {
		return
	}
	shares, ok := ParseSplit(d.Split)
	switch {
	case !ok:
		c.fail("dataset.split", fmt.Sprintf("found %q, expected up to three weights for training, validation and test, the first above 0, as in 969,30,1", d.Split))
	case d.ValidationShare != 0:
		c.fail("dataset.validation_share", "is given beside split, which says the same thing; remove one of the two", "dataset.split")
	case c.s.Train.EvalInterval > 0 && shares[1] == 0:
		c.fail("dataset.split", "leaves nothing for the evaluations of train.eval_interval; expected a second weight above 0, or eval_interval: 0", "train.eval_interval")
	}
}

// packing holds the rules of packed rows that are not written out.
func (c *checker) packing() {
	d := &c.s.Dataset
	const length, multiple, valid = "dataset.seq_length", "dataset.pad_to_multiple", "dataset.min_valid"
	if d.Kind == "jsonl" && d.PackingAlgorithm != "" && !d.Packed {
		c.fail("dataset.packing_algorithm", "is given without packed: true; set dataset.packed: true or remove it", "dataset.packed")
	}
	if d.Kind == "jsonl" && d.PackingWindow != 0 && d.PackingAlgorithm != "best_fit" {
		c.fail("dataset.packing_window", "is given without packing_algorithm: best_fit; set that or remove it", "dataset.packing_algorithm")
	}
	if d.Kind == "indexed" && d.Packed && d.LossMask == "absent" {
		c.fail("dataset.packed", "needs a loss mask at the ends of sequences, and loss_mask: absent has none; remove one of the two", "dataset.loss_mask")
	}
	switch n := d.PadToMultiple; {
	case n == 0 || d.Kind != "synthetic" && d.Kind != "jsonl":
	case !d.Packed:
		c.fail(multiple, "is given without packed: true, and pads packed documents; set dataset.packed: true or remove it", "dataset.packed")
	case n > d.SeqLength:
		c.fail(multiple, fmt.Sprintf("%d is more than seq_length %d, so that no document has a place; nearest legal: %d", n, d.SeqLength, d.SeqLength), length)
	case d.MinValid > d.SeqLength-d.SeqLength%n:
		most := d.SeqLength - d.SeqLength%n
		c.fail(valid, fmt.Sprintf("%d is more than the longest place in a row, %d (seq_length %d, pad_to_multiple %d); nearest legal: %d",
			d.MinValid, most, d.SeqLength, n, most), length, multiple)
	}
}

// row holds the rules of one explicit row.
func (c *checker) row(i int) {
	d := &c.s.Dataset
	r, at := &d.Rows[i], fmt.Sprintf("dataset.rows.%d", i)
	if !c.layoutLists(at) {
		return
	}
	switch {
	case r.Valid == nil && r.Tokens == nil && !r.Packed():
		c.fail(at, "has neither valid nor tokens; give valid (a length, tokens are synthetic), tokens, or documents", at+".valid", at+".tokens")
		return
	case r.Valid != nil && r.Tokens != nil:
		c.fail(at+".tokens", "is given beside valid; give valid (a length, tokens are synthetic) or tokens", at+".valid")
		return
	}
	if _, f := r.Layout(); f != nil {
		c.fail(at+"."+f.Key, f.Message)
		return
	}
	c.rowLengths(r, at)
	c.rowValues(at+".position_ids", r.PositionIDs, c.position)
	c.rowValues(at+".tokens", r.Tokens, c.token)
	c.rowValues(at+".labels", r.Labels, c.label)
	if i := slices.Index(r.Labels, ignoreLabel); i >= 0 && d.LossMask == "absent" {
		c.fail(fmt.Sprintf("%s.labels.%d", at, i), fmt.Sprintf("found %d, which needs a loss mask; remove dataset.loss_mask: absent", ignoreLabel), "dataset.loss_mask")
	}
	c.rowValues(at+".loss_mask", r.LossMask, bit)
	c.rowValues(at+".padding_mask", r.PaddingMask, bit)
	if r.PaddingMask != nil && d.PaddingMask == "absent" {
		c.fail(at+".padding_mask", "is given while dataset.padding_mask is absent; remove one of the two", "dataset.padding_mask")
	}
	if r.LossMask != nil && d.LossMask == "absent" {
		c.fail(at+".loss_mask", "is given while dataset.loss_mask is absent; remove one of the two", "dataset.loss_mask")
	}
	c.answer(r, at)
}

// layoutLists reports whether the lists that lay out a row, if any, say something.
func (c *checker) layoutLists(at string) bool {
	for _, key := range []string{"documents", "documents_padded", "cu_seqlens", "cu_seqlens_padded"} {
		if m, given := c.marks[at+"."+key]; given && m.value.kind == list && len(m.value.items) == 0 {
			c.fail(at+"."+key, "found an empty list, expected a length for each document; remove the key for a row that is one document")
		}
		if !c.ok(at + "." + key) {
			return false
		}
	}
	return true
}

// rowLengths checks the length of a row against seq_length and of its lists against the row.
func (c *checker) rowLengths(r *Row, at string) {
	n, from, unit := r.length(), at+".tokens", "token"
	switch {
	case r.Tokens == nil && r.Packed():
		from, unit = at+"."+r.LayoutKey(), "position"
	case r.Valid != nil:
		from = at + ".valid"
	}
	if limit := c.s.Dataset.SeqLength; n > limit {
		c.fail(from, fmt.Sprintf("the row has %d %ss, expected at most seq_length %d", n, unit, limit), "dataset.seq_length")
	}
	for name, values := range map[string][]int{"labels": r.Labels, "loss_mask": r.LossMask, "padding_mask": r.PaddingMask, "position_ids": r.PositionIDs} {
		if values != nil && len(values) != n {
			c.fail(at+"."+name, fmt.Sprintf("has length %d, expected %d, one entry for each %s of the row", len(values), n, unit), from)
		}
	}
}

func (c *checker) answer(r *Row, at string) {
	if r.Answer == nil {
		return
	}
	from, to, n := r.Answer[0], r.Answer[1], r.length()
	switch {
	case r.LossMask != nil:
		c.fail(at+".answer", "is given beside loss_mask, which says the same thing; remove one of the two")
	case c.s.Dataset.LossMask == "absent":
		c.fail(at+".answer", "is given while dataset.loss_mask is absent; remove one of the two", "dataset.loss_mask")
	case from < 0 || from > to || to > n:
		c.fail(at+".answer", fmt.Sprintf("found [%d, %d], expected positions with 0 ≤ from ≤ to ≤ %d, the length of the row", from, to, n), at+".tokens", at+".valid")
	}
}

// rowValues checks each entry of a list of a row; wrong says what is wrong with a value, empty if nothing.
func (c *checker) rowValues(key string, values []int, wrong func(v int) string) {
	if !c.ok(key) {
		return
	}
	for i, v := range values {
		if text := wrong(v); text != "" {
			c.fail(fmt.Sprintf("%s.%d", key, i), text)
		}
	}
}

func (c *checker) token(v int) string {
	n := c.s.Model.PaddedVocabSize
	if n == 0 || !c.ok("model.padded_vocab_size") || v >= 0 && v < n {
		return ""
	}
	return fmt.Sprintf("found token %d, expected one from 0 to %d (padded_vocab_size %d)", v, n-1, n)
}

func (c *checker) label(v int) string {
	if v == ignoreLabel || c.token(v) == "" {
		return ""
	}
	n := c.s.Model.PaddedVocabSize
	return fmt.Sprintf("found label %d, expected one from 0 to %d (padded_vocab_size %d), or %d to count in no loss", v, n-1, n, ignoreLabel)
}

func (c *checker) position(v int) string {
	n := c.s.Dataset.SeqLength
	if n == 0 || !c.ok("dataset.seq_length") || v >= 0 && v < n {
		return ""
	}
	return fmt.Sprintf("found position %d, expected one from 0 to %d (seq_length %d)", v, n-1, n)
}

func bit(v int) string {
	if v == 0 || v == 1 {
		return ""
	}
	return fmt.Sprintf("found %d, expected 0 or 1", v)
}
