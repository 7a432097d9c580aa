package golden

import (
	"fmt"
	"slices"

	"phalanx/nn"
)

// HasPadMask and HasLossMask say whether the case's batches carry the mask. All of them do, or none: the presence of
// a mask is a property of the configuration.
func (c *Case) HasPadMask() bool { return c.has(0, 0, "padding_mask") }

// HasLossMask says whether batches carry a loss mask; without one every label counts.
func (c *Case) HasLossMask() bool { return c.has(0, 0, "loss_mask") }

func (c *Case) has(step, mb int, q string) bool {
	_, ok := c.file.Info(batchName(step, mb, q))
	return ok
}

// BatchShape is the rows and the length of every microbatch.
func (c *Case) BatchShape() (b, s int) {
	info, _ := c.file.Info(batchName(0, 0, "input_ids"))
	return info.Shape[0], info.Shape[1]
}

// Microbatch is the batch of microbatch mb of a step, newly allocated. An absent loss mask is AllOnes, an absent
// padding mask nil.
func (c *Case) Microbatch(step, mb int) (*nn.Microbatch, error) {
	if step < 0 || step >= len(c.Steps) || mb < 0 || mb >= len(c.Steps[step].Microbatches) {
		return nil, c.broken("no step %d microbatch %d: the case has %d steps of %d microbatches",
			step, mb, len(c.Steps), len(c.Steps[0].Microbatches))
	}
	m := &nn.Microbatch{Docs: c.docs(step, mb)}
	m.B, m.S = c.BatchShape()
	var err error
	if m.IDs, err = c.ids(batchName(step, mb, "input_ids")); err != nil {
		return nil, err
	}
	if m.Labels, err = c.ids(batchName(step, mb, "labels")); err != nil {
		return nil, err
	}
	if m.Positions, err = c.ids(batchName(step, mb, "position_ids")); err != nil {
		return nil, err
	}
	if m.Pad, err = c.padMask(step, mb); err != nil {
		return nil, err
	}
	if c.has(step, mb, "decoder_input") {
		e, err := c.Floats(batchName(step, mb, "decoder_input"))
		if err != nil {
			return nil, err
		}
		m.Embeddings = e.Data
	}
	m.Loss, err = c.lossMask(step, mb)
	return m, err
}

// docs are the documents of a packed microbatch, one row; nil: not packed.
func (c *Case) docs(step, mb int) nn.Docs {
	scalars := c.Steps[step].Microbatches[mb]
	logical, physical := scalars.CuSeqlens, scalars.CuSeqlensPadded
	if logical == nil {
		return nil
	}
	if physical == nil {
		physical = logical
	}
	docs := make([]nn.Doc, len(logical)-1)
	for i := range docs {
		docs[i] = nn.Doc{Start: physical[i], Logical: logical[i+1] - logical[i], Physical: physical[i+1] - physical[i]}
	}
	return nn.Docs{docs}
}

// ids is an integer tensor whose values are ids: from 0 to 2^31-1.
func (c *Case) ids(name string) ([]int32, error) {
	wide, err := c.Ints(name)
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(wide.Data))
	for i, v := range wide.Data {
		if out[i] = int32(v); int64(out[i]) != v || v < 0 {
			return nil, c.broken("%s: found %d at element %d, expected an id from 0 to 2^31-1", name, v, i)
		}
	}
	return out, nil
}

func (c *Case) padMask(step, mb int) (*nn.PadMask, error) {
	if !c.HasPadMask() {
		return nil, nil
	}
	b, s := c.BatchShape()
	p, err := c.Bools(batchName(step, mb, "padding_mask"))
	return &nn.PadMask{B: b, S: s, Layout: nn.Full, Pad: p.Data}, err
}

// lossMask also compares its count with the JSON's: two files that do not belong together are caught here.
func (c *Case) lossMask(step, mb int) (*nn.LossMask, error) {
	b, s := c.BatchShape()
	m := &nn.LossMask{B: b, S: s, AllOnes: true}
	if name := batchName(step, mb, "loss_mask"); c.HasLossMask() {
		w, err := c.Floats(name)
		if err != nil {
			return nil, err
		}
		m = &nn.LossMask{B: b, S: s, Weight: make([]float32, len(w.Data))}
		for i, v := range w.Data {
			if v != 0 && v != 1 {
				return nil, c.broken("%s: found weight %g at element %d, expected 0 or 1", name, v, i)
			}
			m.Weight[i] = float32(v)
		}
	}
	if want := c.Steps[step].Microbatches[mb].LMTokens; m.Count() != want {
		return nil, c.broken("step %d microbatch %d: the loss mask counts %d labels, lm_tokens says %d: "+
			"the .json and the .safetensors do not belong together", step, mb, m.Count(), want)
	}
	return m, nil
}

// check compares the two files: every batch is there with one shape, masks are there for all or for none, and every
// gradient and final weight has its parameter's shape.
func (c *Case) check() error {
	if err := c.checkParams(); err != nil {
		return err
	}
	first, ok := c.file.Info(batchName(0, 0, "input_ids"))
	if !ok || len(first.Shape) != 2 {
		return c.broken("found no step0/mb0/input_ids of shape [b, s]")
	}
	m, depths := len(c.Steps[0].Microbatches), len(c.Steps[0].Microbatches[0].MTPLossSum)
	for i, step := range c.Steps {
		if len(step.Microbatches) != m {
			return c.broken("step %d: found %d microbatches, expected %d as in step 0", i, len(step.Microbatches), m)
		}
		for j, scalars := range step.Microbatches {
			if n := len(scalars.MTPLossSum); n != depths {
				return c.broken("step %d microbatch %d: found %d MTP losses, expected %d", i, j, n, depths)
			}
			if err := c.checkBatch(i, j, first.Shape); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Case) checkParams() error {
	if len(c.ParamNames()) == 0 {
		return c.broken("found no tensor params/…, expected the weights before step 0")
	}
	for _, prefix := range []string{gradsPrefix, finalPrefix} {
		for _, name := range c.under(prefix) {
			got, _ := c.file.Info(prefix + name)
			want, ok := c.file.Info(paramsPrefix + name)
			if !ok || !slices.Equal(got.Shape, want.Shape) {
				return c.broken("%s%s: found shape %v, expected that of params/%s, %v", prefix, name, got.Shape, name, want.Shape)
			}
		}
	}
	return nil
}

// checkBatch is the presence and the shape of one microbatch's tensors.
func (c *Case) checkBatch(step, mb int, shape []int) error {
	for _, q := range []string{"input_ids", "labels", "position_ids"} {
		if !c.has(step, mb, q) {
			return c.broken("found no tensor %s", batchName(step, mb, q))
		}
	}
	for _, q := range []string{"loss_mask", "padding_mask", "decoder_input"} {
		if c.has(step, mb, q) != c.has(0, 0, q) {
			return c.broken("found %s in some microbatches only, expected it in all or none (differs at step %d microbatch %d)",
				q, step, mb)
		}
	}
	for _, q := range []string{"input_ids", "labels", "position_ids", "loss_mask", "padding_mask"} {
		got, ok := c.file.Info(batchName(step, mb, q))
		if ok && !slices.Equal(got.Shape, shape) {
			return c.broken("%s: found shape %v, expected %v", got.Name, got.Shape, shape)
		}
	}
	return nil
}

func (c *Case) broken(format string, args ...any) error {
	return &Error{Path: c.Path, Reason: fmt.Sprintf(format, args...)}
}
