package run_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/run"
)

// pipelineCases are all cases without Mamba layers.
var pipelineCases = append(slices.Clone(expertCases), "dense", "dense-tied", "dense-mtp", "dense-mtp-nolossmask", "text-curve")

// Every case holds on pipeline stages, alone and mixed with the other axes, and has the bits of one stage: stages,
// chunks and copies of the embedding change no sum.
func TestReferenceCasesOnPipelineStages(t *testing.T) {
	for _, name := range pipelineCases {
		for _, s := range []mesh.Sizes{{}, {TP: 2}, {CP: 2}, {TP: 2, CP: 2, DP: 2}} {
			if dp, fixed := pooled[name]; fixed {
				s.DP = dp
			}
			t.Run(fmt.Sprintf("%s/tp%d_cp%d_dp%d", name, max(s.TP, 1), max(s.CP, 1), max(s.DP, 1)), func(t *testing.T) {
				v := run.VerifyOptions{Sizes: s, SP: s.TP > 1, Overrides: []string{"transport.colocated=direct"}}
				one := verified(t, name, v)
				v.Sizes.PP = 2
				require.Equal(t, one.Report.WeightsSHA256, verified(t, name, v).Report.WeightsSHA256)
			})
		}
	}
}
