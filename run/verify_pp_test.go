package run_test

import (
	"fmt"
	"slices"
	"strings"
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

// Chunks of one layer, depths on a stage of their own or on one each, and every axis at once, up to 16 ranks: each case
// has the bits that one stage gives on the same other axes.
func TestReferenceCasesOnPlacements(t *testing.T) {
	for _, name := range pipelineCases {
		for _, p := range []struct {
			stages string
			sizes  mesh.Sizes
			ep     int
		}{
			{"E|t|t|mmL", mesh.Sizes{PP: 2}, 1},
			{"Ett|mm|L", mesh.Sizes{PP: 3}, 1},
			{"Et|t|mm|L", mesh.Sizes{PP: 4, TP: 2, CP: 2}, 2},
			{"Et|t|m|mL", mesh.Sizes{PP: 4, TP: 2, DP: 2}, 4},
			{"Ett|mmL", mesh.Sizes{PP: 2, TP: 2, CP: 2, DP: 2}, 2},
		} {
			if dp, fixed := pooled[name]; fixed {
				p.sizes.DP = dp
			}
			dense, noDepths := !slices.Contains(expertCases, name) || name == "tied-mtp", name == "dense" || name == "dense-tied"
			if strings.Contains(p.stages, "|m|") && strings.HasPrefix(name, "moe-repeated") || noDepths && strings.Contains(p.stages, "|mm|") {
				continue
			}
			if noDepths {
				p.stages = strings.ReplaceAll(p.stages, "m", "")
			}
			if dense {
				p.ep = 1
			}
			t.Run(fmt.Sprintf("%s/%s_tp%d_cp%d_dp%d", name, p.stages, max(p.sizes.TP, 1), max(p.sizes.CP, 1), max(p.sizes.DP, 1)), func(t *testing.T) {
				v := run.VerifyOptions{Sizes: p.sizes, EP: p.ep, SP: p.sizes.TP > 1, Overrides: []string{"transport.colocated=direct"}}
				v.Sizes.PP = 1
				one := verified(t, name, v)
				v.Sizes.PP, v.Overrides = p.sizes.PP, append(v.Overrides, "model.pipeline_model_parallel_layout="+p.stages)
				require.Equal(t, one.Report.WeightsSHA256, verified(t, name, v).Report.WeightsSHA256)
			})
		}
	}
}
