package run_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/run"
)

// Gradients reduced while the backward pass goes on have the bits of those reduced behind it.
func TestOverlappedReduction(t *testing.T) {
	for _, name := range []string{"dense-mtp", "tied-mtp", "moe-mtp", "moe-pertoken"} {
		for _, v := range []run.VerifyOptions{
			{Sizes: mesh.Sizes{DP: 2}},
			{Sizes: mesh.Sizes{TP: 2, CP: 2, DP: 2}, SP: true},
			{Sizes: mesh.Sizes{PP: 2, DP: 2}},
			{Sizes: mesh.Sizes{TP: 2, CP: 2}, SP: true, DType: "fp32"},
		} {
			t.Run(fmt.Sprintf("%s/tp%d_cp%d_dp%d_pp%d", name, v.Sizes.TP, v.Sizes.CP, v.Sizes.DP, v.Sizes.PP), func(t *testing.T) {
				v := v
				v.Overrides = []string{"transport.colocated=direct"}
				behind := verified(t, name, v)
				for _, more := range [][]string{{}, {"optimizer.use_distributed_optimizer=true", "ddp.bucket_size=3000"}} {
					v.Overrides = append([]string{"transport.colocated=direct", "ddp.overlap_grad_reduce=true", "ddp.check_for_nan_in_grad=true"}, more...)
					during := verified(t, name, v)
					require.Equal(t, behind.Report.WeightsSHA256, during.Report.WeightsSHA256)
					require.Equal(t, behind.Report.Steps, during.Report.Steps)
				}
			})
		}
	}
}
