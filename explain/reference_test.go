package explain

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/golden"
	"phalanx/nn"
)

// TestReferenceCases holds what ranks see against what an independent implementation says each depth sees.
func TestReferenceCases(t *testing.T) {
	dir, err := golden.Dir()
	require.NoError(t, err)
	names, err := golden.Cases(dir)
	require.NoError(t, err)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := golden.Load(filepath.Join(dir, name+".json"))
			require.NoError(t, err)
			defer c.Close()
			var mbs []*nn.Microbatch
			for j := range c.Steps[0].Microbatches {
				mb, err := c.Microbatch(0, j)
				require.NoError(t, err)
				mbs = append(mbs, mb)
			}
			for _, l := range []layout{single, {2, 1, 1, true}, {1, 2, 1, false}, {2, 2, 1, true}} {
				sees(t, c, l, mbs)
			}
		})
	}
}

// sees compares one layout with the first microbatch of a case.
func sees(t *testing.T, c *golden.Case, l layout, mbs []*nn.Microbatch) {
	t.Helper()
	want := c.Steps[0].Microbatches[0]
	s := scenario(len(want.MTPTokens), l)
	r := reported(t, s, nil, mbs...)
	require.Equal(t, append([]int64{want.LMTokens}, want.MTPTokens...), counted(r), "%+v", l)
	for k := 1; k < len(r.Terms); k++ {
		var ids, labels, loss, pad []int64
		for _, row := range r.Rows {
			line := row.Terms[k]
			for i := range line.InputIDs {
				ids, labels, loss = append(ids, int64(line.InputIDs[i])), append(labels, int64(line.Labels[i])), append(loss, int64(line.LossMask[i]))
				if line.PaddingMask != nil {
					pad = append(pad, int64(line.PaddingMask[i]))
				}
			}
		}
		at := fmt.Sprintf("mtp%d/", k)
		wantIDs, err := c.ExpectInts(0, at+"input_ids")
		require.NoError(t, err)
		require.Equal(t, wantIDs.Data, ids, "%+v", l)
		wantLabels, err := c.ExpectInts(0, at+"labels")
		require.NoError(t, err)
		require.Equal(t, wantLabels.Data, labels, "%+v", l)
		wantLoss, err := c.ExpectFloats(0, at+"loss_mask")
		require.NoError(t, err)
		for i, w := range wantLoss.Data {
			require.EqualValues(t, w, loss[i], "%+v", l)
		}
		if !c.HasPadMask() {
			require.Empty(t, pad)
			continue
		}
		wantPad, err := c.ExpectBools(0, at+"padding_mask")
		require.NoError(t, err)
		for i, p := range wantPad.Data {
			require.Equal(t, p, pad[i] == 1, "%+v position %d", l, i)
		}
	}
}
