package mesh_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/mesh"
)

func TestCoordOfTheIssueLayouts(t *testing.T) {
	s := mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 2}
	require.Equal(t, 8, s.World())
	require.Equal(t, mesh.Coord{TP: 1, CP: 0, DP: 1, PP: 1, EDP: 3}, s.Coord(7))
	require.Equal(t, []int{4, 6}, s.Group(6, mesh.DP))
	require.Equal(t, []int{2, 6}, s.Group(6, mesh.PP))
	require.Equal(t, []int{6, 7}, s.Group(7, mesh.TP))
}

// D15: x = rank mod (tp·cp·dp); etp rank = x mod etp, ep rank = x÷etp mod ep, copy = x÷(etp·ep).
func TestExpertGrid(t *testing.T) {
	s := mesh.Sizes{TP: 2, CP: 1, DP: 4, PP: 1, EP: 2, ETP: 2}
	require.Equal(t, 4, s.Of(mesh.EP))
	require.Equal(t, 2, s.Of(mesh.EDP))
	require.Equal(t, []int{4, 5, 6, 7}, s.Group(6, mesh.EP))
	require.Equal(t, []int{2, 6}, s.Group(6, mesh.EDP))
	require.Equal(t, 2, s.Coord(6).EP)
}

func TestGroupsPartitionTheWorld(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := func(name string) int { return rapid.IntRange(1, 3).Draw(r, name) }
		s := mesh.Sizes{TP: n("tp"), CP: n("cp"), DP: n("dp"), PP: n("pp")}
		if k := s.TP * s.CP * s.DP; k%2 == 0 && rapid.Bool().Draw(r, "ep") {
			s.EP = 2
		}
		for rank := range s.World() {
			require.Equal(r, rank, s.Rank(s.Coord(rank)))
			for _, a := range mesh.Axes() {
				g := s.Group(rank, a)
				require.Len(r, g, s.Of(a))
				require.Equal(r, rank, g[s.Coord(rank).Of(a)])
				for _, m := range g {
					require.Equal(r, g, s.Group(m, a))
				}
			}
		}
	})
}
