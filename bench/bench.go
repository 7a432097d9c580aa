// Package bench measures: matrix products against the peak of the processor they run on, and whole training steps.
//
// Every share is of a peak that was measured in the same run, in turns with what it is a share of: clocks change with
// temperature, neighbours and instruction set, so figures of different minutes say nothing about each other.
package bench

import (
	"math"
	"slices"
	"sync"
	"time"

	"phalanx/tensor/kernel"
)

// Clock tells the time; time.Now outside tests.
type Clock func() time.Time

// peakCalibration is how long the peak loop runs at least to find its speed: shorter is noise.
const peakCalibration = 2 * time.Millisecond

// peakMeter measures the most floating-point operations per second that a path can do.
type peakMeter struct {
	path    kernel.Path
	threads int
	now     Clock
	iters   int // rounds per measurement and thread
}

// newPeakMeter finds how many rounds take about as long as a measurement should.
func newPeakMeter(path kernel.Path, threads int, length time.Duration, now Clock) *peakMeter {
	m := &peakMeter{path: path, threads: max(threads, 1), now: now}
	for iters := 1 << 10; ; iters *= 2 {
		start := now()
		kernel.FMAPeak(path, iters)
		took := now().Sub(start)
		if took >= peakCalibration || iters >= 1<<26 {
			m.iters = max(1, int(float64(iters)*length.Seconds()/math.Max(took.Seconds(), 1e-9)))
			return m
		}
	}
}

// flops is one measurement: operations per second of all threads together.
func (m *peakMeter) flops() float64 {
	done := make([]float64, m.threads)
	start := m.now()
	var wait sync.WaitGroup
	for i := range done {
		wait.Go(func() { done[i] = kernel.FMAPeak(m.path, m.iters) })
	}
	wait.Wait()
	took := m.now().Sub(start).Seconds()
	sum := 0.0
	for _, f := range done {
		sum += f
	}
	return rate(sum, took)
}

// rate is work per second; 0 when no time has passed.
func rate(work, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return work / seconds
}

// share is a part of a whole; 0 when there is no whole.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// median is the middle value, or the mean of the two middle ones.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// giga is the unit figures are printed in.
const giga = 1e9
