package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
)

// reportBytesMax is the largest report that is read: 64 MiB is a hundred thousand steps.
const reportBytesMax = 64 << 20

// savedReport is what a comparison reads of a report's JSON.
type savedReport struct {
	Name          string           `json:"name"`
	Steps         []map[string]any `json:"steps"`
	WeightsSHA256 string           `json:"weights_sha256"`
}

// sameReport compares the figures of every step with another run's report. Tolerance 0 asks for equal weights too.
func (q quantities) sameReport(path string, tol float64) (bool, string) {
	want, err := readReport(path, q.report.Name)
	if err != nil {
		return false, err.Error()
	}
	raw, err := json.Marshal(q.report.Steps)
	if err != nil {
		return false, err.Error()
	}
	var got []map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		return false, err.Error()
	}
	if len(got) != len(want.Steps) {
		return false, fmt.Sprintf("has %d steps, %s has %d", len(got), path, len(want.Steps))
	}
	for i, w := range want.Steps {
		if text := differentFigures(got[i], w, tol); text != "" {
			return false, fmt.Sprintf("first difference: step %d %s", i+1, text)
		}
	}
	if tol == 0 && want.WeightsSHA256 != q.report.WeightsSHA256 {
		return false, "figures agree, but weights_sha256 differs"
	}
	return true, fmt.Sprintf("no difference in %d steps of %s", len(got), path)
}

// differentFigures is the first figure that differs, in ascending order of names.
func differentFigures(got, want map[string]any, tol float64) string {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		w, isNumber := want[name].(float64)
		g, ok := got[name].(float64)
		if isNumber && ok && math.Abs(g-w) <= tol*math.Max(1, math.Abs(w)) || got[name] == want[name] {
			continue
		}
		return fmt.Sprintf("%s: got %v, want %v", name, got[name], want[name])
	}
	return ""
}

// readReport finds the report of a name in a file of JSON lines; a file with one report is taken whatever its name.
func readReport(path, name string) (*savedReport, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(raw) > reportBytesMax {
		return nil, fmt.Errorf("%s has %d bytes, expected a report of at most %d", path, len(raw), reportBytesMax)
	}
	var all []*savedReport
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, reportBytesMax)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		r := &savedReport{}
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w; expected reports as run --json FILE writes them, one a line", path, n, err)
		}
		if r.Steps == nil {
			return nil, fmt.Errorf("%s:%d has no steps, expected the report of a run", path, n)
		}
		all = append(all, r)
	}
	for _, r := range all {
		if r.Name == name || len(all) == 1 {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%s has %d reports, none of them named %s", path, len(all), name)
}
