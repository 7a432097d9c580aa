package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
)

// What holds when the file does not say. evalIters is Megatron's.
const (
	validationShare = 0.1
	evalIters       = 100
	packingWindow   = 1024
	indexedSplit    = "969,30,1" // Megatron's
	tolerance64     = 1e-9       // for close, and for runs in fp64
	tolerance32     = 1e-4       // for runs in another type, whose layouts add up in other orders
	byteVocab       = 256        // of the byte tokenizer; synthetic tokens are drawn from the same
)

// Defaults is a scenario in which every key with a constant default has it; what follows from other keys, and what is
// required, is left unset.
func Defaults() Scenario {
	var s Scenario
	d := newDecoder()
	visit(reflect.ValueOf(&s).Elem(), nil, func(at *loc, v reflect.Value) {
		if sp := specOf(at.star()); sp.constant() {
			d.value(defaultNode(sp.def, v.Type()), at, v)
		}
	})
	return s
}

// defaultNode is the text of a default as a node of the key's kind.
func defaultNode(text string, t reflect.Type) *node {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	tag := "!!float"
	switch t.Kind() {
	case reflect.String:
		tag = "!!str"
	case reflect.Bool:
		tag = "!!bool"
	}
	return &node{tag: tag, text: text}
}

// derive gives the keys that follow from others their defaults. given says which keys the file has.
func (s *Scenario) derive(given func(key string) bool) {
	s.Model.derive(given)
	s.deriveDataset(given)
	s.deriveSizes()
	t := &s.Train
	if t.EvalInterval > 0 && !given("train.eval_iters") {
		t.EvalIters = evalIters
	}
	if !given("scheduler.lr_decay_style") {
		s.Scheduler.LRDecayStyle = "constant"
		if given("scheduler") {
			s.Scheduler.LRDecayStyle = "linear"
		}
	}
	if s.Scheduler.LRDecayIters == 0 && s.Scheduler.LRDecaySamples == 0 {
		s.Scheduler.LRDecayIters = t.TrainIters
	}
	sharded := s.Optimizer.UseDistributedOptimizer || s.DDP.UseDistributedOptimizer
	s.Optimizer.UseDistributedOptimizer, s.DDP.UseDistributedOptimizer = sharded, sharded
	s.deriveProbe()
	for i := range s.Faults {
		s.deriveFault(&s.Faults[i], fmt.Sprintf("faults.%d.", i), given)
	}
	for i := range s.Expect {
		if !given(fmt.Sprintf("expect.%d.tolerance", i)) {
			s.deriveTolerance(&s.Expect[i])
		}
	}
}

func (s *Scenario) deriveFault(f *Injected, at string, given func(key string) bool) {
	if f.OfRank() && !given(at+"at.count") {
		f.At.Count = 1
	}
	if f.OfLink() && !given(at+"seed") {
		f.Seed = s.RNG.Seed
	}
}

func (s *Scenario) deriveTolerance(e *Expect) {
	switch {
	case e.SameAs == "without_faults": // bit by bit
	case e.Close != nil, e.SameAs != "" && s.Train.DType == "fp64":
		e.Tolerance = tolerance64
	case e.SameAs != "":
		e.Tolerance = tolerance32
	}
}

func (m *Model) derive(given func(key string) bool) {
	if m.NumQueryGroups == 0 {
		m.NumQueryGroups = m.NumAttentionHeads
	}
	if m.KVChannels == 0 && m.NumAttentionHeads > 0 && m.HiddenSize%m.NumAttentionHeads == 0 {
		m.KVChannels = m.HiddenSize / m.NumAttentionHeads
	}
	if m.FFNHiddenSize == 0 {
		m.FFNHiddenSize = product(4, m.HiddenSize)
	}
	if m.MoEFFNHiddenSize == 0 {
		m.MoEFFNHiddenSize = m.FFNHiddenSize
	}
	if !given("model.gated_linear_unit") {
		m.GatedLinearUnit = m.ActivationFunc != "squared_relu"
	}
}

func (s *Scenario) deriveDataset(given func(key string) bool) {
	d := &s.Dataset
	text := d.Kind == "text" || d.Kind == "jsonl"
	if d.Kind == "indexed" && d.Split == "" && !given("dataset.split") {
		d.Split = indexedSplit
	}
	if s.Model.PaddedVocabSize == 0 && d.Kind != "" && d.Kind != "reference" && s.vocabularyNeeds() == "" {
		s.Model.PaddedVocabSize = byteVocab
	}
	if d.Kind == "rows" && d.SeqLength == 0 && !given("dataset.seq_length") {
		for i := range d.Rows {
			d.SeqLength = max(d.SeqLength, d.Rows[i].length())
		}
	}
	if text && s.Train.EvalInterval > 0 && d.Split == "" && !given("dataset.validation_share") {
		d.ValidationShare = validationShare
	}
	if (text || d.Kind == "indexed") && !given("dataset.shuffle") {
		d.Shuffle = true
	}
	if d.Kind == "jsonl" && d.PadTo == "" {
		d.PadTo = "seq_length"
	}
	if d.Packed && d.Kind != "indexed" && d.PadToMultiple == 0 && !given("dataset.pad_to_multiple") {
		d.PadToMultiple = 1
	}
	if d.Kind == "jsonl" && d.Packed && d.PackingAlgorithm == "" {
		d.PackingAlgorithm = "next_fit"
	}
	if d.PackingAlgorithm == "best_fit" && d.PackingWindow == 0 {
		d.PackingWindow = packingWindow
	}
	if s.Model.PositionEmbedding == "learned_absolute" && s.Model.MaxPositionEmbeddings == 0 {
		s.Model.MaxPositionEmbeddings = d.SeqLength
	}
	if d.LossMask == "" && d.Kind != "" && d.Kind != "reference" {
		d.LossMask = "present"
	}
	if d.PaddingMask == "" {
		d.PaddingMask = d.defaultPaddingMask()
	}
}

func (d *Dataset) defaultPaddingMask() string {
	switch {
	case d.Kind == "rows", d.Kind == "jsonl", d.Kind == "synthetic" && (d.MinValid > 0 || d.Packed):
		return "present"
	case d.Kind == "text", d.Kind == "indexed", d.Kind == "synthetic":
		return "absent"
	}
	return ""
}

// deriveSizes sets the size of the job and of a step.
func (s *Scenario) deriveSizes() {
	if s.Dist.WorldSize == 0 {
		s.Dist.WorldSize = s.modelParallel()
	}
	if s.Train.GlobalBatchSize == 0 {
		s.Train.GlobalBatchSize = product(s.Train.MicroBatchSize, s.DataParallel())
	}
}

// vocabularyNeeds says what in the file needs to be told how large the vocabulary is; empty if nothing does.
func (s *Scenario) vocabularyNeeds() string {
	d := &s.Dataset
	switch {
	case d.explicitTokens():
		return "explicit tokens or labels"
	case d.Kind == "indexed":
		return "dataset kind indexed"
	case (d.Kind == "text" || d.Kind == "jsonl") && s.Tokenizer.Kind != "" && s.Tokenizer.Kind != "byte":
		return "tokenizer kind " + s.Tokenizer.Kind
	}
	return ""
}

// explicitTokens reports whether any row gives its tokens: then the file must say how large the vocabulary is.
func (d *Dataset) explicitTokens() bool {
	return slices.ContainsFunc(d.Rows, func(r Row) bool { return r.Tokens != nil || r.Labels != nil })
}

// length is the number of positions of a row.
func (r *Row) length() int {
	docs, _ := r.Layout()
	switch {
	case r.Tokens != nil:
		return len(r.Tokens)
	case docs != nil:
		_, n := extent(docs)
		return n
	case r.Valid != nil:
		return *r.Valid
	case r.Packed():
		return 1 // the lists are wrong, and will be told: not that seq_length is missing
	}
	return 0
}

// product multiplies sizes; it stops at the greatest int instead of overflowing. A negative size counts as 0.
func product(factors ...int) int {
	out := 1
	for _, f := range factors {
		switch {
		case f <= 0:
			return 0
		case out > math.MaxInt/f:
			out = math.MaxInt
		default:
			out *= f
		}
	}
	return out
}

// sum adds sizes; it stops at the greatest int instead of overflowing.
func sum(terms ...int) int {
	out := 0
	for _, t := range terms {
		if t > math.MaxInt-out {
			return math.MaxInt
		}
		out += max(t, 0)
	}
	return out
}
