package supervise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"phalanx/transport/natslink/plane"
)

const (
	paceStepsKept = 64   // steps of a rank whose median counts
	slowFactor    = 1.25 // of the median of all: noise of a shared machine is below that
)

// Pace collects how long the ranks compute in a step, waiting left out: a slow rank makes all others wait, and does not wait
// itself. It is not safe for use by several goroutines.
type Pace struct {
	ranks map[int]*paceOf
}

type paceOf struct {
	step  uint32
	times []int64 // ns, the newest last
}

// Row is one rank in the table.
type Row struct {
	Rank    int           `json:"rank"`
	Steps   int           `json:"steps"`      // that were counted
	Compute time.Duration `json:"compute_ns"` // median per step
	Ratio   float64       `json:"ratio"`      // to the median of all ranks
	Slow    bool          `json:"slow"`
}

// Take takes a heartbeat. Each step counts once, however many heartbeats tell of it.
func (p *Pace) Take(b plane.Beat) {
	if p.ranks == nil {
		p.ranks = map[int]*paceOf{}
	}
	for _, r := range b.Ranks {
		o := p.ranks[r.Rank]
		if o == nil {
			o = &paceOf{}
			p.ranks[r.Rank] = o
		}
		if r.ComputeNs <= 0 || r.Step == o.step {
			continue
		}
		o.step = r.Step
		if o.times = append(o.times, r.ComputeNs); len(o.times) > paceStepsKept {
			o.times = o.times[1:]
		}
	}
}

// Table is a row of every rank that has told a time, the slowest first.
func (p *Pace) Table() []Row {
	var rows []Row
	var medians []int64
	for r, o := range p.ranks {
		if len(o.times) > 0 {
			rows = append(rows, Row{Rank: r, Steps: len(o.times), Compute: time.Duration(median(o.times))})
			medians = append(medians, median(o.times))
		}
	}
	all := median(medians)
	for i := range rows {
		rows[i].Ratio = float64(rows[i].Compute) / float64(all)
		rows[i].Slow = rows[i].Ratio > slowFactor
	}
	slices.SortFunc(rows, func(a, b Row) int {
		if a.Compute != b.Compute {
			return int(b.Compute - a.Compute)
		}
		return a.Rank - b.Rank
	})
	return rows
}

// median is the lower one of an even number of values: of two ranks, one may be the slow one. 0 of none.
func median(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	return s[(len(s)-1)/2]
}

// PaceText is the table as text. name may say more about a rank than its number; nil: nothing.
func PaceText(rows []Row, name func(rank int) string) string {
	var b strings.Builder
	for _, r := range rows {
		slow := ""
		if r.Slow {
			slow = "  slow"
		}
		fmt.Fprintf(&b, "%-24s %10.1f ms a step  %5.2f × the median  (%d steps)%s\n", title(r.Rank, name), float64(r.Compute)/1e6, r.Ratio, r.Steps, slow)
	}
	return b.String()
}
