package run

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"phalanx/config"
	"phalanx/oracle"
)

// find is the value of an expectation's quantity.
func (q quantities) find(e config.Expect) ([]float64, error) {
	step := q.j.s.Train.TrainIters
	if e.Step != nil {
		step = *e.Step
	}
	if first, n := q.j.first(), len(q.report.Steps); step <= first || step > first+n {
		return nil, fmt.Errorf("there is no step %d: the run has steps %d to %d", step, first+1, first+n)
	}
	name, index, err := indexed(e.Quantity)
	if err != nil {
		return nil, err
	}
	e.Quantity = name
	got, err := q.lookup(e, step)
	if err != nil || index < 0 {
		return got, err
	}
	if index >= len(got) {
		return nil, fmt.Errorf("%s has elements 0 to %d", name, len(got)-1)
	}
	return got[index : index+1], nil
}

// indexed splits "name[3]" into the name and 3; −1 without an index.
func indexed(s string) (string, int, error) {
	name, rest, ok := strings.Cut(s, "[")
	if !ok {
		return s, -1, nil
	}
	i, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
	if err != nil || i < 0 || !strings.HasSuffix(rest, "]") {
		return s, -1, fmt.Errorf("quantity %q: found index %q, expected a whole number in brackets", s, rest)
	}
	return name, i, nil
}

// lookup is the value of a quantity without an index.
func (q quantities) lookup(e config.Expect, step int) ([]float64, error) {
	name := e.Quantity
	switch {
	case strings.HasPrefix(name, "probe."):
		return q.whole(q.j.probes[step-1], name)
	case name == faultsUnused:
		return []float64{float64(len(q.report.FaultsUnused))}, nil
	case strings.HasPrefix(name, "messages."):
		return q.messages(strings.TrimPrefix(name, "messages."))
	case strings.HasPrefix(name, "grad."):
		return q.whole(q.j.grads[step-1], strings.TrimPrefix(name, "grad."))
	case strings.HasPrefix(name, "weight."):
		return q.whole(q.j.weights[q.j.s.Train.TrainIters], strings.TrimPrefix(name, "weight."))
	case strings.HasPrefix(name, "validation."):
		return q.validation(step)
	}
	if v, ok := q.figure(name, q.report.Steps[step-1-q.j.first()]); ok {
		return []float64{v}, nil
	}
	return q.recorded(e, step-1)
}

// figure is a figure of the console line.
func (q quantities) figure(name string, s StepFigures) (float64, bool) {
	switch name {
	case "lm.loss":
		return s.LMLoss, true
	case "grad_norm":
		return s.GradNorm, true
	case "learning_rate":
		return s.LR, true
	case "tokens":
		return float64(s.Tokens), true
	case "skipped":
		if s.Skipped {
			return 1, true
		}
		return 0, true
	case "z_loss":
		if s.ZLoss != nil {
			return *s.ZLoss, true
		}
	}
	for _, b := range slices.Concat(s.Balancing, s.PerLayer) {
		if b.Name == name {
			return b.Value, true
		}
	}
	if k, ok := depthOf(name, ".loss"); ok && k <= len(s.MTPLoss) {
		return s.MTPLoss[k-1], true
	}
	return 0, false
}

// depthOf reads k out of "mtp.k" + suffix.
func depthOf(name, suffix string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "mtp.")
	if !ok {
		return 0, false
	}
	rest, ok = strings.CutSuffix(rest, suffix)
	if !ok {
		return 0, false
	}
	k, err := strconv.Atoi(rest)
	return k, err == nil && k >= 1
}

func (q quantities) validation(step int) ([]float64, error) {
	for i := len(q.report.Validation) - 1; i >= 0; i-- {
		if v := q.report.Validation[i]; v.Step <= step {
			return []float64{v.LMLoss}, nil
		}
	}
	return nil, fmt.Errorf("there was no validation up to step %d: set train.eval_interval and train.eval_iters", step)
}

func (q quantities) whole(g *gathering, name string) ([]float64, error) {
	if g == nil {
		return nil, fmt.Errorf("nothing was kept of %s", name)
	}
	all, err := g.All()
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		if w.Name == name {
			return w.Floats(), nil
		}
	}
	return nil, fmt.Errorf("the model has no parameter %s", name)
}

// recorded is an observed quantity.
func (q quantities) recorded(e config.Expect, step int) ([]float64, error) {
	mb := 0
	if e.Microbatch != nil {
		mb = *e.Microbatch
	}
	v, ok, err := q.j.record.Get(oracle.Key{Name: e.Quantity, Step: step, Microbatch: mb})
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("no quantity %s at step %d microbatch %d; `phalanx run --list-quantities FILE` prints the names", e.Quantity, step+1, mb)
	}
	if e.Row == nil {
		return v.Data, nil
	}
	if *e.Row < 0 || *e.Row >= v.R {
		return nil, fmt.Errorf("%s has rows 0 to %d", e.Quantity, v.R-1)
	}
	return v.Data[*e.Row*v.C : (*e.Row+1)*v.C], nil
}

// messages answers "<kind>.count", "<kind>.bytes" and "<kind>.per_depth": operations of one group per depth and
// microbatch.
func (q quantities) messages(name string) ([]float64, error) {
	at := strings.LastIndexByte(name, '.')
	kind, what := name[:max(at, 0)], name[at+1:]
	c := q.report.Messages[kind]
	switch what {
	case "count":
		return []float64{float64(c.Count)}, nil
	case "bytes":
		return []float64{float64(c.Bytes)}, nil
	case "per_depth":
		sizes := q.j.s.Sizes()
		each := q.j.s.Model.MTPNumLayers * q.j.s.NumMicrobatches() * len(q.report.Steps) * (sizes.World() / sizes.TP)
		return []float64{float64(c.Count) / float64(max(each, 1))}, nil
	}
	return nil, fmt.Errorf("messages.%s: a kind has .count, .bytes and .per_depth", name)
}

// wants says what the expectations and reports of the scenario need recorded; nil: nothing.
func (j *job) wants() func(name string, step int) bool {
	last := j.s.Train.TrainIters - 1
	type at struct {
		name string
		step int
	}
	set := map[at]bool{}
	for _, e := range j.s.Expect {
		step := last
		if e.Step != nil {
			step = *e.Step - 1
		}
		name, _, _ := indexed(e.Quantity)
		set[at{name, step}] = true
	}
	for _, name := range j.reportQuantities() {
		set[at{name, last}] = true
	}
	if len(set) == 0 {
		return nil
	}
	all := j.needsOracle()
	return func(name string, step int) bool { return set[at{name, step}] || all && j.recordsOracle(name, step) }
}

// keepsGrads reports whether an expectation reads gradients of a 0-based step.
func (j *job) keepsGrads(step int) bool {
	if step == j.first() && (j.keepStep0 || j.needsOracle()) {
		return true
	}
	for _, e := range j.s.Expect {
		at := j.s.Train.TrainIters
		if e.Step != nil {
			at = *e.Step
		}
		if strings.HasPrefix(e.Quantity, "grad.") && at == step+1 {
			return true
		}
	}
	return false
}

// Quantities lists the names that expectations of a scenario can use, in ascending order.
func Quantities(s config.Scenario) ([]string, error) {
	m := &s.Model
	names := []string{"lm.loss", "grad_norm", "learning_rate", "skipped", "tokens", "lm.tokens", "lm.loss_sum", "lm.token_loss", "lm.token_weight", "lm.logits",
		"batch.input_ids", "batch.position_ids", "batch.labels", "batch.loss_mask", "batch.padding_mask"}
	if len(s.Faults) > 0 {
		names = append(names, faultsUnused)
	}
	if s.Train.EvalInterval > 0 {
		names = append(names, "validation.lm.loss")
	}
	if m.HasMoE() {
		names = append(names, "load_balancing_loss", "seq_load_balancing_loss", "global_load_balancing_loss", "z_loss")
	}
	for i := range m.NumLayers {
		names = append(names, layerQuantities(fmt.Sprintf("layer.%d", i), m.NumMoEExperts > 0 && m.MoELayerFreq.IsMoE(i))...)
	}
	for k := 1; k <= m.MTPNumLayers; k++ {
		scope := fmt.Sprintf("mtp.%d", k)
		names = append(names, layerQuantities(scope, m.NumMoEExperts > 0 && m.MoELayerFreq.IsMoE(m.NumLayers-1))...)
		for _, q := range []string{"loss", "loss_sum", "tokens", "token_loss", "token_weight", "logits", "input_ids", "position_ids", "labels", "loss_mask", "padding_mask"} {
			names = append(names, scope+"."+q)
		}
	}
	for _, kind := range messageKinds() {
		names = append(names, "messages."+kind+".count", "messages."+kind+".bytes")
	}
	fs := figures{s: &s}
	for _, l := range fs.perLayer(nil, 1) {
		names = append(names, l.Name)
	}
	if s.Probe.BiasOnly {
		names = append(names, "probe.lm.grad_bias")
		for k := 1; k <= m.MTPNumLayers; k++ {
			names = append(names, fmt.Sprintf("probe.mtp_%d.grad_bias", k))
		}
	}
	names = append(names, "messages.mask_allgather.per_depth", "grad.<weight name>", "weight.<weight name>")
	sort.Strings(names)
	return names, nil
}

func layerQuantities(scope string, moe bool) []string {
	names := []string{scope + ".hidden"}
	if !moe {
		return names
	}
	for _, q := range []string{"logits", "probs", "routing_map", "tokens_per_expert", "valid_tokens", "aux_loss", "seq_aux_loss", "global_aux_loss", "z_loss"} {
		names = append(names, scope+".router."+q)
	}
	return append(names, scope+".experts.rows")
}
