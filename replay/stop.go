package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"phalanx/collective"
	"phalanx/config"
	"phalanx/messages"
	"phalanx/recovery"
)

// Points that a rank comes by in a replay, beside those of its programs.
const (
	beforeSend     = config.BeforeSend
	afterSend      = config.AfterSend
	beforeApply    = config.BeforeApply
	beforeSnapshot = config.BeforeSnapshot
	afterRestart   = config.AfterRestart
)

var hooks = []string{beforeSend, afterSend, beforeApply, beforeSnapshot, afterRestart, config.GradReduce, config.MidOptimizer}

// Point is where a replay stops.
type Point struct {
	Hook  string
	Count int // the passage, from 1
}

// ParsePoint reads HOOK or HOOK:COUNT.
func ParsePoint(text string) (*Point, error) {
	hook, number, counted := strings.Cut(text, ":")
	p := &Point{Hook: hook, Count: 1}
	if _, ok := config.ParsePoint(hook); !ok && !slices.Contains(hooks, hook) {
		return nil, fmt.Errorf("found %q, expected one of %s, or a pass of the program as layer.1.forward or mtp.2.backward, with :COUNT behind it if not its first passage is meant",
			hook, strings.Join(hooks, ", "))
	}
	if counted {
		var err error
		if p.Count, err = strconv.Atoi(number); err != nil || p.Count < 1 {
			return nil, fmt.Errorf("found passage %q of %s, expected a number from 1", number, hook)
		}
	}
	return p, nil
}

// String reads "mtp.1.forward:3".
func (p Point) String() string { return fmt.Sprintf("%s:%d", p.Hook, p.Count) }

// Stopped is where a rank stands when its replay stops.
type Stopped struct {
	At         string // the point; "": the recording ends
	Step       uint32 // from 0
	Microbatch int
	Programs   []collective.Status
	Waits      []Wait
	Next       map[recovery.Edge]uint64 // numbers of the next message to send
	Losses     []messages.StepDone      // of the steps that are done
}

// pass is a point that the rank comes by. The replay ends there if it is the one.
func (n *node) pass(hook string, microbatch int) {
	p := n.o.StopAt
	if p == nil || p.Hook != hook || n.ended != nil {
		return
	}
	if n.passed++; n.passed < p.Count {
		return
	}
	n.result.Stopped = n.here(p.String())
	n.result.Stopped.Microbatch = microbatch
	n.result.Ended = "stopped at " + p.String()
	n.end(errStop)
}

// here is where the rank stands.
func (n *node) here(at string) *Stopped {
	return &Stopped{At: at, Step: n.step, Programs: n.rank.Statuses(), Waits: n.waits(), Next: n.sent, Losses: n.done}
}

// Edges are those of Next, in order.
func (s *Stopped) Edges() []recovery.Edge { return sortedEdges(s.Next) }
