package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the table of a result.
func (r *GemmResult) Print(w io.Writer) {
	fmt.Fprintf(w, "C[%d,%d], inner length %d, fp32, %d thread, median and best of %d; peak measured before each repetition\n",
		r.M, r.N, r.K, r.Threads, r.Reps)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "path\tproduct\tGFLOP/s\tbest\tFMA peak\tshare\trows timed\thash\t\n")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.1f %%\t%d\t%s\t\n", row.Path, row.Product, row.MedianGFlops, row.BestGFlops,
			row.PeakGFlops, 100*row.Share, row.Rows, row.Hash)
	}
	t.Flush()
	if r.SameBits {
		fmt.Fprintf(w, "same bits on every path (hash of %d of %d rows)\n", r.HashRows, r.M)
		return
	}
	fmt.Fprintf(w, "BITS DIFFER between paths (hash of %d of %d rows): expected one hash per product\n", r.HashRows, r.M)
}
