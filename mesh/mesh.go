// Package mesh knows the axes of a job, where a rank stands on each, and which ranks form a group.
package mesh

import "fmt"

// Axis is one way in which work is split over ranks.
type Axis uint8

// The axes, in Megatron's default rank order tp-cp-ep-dp-pp, fastest first (SEMANTICS §11.5).
const (
	TP Axis = iota
	CP
	EP
	DP
	PP
	axisEnd
)

var axisNames = [axisEnd]string{"tp", "cp", "ep", "dp", "pp"}

// String is the lower-case name of the axis.
func (a Axis) String() string {
	if a < axisEnd {
		return axisNames[a]
	}
	return fmt.Sprintf("axis(%d)", uint8(a))
}

// Sizes are the sizes of the axes of the decoder grid. World = TP·CP·DP·PP.
type Sizes struct{ TP, CP, DP, PP int }

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
	}
	return 1
}

// Coord is a rank's place on each axis.
type Coord struct{ TP, CP, DP, PP int }

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
	}
	return 0
}

// Coord is where rank r stands: r = tp + TP·(cp + CP·(dp + DP·pp)).
func (s Sizes) Coord(r int) Coord {
	return Coord{TP: r % s.TP, CP: r / s.TP % s.CP, DP: r / (s.TP * s.CP) % s.DP, PP: r / (s.TP * s.CP * s.DP)}
}

// Rank is the inverse of Coord.
func (s Sizes) Rank(c Coord) int { return c.TP + s.TP*(c.CP+s.CP*(c.DP+s.DP*c.PP)) }

// Group is the ranks that differ from r on axis a only, in ascending order of their place on it.
func (s Sizes) Group(r int, a Axis) []int {
	c := s.Coord(r)
	ranks := make([]int, s.Of(a))
	for i := range ranks {
		m := c
		switch a {
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
