package run_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/run"
)

// sequenceCases are the reference cases that context parallelism takes beyond those of TestReferenceCases.
var sequenceCases = append(slices.Clone(cases), "moe-pertoken-dp2", "moe-embeddings", "moe-packed", "moe-packed-padded")

// Every case holds on every layout of tensor, context and data parallelism that it can take.
func TestReferenceCasesUnderContextParallelism(t *testing.T) {
	for _, name := range sequenceCases {
		for _, size := range []mesh.Sizes{{TP: 1, CP: 1}, {TP: 1, CP: 2}, {TP: 1, CP: 4}, {TP: 2, CP: 1}, {TP: 2, CP: 2}, {TP: 2, CP: 4}} {
			for dp := 1; dp <= 2; dp++ {
				size.DP = dp
				for _, dtype := range []string{"fp64", "fp32"} {
					v := run.VerifyOptions{Sizes: size, SP: size.TP > 1, DType: dtype, Overrides: []string{"transport.colocated=direct"}}
					t.Run(fmt.Sprintf("%s/tp%d_cp%d_dp%d/%s", name, size.TP, size.CP, dp, dtype), func(t *testing.T) { verified(t, name, v) })
				}
			}
		}
	}
}

// The ways of attention agree, and NATS gives the bits of memory.
func TestContextParallelExchanges(t *testing.T) {
	for _, name := range []string{"dense-mtp", "moe-mtp", "moe-packed-padded", "moe-embeddings"} {
		for _, way := range []string{"p2p", "all_gather", "a2a"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				v := run.VerifyOptions{Sizes: mesh.Sizes{CP: 2}, Overrides: []string{"model.cp_comm_type=" + way}}
				nats := verified(t, name, v)
				v.Overrides = append(v.Overrides, "transport.colocated=direct")
				require.Equal(t, nats.Report.WeightsSHA256, verified(t, name, v).Report.WeightsSHA256)
			})
		}
	}
}

// A long curve drifts if anything is slightly wrong.
func TestTextCurve(t *testing.T) {
	if testing.Short() {
		t.Skip("forty steps on several layouts")
	}
	for _, v := range []run.VerifyOptions{
		{},
		{Sizes: mesh.Sizes{TP: 2}},
		{Sizes: mesh.Sizes{DP: 2}},
		{Sizes: mesh.Sizes{TP: 2, DP: 2}, SP: true},
		{Sizes: mesh.Sizes{TP: 2, CP: 2}, SP: true},
		{Sizes: mesh.Sizes{CP: 4}, DType: "fp32"},
		{Sizes: mesh.Sizes{TP: 2}, SP: true, DType: "fp32"},
	} {
		t.Run(fmt.Sprintf("tp%d_cp%d_dp%d_%s", v.Sizes.TP, v.Sizes.CP, v.Sizes.DP, v.DType), func(t *testing.T) { verified(t, "text-curve", v) })
	}
}
