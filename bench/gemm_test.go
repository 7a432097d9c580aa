package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/tensor/kernel"
)

// stepping is a clock that moves by the same time whenever it is read.
func stepping(by time.Duration) Clock {
	at := time.Unix(0, 0)
	return func() time.Time { at = at.Add(by); return at }
}

func smallGemm() GemmOptions {
	return GemmOptions{M: 70, N: 17, K: 9, Reps: GemmRepsMin, Now: stepping(5 * time.Millisecond)}
}

func TestGemmMeasuresEveryPathAndProduct(t *testing.T) {
	threads, path := kernel.Threads(), kernel.Active()
	r, err := Gemm(context.Background(), smallGemm())
	require.NoError(t, err)
	require.Equal(t, threads, kernel.Threads(), "threads are put back")
	require.Equal(t, path, kernel.Active(), "the path is put back")
	require.Len(t, r.Rows, 3*(int(kernel.Best())+1))
	require.True(t, r.SameBits)
	require.Equal(t, 64, r.HashRows)
	for i, row := range r.Rows {
		require.Equal(t, kernel.Path(i/3).String(), row.Path)
		require.Equal(t, []string{"NN", "NT", "TN"}[i%3], row.Product)
		require.Len(t, row.Hash, 16)
		require.Equal(t, row.MedianGFlops, row.BestGFlops, "every repetition takes a tick of this clock")
		require.InDelta(t, float64(2*row.Rows*17*9)/5e-3/1e9, row.MedianGFlops, 1e-9)
		require.InDelta(t, row.MedianGFlops/row.PeakGFlops, row.Share, 1e-9)
	}
}

func TestTheThreeProductsAreDifferent(t *testing.T) {
	r, err := Gemm(context.Background(), smallGemm())
	require.NoError(t, err)
	require.NotEqual(t, r.Rows[0].Hash, r.Rows[1].Hash)
	require.NotEqual(t, r.Rows[0].Hash, r.Rows[2].Hash)
}

func TestDifferentBitsAreSeen(t *testing.T) {
	rows := []GemmRow{{Path: "a", Product: "NN", Hash: "1"}, {Path: "a", Product: "NT", Hash: "2"}, {Path: "b", Product: "NN", Hash: "1"}}
	require.True(t, sameBits(rows))
	rows[2].Hash = "3"
	require.False(t, sameBits(rows))
	var out bytes.Buffer
	(&GemmResult{Rows: rows}).Print(&out)
	require.Contains(t, out.String(), "BITS DIFFER")
}

func TestGemmPrintsATable(t *testing.T) {
	r := &GemmResult{M: 1024, N: 768, K: 768, Reps: 7, Threads: 1, HashRows: 64, SameBits: true, Rows: []GemmRow{
		{Path: "avx2", Product: "NN", Rows: 1024, MedianGFlops: 80.5, BestGFlops: 81, PeakGFlops: 92, Share: 0.875, Hash: "00ff"}}}
	var out bytes.Buffer
	r.Print(&out)
	require.Equal(t, `C[1024,768], inner length 768, fp32, 1 thread, median and best of 7; peak measured before each repetition
  path  product  GFLOP/s   best  FMA peak   share  rows timed  hash
  avx2       NN    80.50  81.00     92.00  87.5 %        1024  00ff
same bits on every path (hash of 64 of 1024 rows)
`, out.String())
}

func TestGemmJSON(t *testing.T) {
	text, err := json.Marshal(GemmResult{Rows: []GemmRow{{}}})
	require.NoError(t, err)
	require.JSONEq(t, `{"m":0,"n":0,"k":0,"reps":0,"threads":0,"hash_rows":0,"same_bits":false,"results":[
		{"path":"","product":"","rows":0,"median_gflops":0,"best_gflops":0,"peak_gflops":0,"share":0,"hash":""}]}`, string(text))
}

func TestGemmRefuses(t *testing.T) {
	for want, change := range map[string]func(*GemmOptions){
		"found --m 0, expected 1 to 16384":     func(o *GemmOptions) { o.M = 0 },
		"found --n 16385, expected 1 to 16384": func(o *GemmOptions) { o.N = GemmSizeMax + 1 },
		"found --k -1, expected 1 to 16384":    func(o *GemmOptions) { o.K = -1 },
		"found --reps 6, expected 7 or more":   func(o *GemmOptions) { o.Reps = 6 },
	} {
		o := smallGemm()
		change(&o)
		_, err := Gemm(context.Background(), o)
		require.ErrorContains(t, err, want)
	}
}

func TestGemmStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Gemm(ctx, smallGemm())
	require.ErrorIs(t, err, context.Canceled)
}

func TestRowsOfAProductAreItsRows(t *testing.T) {
	for _, tr := range []kernel.Trans{kernel.NN, kernel.NT, kernel.TN} {
		p := newProduct(tr, 10, 3, 4)
		p.run(10)
		q := p.only([]int{2, 9})
		q.run(2)
		require.Equal(t, p.c[6:9], q.c[:3], "%v", tr)
		require.Equal(t, p.c[27:30], q.c[3:], "%v", tr)
	}
}

func TestSpread(t *testing.T) {
	require.Equal(t, []int{0, 1, 2}, spread(3, 64))
	require.Equal(t, []int{0, 25, 50, 75}, spread(100, 4))
}

func TestMedian(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
}

func TestPeakMeterCountsAllThreads(t *testing.T) {
	m := newPeakMeter(kernel.Active(), 2, 20*time.Millisecond, stepping(5*time.Millisecond))
	want := 2 * kernel.FMAPeak(kernel.Active(), m.iters)
	require.InDelta(t, want/5e-3, m.flops(), want)
}
