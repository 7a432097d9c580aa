package data

import (
	"fmt"

	"phalanx/nn"
)

// Cursor is where a run stands in its data, and all that a checkpoint has to keep of it: when step Step begins,
// Consumed rows have been used for training (Megatron's consumed_train_samples). The rows of a run are numbered from 0
// in one order, whatever its batch sizes and its layout; so a run may go on with others than it began with. Only the rows
// of kind rows, of which a step has each once more with other synthetic tokens, depend on global_batch_size, if there are
// fewer than that.
type Cursor struct {
	Step     int
	Consumed int
}

// After is the cursor some steps later, each of global_batch_size rows.
func (c Cursor) After(steps, globalBatchSize int) Cursor {
	return Cursor{Step: c.Step + steps, Consumed: c.Consumed + steps*globalBatchSize}
}

// sampler gives rows by their number.
type sampler interface {
	// batch is the micro_batch_size rows from row first of the run on, newly allocated.
	batch(first int) *nn.Microbatch
}

// feed is a sampler as a source: the rows of the run cut into steps and microbatches.
type feed struct {
	sampler
	b, m int // rows of a microbatch, microbatches of a step
	from Cursor
}

// Microbatches is M.
func (f feed) Microbatches() int { return f.m }

// Microbatch is the B rows behind those of the microbatches before. Indices outside the run are a programmer error.
func (f feed) Microbatch(step, mb int) *nn.Microbatch {
	if step < f.from.Step || mb < 0 || mb >= f.m {
		panic(fmt.Sprintf("data: step %d microbatch %d: steps start at %d and a step has %d microbatches", step, mb, f.from.Step, f.m))
	}
	return f.batch(f.from.Consumed + ((step-f.from.Step)*f.m+mb)*f.b)
}

// TrainFrom is the training data of a run that goes on where another one stopped: what d.Train would give later, had
// the whole run had the batch sizes of d after the cursor, and those of the other run before it. The rows are those of
// a run without a stop, each once.
func (d *Data) TrainFrom(c Cursor) (Source, error) {
	f := d.Train.(feed)
	if c.Step < 0 || c.Consumed < 0 {
		return nil, problem("checkpoint.load", 0, "found %d samples consumed before step %d, expected no negative numbers", c.Consumed, c.Step)
	}
	if whole, ok := f.sampler.(*reference); ok && c.Consumed%whole.b != 0 {
		return nil, problem("train.micro_batch_size", 0, "found %d samples consumed, expected a multiple of %d: the batches of a reference case are never cut",
			c.Consumed, whole.b)
	}
	f.from = c
	return f, nil
}

// opened is the data of a training sampler and, unless they are nil, of a validation and a test one.
func (g geometry) opened(train, validation, test sampler) *Data {
	source := func(s sampler) Source {
		if s == nil {
			return nil
		}
		return feed{sampler: s, b: g.b, m: g.m}
	}
	return &Data{Train: source(train), Validation: source(validation), Test: source(test), VocabSize: g.v}
}
