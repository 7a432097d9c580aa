package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes a result: both layers, the parts of one, the traffic of every dispatcher.
func (r *MoEResult) Print(w io.Writer) {
	fmt.Fprintf(w, "%d experts of %d hidden features, %d a token, %d tokens of %d features; fp32, %d thread, kernel %s; processor time, medians of %d in turns\n",
		r.Experts, r.Width, r.TopK, r.Tokens, r.Hidden, r.Threads, r.Kernel, r.Reps)
	fmt.Fprintf(w, "FMA peak %.1f GFLOP/s; fullest expert %.2f of the mean\n", r.PeakGFlops, r.Busiest)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "forward and backward\tms\tof the layer\tof the peak\t\n")
	fmt.Fprintf(t, "dense layer of %d\t%.1f\t\t%.1f %%\t\n", r.TopK*r.Width, r.DenseMs, 100*r.DenseShare)
	fmt.Fprintf(t, "layer of experts\t%.1f\t100.0 %%\t%.1f %%\t\n", r.MoEMs, 100*r.MoEShare)
	for _, p := range r.Parts {
		peak := ""
		if p.OfPeak > 0 {
			peak = fmt.Sprintf("%.1f %%", 100*p.OfPeak)
		}
		fmt.Fprintf(t, "  %s\t%.1f\t%.1f %%\t%s\t\n", p.Name, p.Ms, 100*p.OfLayer, peak)
	}
	t.Flush()
	fmt.Fprintf(w, "experts over dense: %.3f (products are the same; above 1 is what experts cost besides)\n", r.Ratio)
	r.printTraffic(w)
}

func (r *MoEResult) printTraffic(w io.Writer) {
	fmt.Fprintf(w, "over %d ranks of %d tokens each, forward and backward, a rank sends in the mean\n", r.EP, r.Tokens)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "dispatcher\tMiB\tmost\trows and probabilities\tover them\tover the least\tmessages\t\n")
	for _, d := range r.Traffic {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.0f\t\n", d.Dispatcher, d.Bytes/(1<<20), d.BytesMax/(1<<20), d.Plan/(1<<20), d.OverPlan, d.OverLeast, d.Messages)
	}
	t.Flush()
}
