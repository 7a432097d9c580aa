package data

import (
	"errors"
	"fmt"
	"slices"

	"phalanx/config"
	"phalanx/internal/golden"
	"phalanx/nn"
)

// reference is the batches of a reference case, step after step and from the first step again.
type reference struct {
	geometry
	steps [][]*nn.Microbatch
}

// openReference reads the whole case. Its sizes have to be those of the scenario.
func openReference(g geometry, s *config.Scenario) (*Data, error) {
	path := located(s, s.Dataset.Path)
	c, err := golden.Load(path)
	if err != nil {
		return nil, caseError(path, err)
	}
	defer c.Close()
	b, length := c.BatchShape()
	g.s = length
	if v, ok := c.Config["padded_vocab_size"].(int); ok {
		g.v = v
	}
	if err := fits(c, g, s, b); err != nil {
		return nil, err
	}
	d := &reference{geometry: g}
	for i, step := range c.Steps {
		var row []*nn.Microbatch
		for j := range step.Microbatches {
			m, err := c.Microbatch(i, j)
			if err != nil {
				return nil, caseError(path, err)
			}
			row = append(row, withMasks(m, s.Dataset))
		}
		d.steps = append(d.steps, row)
	}
	out := g.opened(d, nil, nil)
	out.Summary = fmt.Sprintf("reference: case %s, %s of %s of %s of %d, vocabulary of %d", c.Name, count(len(c.Steps), "step"),
		count(g.m, "microbatch"), count(b, "row"), length, g.v) + extras(d.steps[0][0])
	return out, nil
}

// extras says what else the microbatches of a case carry.
func extras(m *nn.Microbatch) string {
	text := ""
	if m.Docs != nil {
		docs := 0
		for b := range m.B {
			docs += len(m.Docs.Row(b, m.S))
		}
		text = fmt.Sprintf(", %.1f documents a row", float64(docs)/float64(m.B))
	}
	if m.Embeddings != nil {
		text += fmt.Sprintf(", precomputed embeddings of %d", len(m.Embeddings)/(m.B*m.S))
	}
	return text
}

// fits compares the case's sizes with the scenario's.
func fits(c *golden.Case, g geometry, s *config.Scenario, b int) error {
	errs := &Error{}
	same := func(key string, found, want int) {
		if found != want {
			errs.add(key, 0, "found %d, expected %d, that of case %s", found, want, c.Name)
		}
	}
	same("train.micro_batch_size", s.Train.MicroBatchSize, b)
	same("train.global_batch_size", s.Train.GlobalBatchSize, b*len(c.Steps[0].Microbatches))
	if s.Dataset.SeqLength != 0 {
		same("dataset.seq_length", s.Dataset.SeqLength, g.s)
	}
	return errs.orNil()
}

// withMasks puts on or takes off the masks where the scenario says so; else they are those of the case.
func withMasks(m *nn.Microbatch, d config.Dataset) *nn.Microbatch {
	if present(d.PaddingMask, m.Pad != nil) != (m.Pad != nil) {
		if m.Pad != nil {
			m.Pad = nil
		} else {
			m.Pad = &nn.PadMask{B: m.B, S: m.S, Layout: nn.Full, Pad: make([]bool, m.B*m.S)}
		}
	}
	switch {
	case d.LossMask == "absent":
		m.Loss = &nn.LossMask{B: m.B, S: m.S, AllOnes: true}
	case d.LossMask == "present" && m.Loss.AllOnes:
		m.Loss = &nn.LossMask{B: m.B, S: m.S, Weight: slices.Repeat([]float32{1}, m.B*m.S)}
	}
	return m
}

// batch is a copy of the case's microbatch that starts with a row.
func (d *reference) batch(first int) *nn.Microbatch {
	at := first / d.b
	m := *d.steps[at/d.m%len(d.steps)][at%d.m]
	m.IDs, m.Labels, m.Positions = slices.Clone(m.IDs), slices.Clone(m.Labels), slices.Clone(m.Positions)
	m.Docs, m.Embeddings = slices.Clone(m.Docs), slices.Clone(m.Embeddings)
	for b := range m.Docs {
		m.Docs[b] = slices.Clone(m.Docs[b])
	}
	loss := *m.Loss
	loss.Weight = slices.Clone(loss.Weight)
	m.Loss = &loss
	if m.Pad != nil {
		pad := *m.Pad
		pad.Pad = slices.Clone(pad.Pad)
		m.Pad = &pad
	}
	return &m
}

// caseError makes a case's error one of the data.
func caseError(path string, err error) error {
	out := &Error{Err: err}
	var ge *golden.Error
	if errors.As(err, &ge) {
		out.add(path, 0, "%s", ge.Reason)
	} else {
		out.add(path, 0, "%v", err)
	}
	return out
}
