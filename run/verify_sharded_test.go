package run_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/run"
)

// Every case holds with a sharded optimizer, and has the bits of the one that is not, whatever the size of buckets.
func TestShardedOptimizer(t *testing.T) {
	for _, name := range []string{"dense", "tied-mtp", "moe-mtp", "moe-pertoken", "moe-deepseek", "moe-repeated-deepseek"} {
		for _, v := range []run.VerifyOptions{
			{Sizes: mesh.Sizes{DP: 2}},
			{Sizes: mesh.Sizes{CP: 4}},
			{Sizes: mesh.Sizes{TP: 2, CP: 2, DP: 2}, SP: true},
			{Sizes: mesh.Sizes{CP: 2, DP: 2}, EP: 2},
			{Sizes: mesh.Sizes{PP: 2, DP: 2}},
			{Sizes: mesh.Sizes{TP: 2, CP: 2, DP: 2}, SP: true, EP: 2, ETP: 2, DType: "fp32"},
		} {
			if dp, fixed := pooled[name]; fixed {
				v.Sizes.DP = dp
			}
			if v.EP > 1 && (name == "dense" || max(v.Sizes.TP, 1)*max(v.Sizes.CP, 1)*max(v.Sizes.DP, 1)%(v.EP*max(v.ETP, 1)) != 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s/tp%d_cp%d_dp%d_pp%d_ep%d_etp%d", name, v.Sizes.TP, v.Sizes.CP, v.Sizes.DP, v.Sizes.PP, v.EP, v.ETP), func(t *testing.T) {
				v := v
				v.Overrides = []string{"transport.colocated=direct"}
				whole := verified(t, name, v)
				for _, more := range [][]string{{"optimizer.use_distributed_optimizer=true"}, {"ddp.use_distributed_optimizer=true", "ddp.bucket_size=3000"}} {
					v.Overrides = append([]string{"transport.colocated=direct"}, more...)
					sharded := verified(t, name, v)
					require.Equal(t, whole.Report.WeightsSHA256, sharded.Report.WeightsSHA256)
					require.Equal(t, whole.Report.Steps, sharded.Report.Steps)
					split := max(v.Sizes.CP, 1)*max(v.Sizes.DP, 1) > 1
					require.Equal(t, split, sharded.Report.Messages["param_gather"].Count > 0)
				}
			})
		}
	}
}
