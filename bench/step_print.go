package bench

import (
	"fmt"
	"io"
)

// Print writes a result, one figure a line.
func (r *StepResult) Print(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("model", "%s: %d parameters", r.Model, r.Parameters)
	line("steps", "%d of %d tokens, after %d to warm up; threads %d, kernel %s", r.Steps, r.TokensPerStep, r.Warmup, r.Threads, r.Kernel)
	line("step", "%.1f ms median, %.1f ms best", r.MedianMs, r.BestMs)
	line("tokens/s", "%.1f median, %.1f best", r.TokensPerS, r.BestTokensPerS)
	line("FMA peak", "%.1f GFLOP/s before, %.1f after, threads %d", r.PeakBefore, r.PeakAfter, r.Threads)
	if r.ModelGFlops == nil {
		line("model FLOP/s", "not said: 6·N·tokens + 12·L·h·S·tokens is for dense models without MTP")
	} else {
		line("model FLOP/s", "%.2f GFLOP/s = 6·N·tokens + 12·L·h·S·tokens a second; N = %d parameters without position tables", *r.ModelGFlops, r.Parameters)
		line("share of peak", "%.1f %% of the mean of both peaks", 100**r.Share)
	}
	line("processor time", "%.0f %% of wall clock and threads", 100*r.CPUShare)
	line("peak RSS", "%.1f MiB", float64(r.PeakRSSBytes)/(1<<20))
	if s := r.Split; s != nil {
		line("cp "+fmt.Sprint(s.CP), "%.1f ms computing of all ranks and %.1f ms exchange a step, one processor, %s, optimizer sharded", s.ComputeMs, s.ExchangeMs, s.Clock)
		line("against one rank", "%.1f ms computing a step; ratio %.3f, median of %d pairs in turns; half of them lie between %.3f and %.3f", s.OneMs, s.Ratio, s.Rounds, s.RatioLow, s.RatioHigh)
	}
	line("heap per step", "%.1f allocations, %.0f bytes", r.HeapCount, r.HeapBytes)
}
