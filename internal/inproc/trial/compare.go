package trial

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// scaleMin is the least scale an error is relative to: below it a tensor is zero but for rounding.
const scaleMin = 1e-4

// Near compares a tensor with what it should be: max|got − want| at most tolerance · max|want|. Anything that is not a
// number is an error; tolerance 0 wants the same bits.
func Near(what string, got, want []float64, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(got), len(want))
	}
	scale := scaleMin
	for _, w := range want {
		scale = max(scale, math.Abs(w))
	}
	for i, w := range want {
		same := math.Float64bits(got[i]) == math.Float64bits(w) || got[i] == 0 && w == 0
		if !same && (tolerance == 0 || !(math.Abs(got[i]-w) <= tolerance*scale)) {
			return fmt.Errorf("%s[%d] is %.17g, want %.17g (scale %.3g)", what, i, got[i], w, scale)
		}
	}
	return nil
}

// NearAll compares tensors by name, both ways.
func NearAll(what string, got, want map[string][]float64, tolerance float64) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(want)) {
		errs = append(errs, Near(what+" "+name, got[name], want[name], tolerance))
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == nil {
			errs = append(errs, fmt.Errorf("%s %s should not exist", what, name))
		}
	}
	return errors.Join(errs...)
}

// Same compares two outcomes: figures, gradients and norms of every step, and the weights at the end.
func (o *Outcome) Same(want *Outcome, tolerance float64) error {
	if len(o.Steps) != len(want.Steps) {
		return fmt.Errorf("%d steps, want %d", len(o.Steps), len(want.Steps))
	}
	var errs []error
	for i := range o.Steps {
		errs = append(errs, o.Steps[i].Same(&want.Steps[i], fmt.Sprintf("step %d ", i), tolerance))
	}
	return errors.Join(append(errs, NearAll("weight", o.Weights, want.Weights, tolerance))...)
}

// Same compares the figures, gradients and norm of one step.
func (s *Step) Same(want *Step, prefix string, tolerance float64) error {
	return errors.Join(
		s.SameFigures(want, prefix, tolerance),
		Near(prefix+"gradient norm", []float64{s.GradNorm}, []float64{want.GradNorm}, tolerance),
		NearAll(prefix+"gradient of", s.Grads, want.Grads, tolerance))
}

// SameFigures compares losses and counts.
func (s *Step) SameFigures(want *Step, prefix string, tolerance float64) error {
	a, b := s.Sums, want.Sums
	var errs []error
	counts := func(name string, got, want int64) {
		if got != want {
			errs = append(errs, fmt.Errorf("%s%s is %d, want %d", prefix, name, got, want))
		}
	}
	counts("lm tokens", a.LMTokens, b.LMTokens)
	counts("samples", a.Samples, b.Samples)
	counts("tokens", a.Tokens, b.Tokens)
	counts("depths", int64(len(a.MTPTokens)), int64(len(b.MTPTokens)))
	for k := range min(len(a.MTPTokens), len(b.MTPTokens)) {
		counts(fmt.Sprintf("mtp.%d tokens", k+1), a.MTPTokens[k], b.MTPTokens[k])
	}
	return errors.Join(append(errs,
		Near(prefix+"lm loss", []float64{a.LMLoss}, []float64{b.LMLoss}, tolerance),
		Near(prefix+"mtp loss", a.MTPLoss, b.MTPLoss, tolerance),
		Near(prefix+"balancing and z loss", append(a.Balancing[:], a.ZLoss), append(b.Balancing[:], b.ZLoss), tolerance))...)
}
