package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// probe holds the rules of the probe and of the expectations that it makes empty.
func (c *checker) probe() {
	p := &c.s.Probe
	if !c.ok("probe") {
		return
	}
	switch {
	case p.BiasOnly && p.TokenLoss != nil:
		c.fail("probe", "has bias_only and token_loss at once; expected one of the two")
	case p.BiasOnly:
		c.lossAlone()
	case p.TokenLoss != nil:
		c.tokenLoss()
	}
}

// tokenLoss checks the terms and the shapes of the tables.
func (c *checker) tokenLoss() {
	const key = "probe." + tokenLoss
	p := &c.s.Probe
	if len(p.TokenLoss) == 0 {
		c.fail(key, "has no table; give one for a term, as {lm: [[2, 20], [2, 2]]}")
	}
	if m, ok := c.marks[key]; ok && m.value.kind == list { // one table for all terms: every one is that one
		c.lossTable(key, p.TokenLoss["lm"])
		return
	}
	legal := c.s.Model.LossTerms()
	for _, term := range p.terms() {
		at := key + "." + show(term)
		if slices.Contains(legal, term) {
			c.lossTable(at, p.TokenLoss[term])
			continue
		}
		c.fail(at, fmt.Sprintf("found the term %s, expected %s (mtp_num_layers %d)", show(term), cut(oneOf(legal), 4*maxShown),
			c.s.Model.MTPNumLayers), "model.mtp_num_layers")
	}
}

// lossTable checks the shape of one table.
func (c *checker) lossTable(key string, table [][]float64) {
	micro, global, seq := c.s.Train.MicroBatchSize, c.s.Train.GlobalBatchSize, c.s.Dataset.SeqLength
	if n := len(table); n != micro && n != global {
		legal := fmt.Sprintf("micro_batch_size %d", micro)
		if global != micro {
			legal += fmt.Sprintf(" or global_batch_size %d", global)
		}
		c.fail(key, fmt.Sprintf("has length %d, expected %s, a list for each row", n, legal), "train.micro_batch_size", "train.global_batch_size")
		return
	}
	if seq == 0 && len(table) > 0 { // of the case: what counts here is that the table is one
		seq = len(table[0])
	}
	for i, row := range table {
		if len(row) != seq {
			c.fail(fmt.Sprintf("%s.%d", key, i), fmt.Sprintf("has length %d, expected seq_length %d, a loss for each position", len(row), seq),
				"dataset.seq_length")
		}
	}
}

// indexed is a name with an index at its end, as in lm.loss[0].
var indexed = regexp.MustCompile(`\[\d+\]$`)

// isLoss reports whether a quantity is a loss: lm.loss, mtp.1.loss, validation.lm.loss, z_loss.
func isLoss(quantity string) bool {
	return strings.HasSuffix(indexed.ReplaceAllString(quantity, ""), "loss")
}

// lossAlone refuses expectations on the value of a loss when nothing else is expected: with bias_only every mask gives
// the same loss, so they hold whatever is wrong. That a loss is finite is a test: a count of 0 shows there.
func (c *checker) lossAlone() {
	var losses []int
	for i := range c.s.Expect {
		e := &c.s.Expect[i]
		switch {
		case e.Finite:
		case !isLoss(e.Quantity):
			return
		default:
			losses = append(losses, i)
		}
	}
	for _, i := range losses {
		constant := "ln V"
		if q := c.s.Expect[i].Quantity; strings.Contains(q, "z_loss") || strings.Contains(q, "balancing") {
			constant = "a constant"
		}
		c.fail(fmt.Sprintf("expect.%d", i), "is not a test: with probe bias_only the loss is "+constant+
			" whatever the mask; expect a gradient as well, as probe.lm.grad_bias")
	}
}
