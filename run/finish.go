package run

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"phalanx/actors"
)

// report is what a run has come to, as far as it got.
func (j *job) report(result *actors.Result, transport string) *Report {
	r := &Report{Name: j.s.Name, Verdict: "fail", Steps: j.figures.steps, Validation: j.figures.evals, Transport: transport,
		TokensPerS: j.figures.tokensPerS(), PeakRSSBytes: peakRSS(), Messages: map[string]Count{}, Expect: []ExpectResult{}, RecoveryMs: append([]float64{}, j.lives.recoveryMs...)}
	if j.launched != nil {
		j.launched.report(r)
	}
	if result == nil {
		return r
	}
	for _, c := range result.Ops {
		k := r.Messages[c.Tag.String()]
		k.Count += int64(c.Count)
		k.Bytes += int64(c.Bytes)
		r.Messages[c.Tag.String()] = k
	}
	if j.launched == nil {
		r.LogBytesPeak = logPeaks(result.Logs, j.s.Train.TrainIters)
	}
	r.DuplicatesDropped, r.Restarts, r.Replayed = int(result.Duplicates), result.Restarts, int(result.Replayed)
	return r
}

// residentNow is this process's resident memory; 0 where the system does not say.
func residentNow() int64 { return procStatus("VmRSS:") }

// peakRSS is the largest resident memory this process ever had; 0 where the system does not say.
func peakRSS() int64 { return procStatus("VmHWM:") }

// procStatus is a figure of this process that Linux knows, in bytes.
func procStatus(key string) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), key); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err == nil {
				return kb << 10
			}
		}
	}
	return 0
}
