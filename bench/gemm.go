package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"phalanx/tensor/kernel"
)

// Limits of a product: sizes beyond take minutes and say nothing new.
const (
	GemmSizeMax = 1 << 14
	GemmRepsMin = 7 // a median of fewer is one of the noise
)

// hashRows is how many rows of a result are hashed, spread evenly over it. The portable path emulates the fused
// multiply-add, so that a whole product would take it half a minute.
const hashRows = 64

// repLength is how long one repetition should take: long against a time slice, short against a change of clock.
const repLength = 20 * time.Millisecond

// GemmOptions say which product is measured: C[m,n] of inner length k.
type GemmOptions struct {
	M, N, K int
	Reps    int
	Now     Clock
}

// GemmRow is one path and one kind of product.
type GemmRow struct {
	Path         string  `json:"path"`
	Product      string  `json:"product"` // NN, NT, TN
	Rows         int     `json:"rows"`    // rows of C that were timed: fewer than m on a slow path
	MedianGFlops float64 `json:"median_gflops"`
	BestGFlops   float64 `json:"best_gflops"`
	PeakGFlops   float64 `json:"peak_gflops"` // median of the FMA peaks measured before each repetition
	Share        float64 `json:"share"`       // median of repetition ÷ its peak
	Hash         string  `json:"hash"`
}

// GemmResult is every path that this CPU has.
type GemmResult struct {
	M        int       `json:"m"`
	N        int       `json:"n"`
	K        int       `json:"k"`
	Reps     int       `json:"reps"`
	Threads  int       `json:"threads"`
	HashRows int       `json:"hash_rows"`
	SameBits bool      `json:"same_bits"` // one hash per kind of product
	Rows     []GemmRow `json:"results"`
}

// Gemm measures NN, NT and TN on every path, on one thread.
func Gemm(ctx context.Context, o GemmOptions) (*GemmResult, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	threads, path := kernel.Threads(), kernel.Active()
	kernel.SetThreads(1)
	defer func() { kernel.SetThreads(threads); kernel.Use(path) }()
	r := &GemmResult{M: o.M, N: o.N, K: o.K, Reps: o.Reps, Threads: 1, HashRows: min(hashRows, o.M)}
	for p := kernel.Portable; p <= kernel.Best(); p++ {
		kernel.Use(p)
		peak := newPeakMeter(p, 1, repLength, o.Now)
		for _, tr := range []kernel.Trans{kernel.NN, kernel.NT, kernel.TN} {
			row, err := measure(ctx, o, newProduct(tr, o.M, o.N, o.K), p, peak)
			if err != nil {
				return nil, err
			}
			r.Rows = append(r.Rows, row)
		}
	}
	r.SameBits = sameBits(r.Rows)
	return r, nil
}

// Check refuses sizes that say nothing.
func (o GemmOptions) Check() error {
	for _, s := range []struct {
		name string
		size int
	}{{"m", o.M}, {"n", o.N}, {"k", o.K}} {
		if s.size < 1 || s.size > GemmSizeMax {
			return fmt.Errorf("found --%s %d, expected 1 to %d", s.name, s.size, GemmSizeMax)
		}
	}
	if o.Reps < GemmRepsMin {
		return fmt.Errorf("found --reps %d, expected %d or more: a median of fewer is noise", o.Reps, GemmRepsMin)
	}
	return nil
}

// measure hashes a product, which warms it up, and then times it in turns with the peak.
func measure(ctx context.Context, o GemmOptions, p *product, path kernel.Path, peak *peakMeter) (GemmRow, error) {
	row := GemmRow{Path: path.String(), Product: p.tr.String(), Hash: p.hash(path)}
	row.Rows = p.fitRows(o.Now)
	flops := kernel.GemmFlops(row.Rows, p.n, p.k)
	var rates, peaks, shares []float64
	for range o.Reps {
		if err := ctx.Err(); err != nil {
			return row, err
		}
		top := peak.flops()
		start := o.Now()
		p.run(row.Rows)
		got := rate(flops, o.Now().Sub(start).Seconds())
		rates, peaks, shares = append(rates, got), append(peaks, top), append(shares, share(got, top))
		row.BestGFlops = max(row.BestGFlops, got/giga)
	}
	row.MedianGFlops, row.PeakGFlops, row.Share = median(rates)/giga, median(peaks)/giga, median(shares)
	return row, nil
}

// sameBits reports whether every path gave the same hash for the same product.
func sameBits(rows []GemmRow) bool {
	first := map[string]string{}
	for _, r := range rows {
		if h, ok := first[r.Product]; ok && h != r.Hash {
			return false
		}
		first[r.Product] = r.Hash
	}
	return true
}

// product is a matrix product with its operands.
type product struct {
	tr       kernel.Trans
	m, n, k  int
	a, b, c  []float32
	lda, ldb int
}

// newProduct fills operands with numbers that depend on their place only.
func newProduct(tr kernel.Trans, m, n, k int) *product {
	p := &product{tr: tr, m: m, n: n, k: k, a: fill(m*k, 1), b: fill(n*k, 2), c: make([]float32, m*n), lda: k, ldb: n}
	if tr == kernel.TN {
		p.lda = m
	}
	if tr == kernel.NT {
		p.ldb = k
	}
	return p
}

// fill is n numbers in [−1, 1) from a multiplicative hash of their index.
func fill(n int, seed uint64) []float32 {
	x := make([]float32, n)
	for i := range x {
		h := (uint64(i) + seed<<32) * 0x9e3779b97f4a7c15
		x[i] = float32(int32(h>>32)) / (1 << 31)
	}
	return x
}

// run computes the first rows of C.
func (p *product) run(rows int) {
	kernel.Gemm(p.tr, rows, p.n, p.k, p.a, p.lda, p.b, p.ldb, p.c, p.n, false)
}

// fitRows is how many rows fit a repetition; all of them if they take no longer than ten.
func (p *product) fitRows(now Clock) int {
	few := min(p.m, 8)
	start := now()
	p.run(few)
	perRow := now().Sub(start).Seconds() / float64(few)
	if perRow*float64(p.m) <= 10*repLength.Seconds() {
		return p.m
	}
	return min(p.m, max(few, int(repLength.Seconds()/perRow)))
}

// hash is over rows of C spread evenly. A fast path computes all of C for it, the portable one these rows alone: an
// element of C depends on its own row of A and column of B only.
func (p *product) hash(path kernel.Path) string {
	rows := spread(p.m, hashRows)
	if path == kernel.Portable {
		q := p.only(rows)
		q.run(q.m)
		return digest(q.c)
	}
	p.run(p.m)
	c := make([]float32, 0, len(rows)*p.n)
	for _, r := range rows {
		c = append(c, p.c[r*p.n:(r+1)*p.n]...)
	}
	return digest(c)
}

// only is the product of some rows.
func (p *product) only(rows []int) *product {
	q := &product{tr: p.tr, m: len(rows), n: p.n, k: p.k, b: p.b, ldb: p.ldb, lda: p.k,
		a: make([]float32, len(rows)*p.k), c: make([]float32, len(rows)*p.n)}
	if p.tr == kernel.TN {
		q.lda = len(rows)
	}
	for i, r := range rows {
		for j := range p.k {
			if p.tr == kernel.TN {
				q.a[j*q.lda+i] = p.a[j*p.lda+r]
			} else {
				q.a[i*q.lda+j] = p.a[r*p.lda+j]
			}
		}
	}
	return q
}

// spread is at most n indices from 0 to m−1 at even distances.
func spread(m, n int) []int {
	n = min(m, n)
	out := make([]int, n)
	for i := range out {
		out[i] = i * m / n
	}
	return out
}

// digest is a hash of the bits.
func digest(x []float32) string {
	h := xxhash.New()
	var b [4]byte
	for _, v := range x {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		h.Write(b[:])
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
