package run

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"phalanx/actors"
	"phalanx/config"
	"phalanx/oracle"
)

// quantities answers what a quantity was.
type quantities struct {
	j      *job
	report *Report
	result *actors.Result
	final  []oracle.Whole
	oracle *verdict // nil: no expectation asked for it
	quiet  *Report  // of the run without faults; nil: no expectation asked for it
	// quietFinal are the weights of that run.
	quietFinal []oracle.Whole
}

// check holds one expectation against the run.
func (q quantities) check(e config.Expect) ExpectResult {
	out := ExpectResult{Text: expectText(e)}
	if e.Refused != "" {
		out.Got = "the scenario was not refused"
		return out
	}
	switch {
	case e.Detected || e.SameAs == singleRank:
		out.OK, out.Got = q.checkOracle(e)
		return out
	case e.SameAs == withoutFaults:
		out.OK, out.Got = q.checkQuiet(e.Tolerance)
		return out
	case e.Restarts != nil:
		out.OK, out.Got = q.report.Restarts == *e.Restarts, strconv.Itoa(q.report.Restarts)
		return out
	case e.SameAs != "":
		out.OK, out.Got = q.checkFile(e)
		return out
	}
	if e.Quantity == "" { // finite: true, of the whole run
		out.OK, out.Got = q.allFinite()
		return out
	}
	got, err := q.find(e)
	if err != nil {
		out.Got = err.Error()
		return out
	}
	out.OK, out.Got = holds(e, got, q.rounding())
	return out
}

// allFinite checks every figure of every step.
func (q quantities) allFinite() (bool, string) {
	for _, s := range q.report.Steps {
		for _, v := range append([]float64{s.LMLoss, s.GradNorm}, s.MTPLoss...) {
			if !finite(v) {
				return false, fmt.Sprintf("a figure of step %d is %v", s.Step, v)
			}
		}
	}
	for _, w := range q.final {
		for i, v := range w.Floats() {
			if !finite(v) {
				return false, fmt.Sprintf("%s[%d] is %v after the last step", w.Name, i, v)
			}
		}
	}
	return true, "every figure and every weight is finite"
}

// holds compares numbers as the expectation says.
func holds(e config.Expect, got []float64, rounding float64) (bool, string) {
	text := numbers(got)
	all := func(ok func(v float64) bool) bool {
		for _, v := range got {
			if !ok(v) {
				return false
			}
		}
		return len(got) > 0
	}
	switch {
	case e.Equals != nil:
		return matches(*e.Equals, got, rounding), text
	case e.Close != nil:
		tol := e.Tolerance
		if tol == 0 {
			tol = 1e-9
		}
		return matches(*e.Close, got, tol), text
	case e.Below != nil:
		return all(func(v float64) bool { return v < *e.Below }), text
	case e.Above != nil:
		return all(func(v float64) bool { return v > *e.Above }), text
	case len(e.Between) == 2:
		return all(func(v float64) bool { return v >= e.Between[0] && v <= e.Between[1] }), text
	}
	return all(finite), text
}

// rounding is how far a computed number may be off a fraction that it equals, relative to max(1, |want|): whole
// numbers must be exact at either.
func (q quantities) rounding() float64 {
	if q.j.s.Train.DType == "fp64" {
		return 1e-12
	}
	return 1e-6
}

// matches compares with a number (every element must match it) or a list. Tolerance is relative to max(1, |want|).
func matches(want config.Values, got []float64, tol float64) bool {
	if want.Scalar {
		want.Data = repeat(want.Data[0], len(got))
	}
	if len(want.Data) != len(got) || len(got) == 0 {
		return false
	}
	for i, w := range want.Data {
		if d := math.Abs(got[i] - w); !(d <= tol*math.Max(1, math.Abs(w))) {
			return false
		}
	}
	return true
}

func repeat(v float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// numbersMax is how many numbers of a tensor a line shows.
const numbersMax = 32

func numbers(x []float64) string {
	if len(x) == 1 {
		return strconv.FormatFloat(x[0], 'g', 10, 64)
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, v := range x {
		if i == numbersMax {
			fmt.Fprintf(&b, " … %d in all", len(x))
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatFloat(v, 'g', 6, 64))
	}
	return b.String() + "]"
}

// expectText is the expectation in words.
func expectText(e config.Expect) string {
	if e.Refused != "" {
		return "refused: " + e.Refused
	}
	switch {
	case e.Detected && e.First != "":
		return "detected, first " + e.First
	case e.Detected:
		return "detected"
	case e.SameAs != "":
		return "same as " + e.SameAs
	case e.Restarts != nil:
		return fmt.Sprintf("restarts %d", *e.Restarts)
	case e.Quantity == "":
		return "finite"
	}
	at := e.Quantity
	if e.Step != nil {
		at += fmt.Sprintf(" at step %d", *e.Step)
	}
	if e.Microbatch != nil {
		at += fmt.Sprintf(" microbatch %d", *e.Microbatch)
	}
	if e.Row != nil {
		at += fmt.Sprintf(" row %d", *e.Row)
	}
	switch {
	case e.Equals != nil:
		return at + " equals " + numbers(e.Equals.Data)
	case e.Close != nil:
		return at + " close to " + numbers(e.Close.Data)
	case e.Below != nil:
		return fmt.Sprintf("%s below %g", at, *e.Below)
	case e.Above != nil:
		return fmt.Sprintf("%s above %g", at, *e.Above)
	case len(e.Between) == 2:
		return fmt.Sprintf("%s between %g and %g", at, e.Between[0], e.Between[1])
	}
	return at + " finite"
}
