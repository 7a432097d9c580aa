package data

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"phalanx/config"
	"phalanx/data/indexed"
	"phalanx/nn"
)

// corpus is a part of an indexed dataset as rows of S inputs and S labels, as Megatron's GPTDataset makes them: the
// sequences of the part, in an order drawn for the epoch, are one stream of T tokens; sample w of the epoch is its
// tokens [w·S, w·S+S], so that each label is used once; the (T−1)/S samples come in another order drawn for the epoch.
// What does not fill a sample at the end of an epoch is not used in it. Both orders are functions of (seed, epoch), so
// there is no index file, and nothing depends on how long the run is: Megatron draws its orders over all epochs of the
// run, and a longer run begins with other samples there.
type corpus struct {
	geometry
	file     *indexed.File
	path     string
	from, to int   // sequences of the part
	samples  order // of an epoch
	docs     order // of an epoch
	*epochCache
}

// markEvery is how many sequences lie between two that an epoch knows the place of: it keeps 8 bytes for so many.
const markEvery = 16

// epoch is where the sequences of an epoch lie in its stream.
type epoch struct {
	number int
	marks  []int64 // [⌈docs/markEvery⌉]: the token at which every markEvery-th sequence of the order starts
}

// epochCache holds the last epochs that were asked for: ranks are at most one apart.
type epochCache struct {
	mu   sync.Mutex
	last [2]*epoch
}

// openIndexed maps PREFIX.bin and PREFIX.idx and cuts the sequences as dataset.split says.
func openIndexed(g geometry, s *config.Scenario) (*Data, error) {
	d := s.Dataset
	path := indexed.Prefix(located(s, d.Path))
	f, err := indexed.Open(path)
	if err != nil {
		return nil, indexedError(err)
	}
	at := cutsOf(d, f.Sequences())
	var parts [3]sampler
	said := ""
	for i, use := range [3]string{"for training", heldOut[0], heldOut[1]} {
		if i > 0 && at[i] == at[i+1] && (i > 1 || !wantsValidation(d) || s.Train.EvalInterval == 0) {
			continue
		}
		o := order{seed: g.seed, name: "indexed train", shuffle: d.Shuffle && i == 0}
		c, tokens, err := corpusOf(g, f, path, at[i], at[i+1], o)
		switch {
		case err != nil:
			return nil, err
		case c == nil && i > 1:
			continue
		case c == nil:
			return nil, problem(path+".bin", 0, "found %s in %s %s (split %s), expected at least %d, which make one row of "+
				"seq_length %d and its labels", count(int(tokens), "token"), count(at[i+1]-at[i], "sequence"), use, d.Split, g.s+1, g.s)
		}
		parts[i] = c
		said += fmt.Sprintf(", %s of %s %s", count(c.samples.n, "row"), count(c.to-c.from, "sequence"), use)
	}
	out := g.opened(parts[0], parts[1], parts[2])
	out.Summary = fmt.Sprintf("indexed: %s of %s in %s, rows of %d", count(int(f.Tokens()), "token"), f.Kind(), count(f.Sequences(), "sequence"), g.s) + said
	return out, nil
}

// corpusOf is the sequences [from, to) and the number of their tokens; nil if they make no row.
func corpusOf(g geometry, f *indexed.File, path string, from, to int, o order) (*corpus, int64, error) {
	tokens := int64(0)
	if err := f.Lengths(from, to, func(n int) { tokens += int64(n) }); err != nil {
		return nil, 0, indexedError(err)
	}
	c := &corpus{geometry: g, file: f, path: path, from: from, to: to, samples: o, docs: o, epochCache: &epochCache{}}
	c.samples.n, c.docs.n = int((tokens-1)/int64(g.s)), to-from
	c.docs.name += " sequences"
	if tokens <= int64(g.s) {
		return nil, tokens, nil
	}
	return c, tokens, nil
}

// batch is B rows [B, S], the next ones of the epoch's order.
func (c *corpus) batch(first int) *nn.Microbatch {
	rows := make([]sequence, c.b)
	for i := range rows {
		tokens, ends, err := c.row(first + i)
		if err != nil {
			panic(err) // the file has changed, or holds what is no token of the model: the run ends with the reason
		}
		rows[i] = predicting(tokens)
		if c.packed {
			rows[i] = c.apart(rows[i], ends)
		}
	}
	return c.assemble(rows, c.s)
}

// apart is a row whose sequences are documents: those that end at ends, and the rest. The label behind the last token of
// a sequence is a token of another one and does not count. This is Megatron's reset_position_ids, reset_attention_mask
// and eod_mask_loss, without the need of an end-of-document token.
func (c *corpus) apart(q sequence, ends []int) sequence {
	out := sequence{ids: q.ids, labels: slices.Clone(q.labels), counts: make([]bool, len(q.ids))}
	for i := range out.counts {
		out.counts[i] = true
	}
	start := 0
	for _, end := range ends {
		out.docs = append(out.docs, nn.Doc{Start: start, Logical: end - start, Physical: end - start})
		out.labels[end-1], out.counts[end-1] = c.padToken, false
		start = end
	}
	if start < len(q.ids) {
		out.docs = append(out.docs, nn.Doc{Start: start, Logical: len(q.ids) - start, Physical: len(q.ids) - start})
	}
	return out
}

// row is the S+1 tokens of row g of the run, and behind which of the first S a sequence ends.
func (c *corpus) row(g int) (tokens []int32, ends []int, err error) {
	e, err := c.epoch(g / c.samples.n)
	if err != nil {
		return nil, nil, err
	}
	tokens = make([]int32, c.s+1)
	if ends, err = c.fill(tokens, e, int64(c.samples.at(g))*int64(c.s)); err != nil {
		return nil, nil, indexedError(err)
	}
	for i, id := range tokens {
		if int(id) >= c.v {
			return nil, nil, problem(c.path+".bin", 0, "found token %d at %d of row %d, expected one below padded_vocab_size %d", id, i, g, c.v)
		}
	}
	return tokens, ends, nil
}

// fill reads tokens from place at of an epoch's stream on, and says where in them a sequence ends, but for the last.
func (c *corpus) fill(tokens []int32, e *epoch, at int64) (ends []int, err error) {
	all := len(tokens)
	mark := sort.Search(len(e.marks), func(k int) bool { return e.marks[k] > at }) - 1
	start := e.marks[mark] // of sequence i of the order
	for i := mark * markEvery; len(tokens) > 0; i++ {
		q := c.from + c.docs.at(e.number*c.docs.n+i)
		length, err := c.file.Length(q)
		if err != nil {
			return nil, err
		}
		if skip := at - start; skip < int64(length) {
			n := min(len(tokens), length-int(skip))
			if err := c.file.Read(tokens[:n], q, int(skip)); err != nil {
				return nil, err
			}
			tokens, at = tokens[n:], at+int64(n)
			if len(tokens) > 0 {
				ends = append(ends, all-len(tokens))
			}
		}
		start += int64(length)
	}
	return ends, nil
}

// epoch is where the sequences of an epoch lie.
func (c *corpus) epoch(number int) (*epoch, error) {
	if !c.docs.shuffle {
		number = 0 // all are alike
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.last {
		if e != nil && e.number == number {
			return e, nil
		}
	}
	e, at := &epoch{number: number}, int64(0)
	for i := range c.docs.n {
		if i%markEvery == 0 {
			e.marks = append(e.marks, at)
		}
		length, err := c.file.Length(c.from + c.docs.at(number*c.docs.n+i))
		if err != nil {
			return nil, indexedError(err)
		}
		at += int64(length)
	}
	c.last = [2]*epoch{e, c.last[0]}
	return e, nil
}

// indexedError makes an error of the files one of the data.
func indexedError(err error) error {
	var fe *indexed.FormatError
	if !errors.As(err, &fe) {
		return err
	}
	out := &Error{Err: err}
	out.add(fe.Path, 0, "%s", fe.Reason())
	return out
}
