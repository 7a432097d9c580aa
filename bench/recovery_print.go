package bench

import (
	"fmt"
	"io"
)

// Print writes a result, one figure a line.
func (r *RecoveryResult) Print(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("without the log", "%.1f ms a step, median of %d runs", r.WithoutMs, r.Pairs)
	line("with the log", "%.1f ms a step", r.WithMs)
	line("with over without", "%.3f, median of %d pairs in turns; half of them lie between %.3f and %.3f", r.Ratio, r.Pairs, r.RatioLow, r.RatioHigh)
	if r.Deaths == 0 {
		return
	}
	line("killed ranks", "%d, each in a process of its own, a snapshot every 2 steps", r.Deaths)
	line("detection", "p50 %.0f ms, p95 %.0f ms, max %.0f ms from the last sign of life", r.Detection.P50, r.Detection.P95, r.Detection.Max)
	line("recovery", "p50 %.0f ms, p95 %.0f ms, max %.0f ms: a new process and the replay", r.Recovery.P50, r.Recovery.P95, r.Recovery.Max)
}
