package nn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A use by rows adds and clears the rows it has touched, any other use all of them.
func TestUseByRow(t *testing.T) {
	for _, byRow := range []bool{false, true} {
		var p Params[float32]
		q := p.Declare(Spec{Name: "table", Shape: []int{6, 2}, Shard: Shard{Dim: 0, Parts: 2}, Uses: 2, ByRow: byRow})
		p.Build()
		u := q.Uses[0]
		for range 2 {
			copy(q.Grad, []float32{1, 2, 3, 4, 5, 6})
			copy(u.Row(2, 2), []float32{20, 30})
			u.Row(0, 2)[1] = 7
			u.AddTo(q.Grad)
			require.Equal(t, []float32{1, 9, 3, 4, 25, 36}, q.Grad)
			p.ZeroGrads()
			require.Equal(t, make([]float32, 6), q.Grad)
			require.Equal(t, make([]float32, 6), u.Grad)
		}
		u.Grad[2] = 1 // without telling
		u.AddTo(q.Grad)
		require.Equal(t, byRow, q.Grad[2] == 0, "rows that were not touched are not looked at")
	}
}
