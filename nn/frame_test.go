package nn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config/mutation"
)

// Planted bugs take wrong angles, and angles that exist: a late short document, and documents of unlike lengths.
func TestPlantedAnglesExist(t *testing.T) {
	rows := []Docs{
		{{{0, 23, 23}, {23, 1, 1}}},
		{{{0, 1, 1}, {1, 23, 23}}},
		{{{0, 12, 12}, {12, 11, 12}}},
	}
	for name, bug := range map[string]mutation.Set{
		"positions_not_reset": mutation.PositionsNotReset, "rope_doc0_table": mutation.RopeDoc0Table, "drop_odd_token": mutation.DropOddToken,
	} {
		for _, docs := range rows {
			for cp := 1; cp <= 4; cp++ {
				for _, f := range mutatedFrames(docs, 1, 24, cp, 1, bug) {
					for _, p := range f.Pos {
						require.Less(t, int(p), RopeLength(24, cp), "%s %v cp %d", name, docs, cp)
					}
				}
			}
		}
	}
}
