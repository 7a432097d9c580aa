// Package explain shows what every loss term sees of a microbatch: per row, position and term the input token, label,
// loss mask, padding mask and position id, which rank holds it, and what the losses are divided by.
//
// Nothing here knows how to roll. A microbatch comes from the source that the trainer reads, is cut by nn.NewFrames as
// the model cuts it, and travels through mtp.Roll on every context-parallel and tensor-parallel rank, whose exchanges
// go through collective.Group; denominators are counted on the whole batch, as the model counts them. Where the two
// ways disagree there is no report but an error, unless the scenario plants bugs: those show as the ranks see them,
// beside what the rules give.
//
// Shapes: B rows of S positions; a context-parallel rank holds L slots of every row. Term 0 is the LM head, term k is
// MTP depth k, of D.
package explain

import (
	"fmt"

	"phalanx/config"
	"phalanx/config/mutation"
	"phalanx/data"
	"phalanx/nn"
)

// Options choose the microbatch.
type Options struct {
	Step       int // from 1, as the console counts
	Microbatch int // from 0, of the whole step, over all data-parallel ranks
}

// RangeError is a step or a microbatch that the run does not have (exit 2).
type RangeError struct {
	What     string // "step" or "microbatch"
	Found    int
	From, To int // legal, both inclusive
}

// Error says what was found and what is legal.
func (e *RangeError) Error() string {
	return fmt.Sprintf("found --%s %d, expected %d to %d", e.What, e.Found, e.From, e.To)
}

// Make explains one microbatch of a scenario whose values have been validated. Errors: *RangeError, *data.Error.
func Make(s config.Scenario, o Options) (*Report, error) {
	d, err := data.Open(&s)
	if err != nil {
		return nil, err
	}
	x, err := newSubject(&s, d, o)
	if err != nil {
		return nil, err
	}
	if x.mb.Pad == nil {
		if err := x.findPadding(); err != nil {
			return nil, err
		}
	}
	return x.report()
}

// subject is the microbatch to explain and where it comes from.
type subject struct {
	s      *config.Scenario
	d      *data.Data
	o      Options
	mb     *nn.Microbatch
	hidden *nn.PadMask // where padding is although the batch has no mask that says so; nil: not known
	tp     int         // ranks that cut the slots of a context-parallel rank: TP under sequence parallelism, else 1
	depths int
	mut    mutation.Set
}

func newSubject(s *config.Scenario, d *data.Data, o Options) (*subject, error) {
	if n := s.Train.TrainIters; o.Step < 1 || o.Step > n {
		return nil, &RangeError{What: "step", Found: o.Step, From: 1, To: n}
	}
	if n := d.Train.Microbatches(); o.Microbatch < 0 || o.Microbatch >= n {
		return nil, &RangeError{What: "microbatch", Found: o.Microbatch, From: 0, To: n - 1}
	}
	mut, err := mutation.Parse(s.Mutate)
	if err != nil {
		return nil, err
	}
	x := &subject{s: s, d: d, o: o, tp: 1, depths: s.Model.MTPNumLayers, mut: mut}
	x.mb = x.microbatch(o.Microbatch)
	if s.Model.SequenceParallel {
		x.tp = s.Model.TensorParallel
	}
	return x, nil
}

// microbatch is microbatch j of the step.
func (x *subject) microbatch(j int) *nn.Microbatch { return x.d.Train.Microbatch(x.o.Step-1, j) }

// findPadding asks the data where its padding would be if batches carried a mask. Rows of a text have none.
func (x *subject) findPadding() error {
	if x.s.Dataset.Kind == "text" {
		return nil
	}
	s := *x.s
	s.Dataset.PaddingMask = "present"
	d, err := data.Open(&s)
	if err != nil {
		return err
	}
	x.hidden = d.Train.Microbatch(x.o.Step-1, x.o.Microbatch).Pad
	return nil
}

// depthMask is the loss mask that the depths get: the batch's, or ones if it is withheld.
func (x *subject) depthMask(mb *nn.Microbatch) *nn.LossMask {
	switch {
	case x.s.Model.MTPLossMask == "withheld", x.mut.Has(mutation.MaskNone):
		return &nn.LossMask{B: mb.B, S: mb.S, AllOnes: true}
	case x.mut.Has(mutation.DoubleRoll):
		return mb.Loss.RollWhole(nn.NewFrames(mb.Docs, mb.B, mb.S, 1, 1)[0])
	}
	return mb.Loss
}

// report puts everything together.
func (x *subject) report() (*Report, error) {
	truths := x.truths()
	frames := nn.Frames(x.mb, x.s.Model.ContextParallel, x.tp, x.mut)
	members, err := x.rollOnRanks(frames, truths)
	if err != nil {
		return nil, err
	}
	ranks := x.joinShards(frames, members)
	counted := x.countStep()
	if err := x.agree(counted[x.o.Microbatch], ranks); err != nil && x.mut == 0 {
		return nil, err
	}
	r := x.header(frames[0].L)
	whole := x.joinRanks(ranks)
	r.Terms = x.terms(counted, ranks, truths)
	for b := range x.mb.B {
		r.Rows = append(r.Rows, x.row(b, whole, ranks))
	}
	for _, rank := range ranks {
		r.Ranks = append(r.Ranks, x.rank(rank))
	}
	r.Notes = x.notes(r, counted)
	return r, nil
}

// header is the report without its numbers.
func (x *subject) header(slots int) *Report {
	s, m := x.s, &x.s.Model
	sizes := s.Sizes()
	r := &Report{Name: s.Name, About: s.About, Data: x.d.Summary, Step: x.o.Step, Steps: s.Train.TrainIters,
		Microbatch: x.o.Microbatch, Microbatches: x.d.Train.Microbatches(),
		Layout: Layout{TP: sizes.TP, CP: sizes.CP, DP: sizes.DP, PP: sizes.PP, SP: x.tp > 1},
		Batch:  Batch{Rows: x.mb.B, Positions: x.mb.S, SlotsPerRank: slots},
		Masks:  Masks{Loss: "present", Padding: "present"},
		Mode:   Mode{PerToken: m.CalculatePerTokenLoss, Normalization: m.LossNormalization},
		Mutate: s.Mutate,
	}
	for to := 0; to <= r.Microbatch; r.DPRank++ {
		_, to = data.Owned(r.Microbatches, sizes.DP, r.DPRank)
	}
	r.DPRank--
	if x.mb.Loss.AllOnes {
		r.Masks.Loss = "ones"
	}
	if x.mb.Pad == nil {
		r.Masks.Padding = "absent"
	}
	if x.depths > 0 {
		r.Masks.Depths, r.Mode.MTPFactor = m.MTPLossMask, m.MTPLossScaling
	}
	return r
}
