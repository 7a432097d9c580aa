package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/oracle"
)

// same_as: without_faults looks at steps, validation and weights, bit by bit or within a tolerance.
func TestCheckQuiet(t *testing.T) {
	whole := func() quantities {
		r := func() *Report {
			return &Report{Steps: []StepFigures{{Step: 1, LMLoss: 2}, {Step: 2, LMLoss: 1}}, Validation: []EvalFigures{{Step: 2, LMLoss: 3}}, WeightsSHA256: "aa"}
		}
		w := func() []oracle.Whole { return []oracle.Whole{{Name: "w", Shape: []int{2}, F64: []float64{10, 1}}} }
		return quantities{report: r(), quiet: r(), final: w(), quietFinal: w()}
	}
	for _, c := range []struct {
		change func(q quantities)
		tol    float64
		want   string // "": holds
	}{
		{func(quantities) {}, 0, ""},
		{func(q quantities) { q.report.Steps[1].LMLoss += 1e-6 }, 0, "step 2 lm loss: got 1.000001, want 1"},
		{func(q quantities) { q.report.Steps[1].LMLoss += 1e-6 }, 1e-5, ""},
		{func(q quantities) { q.report.Validation[0].LMLoss += 1e-6 }, 0, "validation after step 2 lm loss: got 3.000001, want 3"},
		{func(q quantities) { q.report.Validation[0].LMLoss += 1e-6 }, 1e-5, ""},
		{func(q quantities) { q.report.Validation = nil }, 1e-5, "0 validations, without faults 1"},
		{func(q quantities) { q.report.Steps = q.report.Steps[:1] }, 1e-5, "1 steps, without faults 2"},
		{func(q quantities) { q.report.WeightsSHA256 = "bb" }, 0, "weights_sha256 is bb, without faults aa"},
		{func(q quantities) { q.report.WeightsSHA256, q.final[0].F64[1] = "bb", 1.00009 }, 1e-5, ""},
		{func(q quantities) { q.report.WeightsSHA256, q.final[0].F64[1] = "bb", 1.0002 }, 1e-5, "w[1] is 1.0002 after the last step, without faults 1"},
		{func(q quantities) { q.quiet.Error = "not a test: dead" }, 0, "not a test: dead"},
	} {
		q := whole()
		c.change(q)
		ok, text := q.checkQuiet(c.tol)
		require.Equal(t, c.want == "", ok, text)
		if c.want != "" {
			require.Equal(t, c.want, text)
		}
	}
}
