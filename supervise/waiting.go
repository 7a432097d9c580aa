package supervise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"phalanx/transport/natslink/plane"
)

// Sign is the last heartbeat of a worker, and how long ago it came.
type Sign struct {
	Beat plane.Beat
	Age  time.Duration
}

// silentAfter is the age from which a heartbeat says where a worker was, and not where it is.
const silentAfter = time.Second

// Waiting says of every rank what it does and for whom it waits, in one line each, ascending, and then who keeps the others.
// name may say more about a rank than its number: "tp 1 cp 0"; nil: nothing. Workers without a heartbeat are left out,
// unless workers names them. Signs are of different moments: that nobody is left to wait for is said only if still, when no
// rank has moved for so long that all that was sent has come.
func Waiting(workers []Worker, signs []Sign, name func(rank int) string, still bool) []string {
	heard := map[int]rankSign{}
	for _, s := range signs {
		for _, r := range s.Beat.Ranks {
			heard[r.Rank] = rankSign{r, s.Age, s.Beat.Incarnation}
		}
	}
	ranks := everyRank(workers, heard)
	lines := make([]string, 0, len(ranks)+1)
	for _, r := range ranks {
		s, ok := heard[r]
		if !ok {
			lines = append(lines, title(r, name)+" has not said anything yet")
			continue
		}
		lines = append(lines, title(r, name)+" "+s.line())
	}
	if line := keepers(heard, still); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// rankSign is a rank in the last heartbeat of its worker.
type rankSign struct {
	plane.RankBeat
	age         time.Duration
	incarnation uint32
}

func everyRank(workers []Worker, heard map[int]rankSign) (ranks []int) {
	for _, w := range workers {
		ranks = append(ranks, w.Ranks...)
	}
	for r := range heard {
		ranks = append(ranks, r)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

func title(rank int, name func(int) string) string {
	if name == nil {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, name(rank))
}

// line says what a rank does.
func (s rankSign) line() string {
	what := ""
	switch {
	case s.Done:
		what = "is done"
	case s.Holds:
		what = fmt.Sprintf("holds until the end of the run is agreed upon, step %d", s.Step)
	case len(s.WaitsFor) > 0:
		what = fmt.Sprintf("waits for %s%s since %s, step %d", rankList(s.WaitsFor), in(s.Op), seconds(time.Duration(s.WaitedNs)), s.Step)
	default:
		what = fmt.Sprintf("works%s, step %d", in(s.Op), s.Step)
	}
	if s.incarnation > 1 {
		what += fmt.Sprintf(", life %d", s.incarnation)
	}
	if s.age > silentAfter {
		what += fmt.Sprintf(" (so it said %s ago)", seconds(s.age))
	}
	return what
}

func in(op string) string {
	if op == "" {
		return ""
	}
	return " in " + op
}

func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + strings.Trim(fmt.Sprint(ranks), "[]")
}

// seconds are tenths, and thousandths below one.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// keepers names the ranks that others wait for, directly or not, and that wait for nobody themselves; or a circle, if still.
func keepers(heard map[int]rankSign, still bool) string {
	var roots []int
	waiting := 0
	for r := range heard {
		if len(heard[r].WaitsFor) > 0 {
			waiting++
			continue
		}
		for _, o := range heard {
			if slices.Contains(o.WaitsFor, r) {
				roots = append(roots, r)
				break
			}
		}
	}
	slices.Sort(roots)
	switch {
	case len(roots) > 0:
		return fmt.Sprintf("all who wait, wait for %s", rankList(roots))
	case still && waiting > 0 && waiting == len(heard):
		return "everybody waits, and nobody is left to wait for: messages are missing, or the order of operations differs between ranks"
	}
	return ""
}
