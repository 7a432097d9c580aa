package kernel

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestGemmShare prints each shape's share of the FMA peak; PHALANX_GEMM_SHARE holds a pattern of shapes.
func TestGemmShare(t *testing.T) {
	pattern := os.Getenv("PHALANX_GEMM_SHARE")
	if pattern == "" {
		t.Skip("set PHALANX_GEMM_SHARE to a pattern of shapes, such as .*, to measure")
	}
	want := regexp.MustCompile(pattern)
	for _, s := range gemmShapes() {
		if !want.MatchString(s.String()) {
			continue
		}
		run := alignedGemm(s)
		shares := sharesOfPeak(t, Active(), func() float64 {
			run()
			return GemmFlops(s.m, s.n, s.k)
		})
		fmt.Printf("%-24s median %5.1f %%, best tenth %5.1f %% of peak\n", s, 100*shares[len(shares)/2], 100*shares[len(shares)*9/10])
	}
}

// sharesOfPeak measures run and the FMA peak in short turns, so that both see the same clock, in the time that this
// thread had a processor, so that other processes do not count but for the caches they spoil. It gives the quotients
// in ascending order.
func sharesOfPeak(t *testing.T, path Path, run func() float64) (shares []float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() float64 {
		var ts unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
		return float64(ts.Nano()) / 1e9
	}
	const turns, flopsOfTurn = 101, 5e7
	rate := func(f func() float64) float64 {
		t0, flops := now(), 0.0
		for flops < flopsOfTurn {
			flops += f()
		}
		return flops / (now() - t0)
	}
	peak := func() float64 { return rate(func() float64 { return FMAPeak(path, peakRounds) }) }
	rate(run)
	before := peak()
	for range turns {
		r := rate(run)
		after := peak()
		shares = append(shares, 2*r/(before+after))
		before = after
	}
	slices.Sort(shares)
	return shares
}
