package run

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"phalanx/nn"
	"phalanx/oracle"
)

// reportQuantities are the quantities of the last step that the scenario's text reports read.
func (j *job) reportQuantities() []string {
	var names []string
	if j.s.Logger.TokenLossReport {
		names = append(names, "lm.token_loss")
	}
	for k := 1; k <= j.s.Model.MTPNumLayers; k++ {
		scope := fmt.Sprintf("mtp.%d.", k)
		if j.s.Logger.TokenLossReport {
			names = append(names, scope+"token_loss", scope+"loss_mask", scope+"padding_mask")
		}
		if j.s.Logger.MaskReport {
			names = append(names, scope+"padding_mask", scope+"router.valid_tokens", scope+"loss_mask")
		}
	}
	return names
}

// textReports are the blocks that logger.token_loss_report and logger.mask_report ask for, of the last step.
func (j *job) textReports() []string {
	var out []string
	if j.s.Logger.TokenLossReport {
		out = append(out, j.tokenLossReport())
	}
	if j.s.Logger.MaskReport {
		out = append(out, j.maskReport())
	}
	return out
}

func (j *job) recorded(name string, mb int) []float64 {
	if v, ok, err := j.record.Get(oracle.Key{Name: name, Step: j.s.Train.TrainIters - 1, Microbatch: mb}); ok && err == nil {
		return v.Data
	}
	return nil
}

// TokenLoss is one loss term's per-token cross entropies of one step.
type TokenLoss struct {
	CE      []float64
	Counts  []bool // the loss mask that was used
	Data    []bool // the loss mask that the data has
	Padding []bool // labels that are padding, or beyond the sequence
}

// tokenLosses collects a term over the microbatches of the last step. Term 0 is the LM loss, k is depth k.
func (j *job) tokenLosses(term int) TokenLoss {
	var t TokenLoss
	step := j.s.Train.TrainIters - 1
	for mb := range j.train.Microbatches() {
		batch := j.train.Microbatch(step, mb)
		mask, pad := batch.Loss, batch.Pad.Validity()
		frame := nn.NewFrames(batch.Docs, batch.B, batch.S, 1, 1)[0]
		for range term {
			mask, pad = mask.RollWhole(frame), pad.RollWhole(frame)
		}
		scope := "lm"
		if term > 0 {
			scope = fmt.Sprintf("mtp.%d", term)
		}
		used := j.recorded(scope+".loss_mask", mb)
		for i, ce := range j.recorded(scope+".token_loss", mb) {
			b, s := i/batch.S, i%batch.S
			data := mask.At(b, s) != 0
			t.CE, t.Data = append(t.CE, ce), append(t.Data, data)
			t.Counts = append(t.Counts, used == nil && data || used != nil && used[i] != 0)
			t.Padding = append(t.Padding, pad != nil && !pad.Valid[i])
		}
	}
	return t
}

// Masked is the mean over counted tokens, its number, and the share of its mass that is on padding.
func (t TokenLoss) Masked(counts []bool) (mean float64, n int, padShare float64) {
	sum, pad := 0.0, 0.0
	for i, ce := range t.CE {
		if !counts[i] {
			continue
		}
		n++
		sum += ce
		if t.Padding[i] {
			pad += ce
		}
	}
	if n == 0 || sum == 0 {
		return 0, n, 0
	}
	return sum / float64(n), n, pad / sum
}

// all counts every label that exists: what a depth falls back to when the mask is withheld.
func (t TokenLoss) all(j *job, term int) []bool {
	s := j.s.Dataset.SeqLength
	out := make([]bool, len(t.CE))
	for i := range out {
		out[i] = i%s < s-term
	}
	return out
}

// where is the cross entropies of some positions.
func (t TokenLoss) where(counts []bool) []float64 {
	var out []float64
	for i, ce := range t.CE {
		if counts[i] {
			out = append(out, ce)
		}
	}
	return out
}

// tokenLossReport prints, per loss term, the loss with the data's mask and with a mask of ones, on the same weights,
// the share of their mass on padding, and percentiles of the per-token cross entropy as Megatron-Bridge#6103 does.
func (j *job) tokenLossReport() string {
	var b strings.Builder
	fmt.Fprintf(&b, "token losses of %s, step %d\n", j.s.Name, j.s.Train.TrainIters)
	for term := 0; term <= j.s.Model.MTPNumLayers; term++ {
		t := j.tokenLosses(term)
		if len(t.CE) == 0 {
			continue
		}
		name := "lm"
		if term > 0 {
			name = fmt.Sprintf("mtp_%d", term)
		}
		used := "mask passed"
		if term > 0 && j.s.Model.MTPLossMask == "withheld" {
			used = "mask withheld"
		}
		loss, n, share := t.Masked(t.Counts)
		fmt.Fprintf(&b, "  %-6s trained on   loss %9.4f over %5d tokens, %5.1f %% of its mass on padding (%s)\n", name, loss, n, 100*share, used)
		loss, n, share = t.Masked(t.Data)
		fmt.Fprintf(&b, "  %-6s with mask    loss %9.4f over %5d tokens, %5.1f %% of its mass on padding\n", name, loss, n, 100*share)
		loss, n, share = t.Masked(t.all(j, term))
		fmt.Fprintf(&b, "  %-6s without mask loss %9.4f over %5d tokens, %5.1f %% of its mass on padding\n", name, loss, n, 100*share)
		fmt.Fprintf(&b, "  %-6s per-token CE: %s\n", name, percentiles(t.where(t.all(j, term))))
		fmt.Fprintf(&b, "  %-6s worst %s\n", name, t.worst(j.s.Dataset.SeqLength))
	}
	return strings.TrimRight(b.String(), "\n")
}

// worst names the position with the largest cross entropy.
func (t TokenLoss) worst(seq int) string {
	at := 0
	for i, ce := range t.CE {
		if ce > t.CE[at] {
			at = i
		}
	}
	what := "a label of the data"
	if t.Padding[at] {
		what = "padding"
	}
	return fmt.Sprintf("row %d pos %d ce=%.2f (%s)", at/seq, at%seq, t.CE[at], what)
}

// heavy is the cross entropy above which Megatron-Bridge#6103 counts a token as far off.
const heavy = 20

func percentiles(x []float64) string {
	s := append([]float64(nil), x...)
	sort.Float64s(s)
	sum, far := 0.0, 0
	for _, v := range s {
		sum += v
		if v > heavy {
			far++
		}
	}
	at := func(p float64) float64 { return s[min(len(s)-1, int(math.Ceil(p*float64(len(s))))-1)] }
	return fmt.Sprintf("mean=%.3f median=%.3f p90=%.3f p99=%.3f max=%.3f frac(CE>%d)=%.3f",
		sum/float64(len(s)), at(0.5), at(0.9), at(0.99), s[len(s)-1], heavy, float64(far)/float64(len(s)))
}

// maskReport draws the padding mask of every depth ('#' padding, '.' valid) and counts what its router counts.
func (j *job) maskReport() string {
	var b strings.Builder
	step := j.s.Train.TrainIters - 1
	fmt.Fprintf(&b, "padding masks of %s, step %d microbatch 0 ('.' valid, '#' padding)\n", j.s.Name, step+1)
	batch := j.train.Microbatch(step, 0)
	if batch.Pad == nil {
		return b.String() + "  absent: no mask, no mask message"
	}
	drawMask(&b, "input", nn.Bools(batch.Pad.Pad), batch.S)
	for k := 1; k <= j.s.Model.MTPNumLayers; k++ {
		scope := fmt.Sprintf("mtp.%d", k)
		drawMask(&b, scope, j.recorded(scope+".padding_mask", 0), batch.S)
		if v := j.recorded(scope+".router.valid_tokens", 0); v != nil {
			fmt.Fprintf(&b, "  %-6s router counts %v valid tokens\n", scope, v[0])
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func drawMask(b *strings.Builder, name string, mask []float64, seq int) {
	for row := 0; row*seq < len(mask); row++ {
		fmt.Fprintf(b, "  %-6s row %d ", name, row)
		for _, v := range mask[row*seq : (row+1)*seq] {
			if v != 0 {
				b.WriteByte('#')
			} else {
				b.WriteByte('.')
			}
		}
		b.WriteByte('\n')
	}
}
