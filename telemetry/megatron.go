package telemetry

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// timeLayout is Python's "%Y-%m-%d %H:%M:%S.%f".
const timeLayout = "2006-01-02 15:04:05.000000"

// pplCap is the largest loss whose exponential Megatron prints: above it the perplexity stays e^20.
const pplCap = 20

// iterationLine is Megatron's training line: labels, order and widths are what its log parsers look for.
func iterationLine(at time.Time, w *window) string {
	it := w.last
	var b strings.Builder
	fmt.Fprintf(&b, " [%s]", at.Format(timeLayout))
	fmt.Fprintf(&b, " iteration %8d/%8d |", it.Step, it.Steps)
	fmt.Fprintf(&b, " consumed samples: %12d |", it.Samples)
	fmt.Fprintf(&b, " elapsed time per iteration (ms): %.1f |", w.elapsedMs/float64(max(w.count, 1)))
	fmt.Fprintf(&b, " learning rate: %s |", scientific(it.LR))
	fmt.Fprintf(&b, " global batch size: %5d |", it.Batch)
	for _, l := range w.means() {
		fmt.Fprintf(&b, " %s: %s |", l.Name, scientific(l.Value))
	}
	b.WriteString(" loss scale: 1.0 |")
	fmt.Fprintf(&b, " grad norm: %s |", fixed3(it.GradNorm))
	fmt.Fprintf(&b, " number of skipped iterations: %3d |", w.skipped)
	fmt.Fprintf(&b, " number of nan iterations: %3d |", w.nan)
	return b.String()
}

// validationLines are Megatron's validation line between two rules of its length.
func validationLines(v Validation) []string {
	var b strings.Builder
	fmt.Fprintf(&b, " validation loss at iteration %d | ", v.Step)
	for _, l := range v.Losses {
		ppl := math.Exp(math.Min(pplCap, l.Value))
		fmt.Fprintf(&b, "%s value: %s | %s PPL: %s | ", l.Name, scientific(l.Value), l.Name, scientific(ppl))
	}
	rule := strings.Repeat("-", b.Len()+1)
	return []string{rule, b.String(), rule}
}

// scientific is Python's "{:.6E}", which writes NAN and INF where Go writes NaN and +Inf.
func scientific(v float64) string {
	if s, ok := notFinite(v); ok {
		return strings.ToUpper(s)
	}
	return fmt.Sprintf("%.6E", v)
}

// fixed3 is Python's "{:.3f}".
func fixed3(v float64) string {
	if s, ok := notFinite(v); ok {
		return s
	}
	return fmt.Sprintf("%.3f", v)
}

// notFinite is Python's name of a value that is no number.
func notFinite(v float64) (name string, ok bool) {
	switch {
	case math.IsNaN(v):
		return "nan", true
	case math.IsInf(v, 1):
		return "inf", true
	case math.IsInf(v, -1):
		return "-inf", true
	}
	return "", false
}
