package mesh

import (
	"fmt"
	"strings"
)

// Where is a rank's place on the axes that are split: "tp 1 dp 1"; "" if there is one rank.
func (s Sizes) Where(rank int) string {
	c := s.Coord(rank)
	var at []string
	for _, a := range [...]Axis{TP, CP, DP, PP, EP} {
		if s.Of(a) > 1 {
			at = append(at, fmt.Sprintf("%s %d", a, c.Of(a)))
		}
	}
	return strings.Join(at, " ")
}
