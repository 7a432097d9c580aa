// Package mesh knows the axes of a job, where a rank stands on each, which ranks form a group, and which part of a model
// lies on which stage of a pipeline.
package mesh

import "fmt"

// Axis is one way in which work is split over ranks.
type Axis uint8

// The axes. Decoder ranks are ordered tp-cp-dp-pp, fastest first; expert ranks lie across tp, cp and dp.
const (
	TP  Axis = iota
	CP       // context parallelism
	EP       // ranks that host the experts of one copy: ETP·EP of them, expert tensor parallelism fastest
	DP       // data parallelism, CP excluded
	PP       // pipeline stages
	EDP      // copies of the same experts
	axisEnd
)

var axisNames = [axisEnd]string{"tp", "cp", "ep", "dp", "pp", "edp"}

// AxisCount is the number of axes.
const AxisCount = int(axisEnd)

// Axes is every axis.
func Axes() []Axis { return []Axis{TP, CP, EP, DP, PP, EDP} }

// String is the lower-case name of the axis.
func (a Axis) String() string {
	if a < axisEnd {
		return axisNames[a]
	}
	return fmt.Sprintf("axis(%d)", uint8(a))
}

// Sizes are the sizes of the axes of the decoder grid, World = TP·CP·DP·PP, and of the expert grid laid over it: the
// ranks x of a pipeline stage have expert tensor place x mod ETP, expert place x÷ETP mod EP, copy x÷(ETP·EP). ETP·EP divides TP·CP·DP; 0 means 1.
type Sizes struct{ TP, CP, DP, PP, EP, ETP int }

// Experts is the number of ranks that host one copy of the experts.
func (s Sizes) Experts() int { return max(s.EP, 1) * max(s.ETP, 1) }

// stage is the number of ranks of a pipeline stage.
func (s Sizes) stage() int { return s.TP * s.CP * s.DP }

// World is the number of ranks.
func (s Sizes) World() int { return s.TP * s.CP * s.DP * s.PP }

// Of is the size of an axis.
func (s Sizes) Of(a Axis) int {
	switch a {
	case TP:
		return s.TP
	case CP:
		return s.CP
	case DP:
		return s.DP
	case PP:
		return s.PP
	case EP:
		return s.Experts()
	case EDP:
		return s.stage() / s.Experts()
	}
	return 1
}

// Coord is a rank's place on each axis. EP and EDP follow from the others.
type Coord struct{ TP, CP, DP, PP, EP, EDP int }

// Of is the place on an axis.
func (c Coord) Of(a Axis) int {
	switch a {
	case TP:
		return c.TP
	case CP:
		return c.CP
	case DP:
		return c.DP
	case PP:
		return c.PP
	case EP:
		return c.EP
	case EDP:
		return c.EDP
	}
	return 0
}

// Coord is where rank r stands: r = tp + TP·(cp + CP·(dp + DP·pp)).
func (s Sizes) Coord(r int) Coord {
	x := r % s.stage()
	return Coord{TP: r % s.TP, CP: r / s.TP % s.CP, DP: r / (s.TP * s.CP) % s.DP, PP: r / s.stage(),
		EP: x % s.Experts(), EDP: x / s.Experts()}
}

// Rank is the inverse of Coord, of its decoder axes.
func (s Sizes) Rank(c Coord) int { return c.TP + s.TP*(c.CP+s.CP*(c.DP+s.DP*c.PP)) }

// Group is the ranks that differ from r on axis a only, in ascending order of their place on it.
func (s Sizes) Group(r int, a Axis) []int {
	c := s.Coord(r)
	ranks := make([]int, s.Of(a))
	stage := s.stage()
	for i := range ranks {
		m := c
		switch a {
		case EP:
			ranks[i] = r/stage*stage + c.EDP*s.Experts() + i
			continue
		case EDP:
			ranks[i] = r/stage*stage + i*s.Experts() + c.EP
			continue
		case TP:
			m.TP = i
		case CP:
			m.CP = i
		case DP:
			m.DP = i
		case PP:
			m.PP = i
		}
		ranks[i] = s.Rank(m)
	}
	return ranks
}

// GroupIndex numbers the groups of an axis: the rank at place 0 names it.
func (s Sizes) GroupIndex(r int, a Axis) int { return s.Group(r, a)[0] }
