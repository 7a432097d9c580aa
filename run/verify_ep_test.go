package run_test

import (
	"fmt"
	"slices"
	"testing"

	"phalanx/mesh"
	"phalanx/run"
)

// expertCases are the mixture-of-experts cases.
var expertCases = []string{"moe-mtp", "moe-mtp-nomask", "moe-mtp-allpad", "moe-pertoken", "moe-pertoken-dp2", "moe-repeated", "moe-embeddings",
	"moe-packed", "moe-packed-padded", "moe-deepseek", "moe-deepseek-16", "moe-repeated-deepseek", "moe-seq-aux", "moe-capacity",
	"moe-global-aux-dp2", "sft-answer-only", "tied-mtp"}

// pooled are the cases whose data-parallel size is fixed: their loss is pooled over it.
var pooled = map[string]int{"moe-global-aux-dp2": 2, "moe-repeated-deepseek": 1}

func sizes(tp, ep, cp, dp, etp int) mesh.Sizes {
	return mesh.Sizes{TP: tp, CP: cp, DP: dp, EP: ep, ETP: etp}
}

// Every mixture-of-experts case holds on every layout of experts that it can take, whatever the dispatcher.
func TestReferenceCasesUnderExpertParallelism(t *testing.T) {
	for _, name := range expertCases {
		ran := map[mesh.Sizes]bool{}
		for _, s := range []mesh.Sizes{sizes(1, 1, 1, 1, 1), sizes(1, 2, 1, 2, 1), sizes(2, 2, 1, 1, 1), sizes(2, 4, 2, 1, 1), sizes(1, 4, 2, 2, 1),
			sizes(2, 2, 1, 2, 1), sizes(2, 2, 1, 2, 2), sizes(2, 1, 1, 1, 2), sizes(2, 2, 2, 2, 2)} {
			if dp, fixed := pooled[name]; fixed && dp != s.DP {
				s.DP = dp
			}
			if s.TP*s.CP*s.DP%(s.EP*s.ETP) != 0 || ran[s] {
				continue
			}
			ran[s] = true
			for _, d := range []string{"allgather", "alltoall", "flex"} {
				v := run.VerifyOptions{Sizes: mesh.Sizes{TP: s.TP, CP: s.CP, DP: s.DP}, EP: s.EP, ETP: s.ETP, SP: s.TP > 1,
					Overrides: []string{"transport.colocated=direct", "model.moe_token_dispatcher_type=" + d}}
				t.Run(fmt.Sprintf("%s/tp%d_ep%d_cp%d_dp%d_etp%d/%s", name, s.TP, s.EP, s.CP, s.DP, s.ETP, d), func(t *testing.T) { verified(t, name, v) })
			}
		}
	}
}

// The longest case, with the dispatchers that it has not elsewhere.
func TestTextCurveUnderExpertParallelism(t *testing.T) {
	for d, s := range map[string]mesh.Sizes{"alltoall": sizes(2, 2, 1, 2, 2), "flex": sizes(2, 4, 2, 1, 1)} {
		t.Run(d, func(t *testing.T) {
			verified(t, "text-curve", run.VerifyOptions{Sizes: mesh.Sizes{TP: s.TP, CP: s.CP, DP: s.DP}, EP: s.EP, ETP: s.ETP, SP: s.TP > 1,
				Overrides: []string{"transport.colocated=direct", "model.moe_token_dispatcher_type=" + d}})
		})
	}
}

// Recomputation and the fused router change nothing; fp32 and NATS hold too.
func TestExpertVariants(t *testing.T) {
	for _, name := range []string{"moe-mtp", "moe-deepseek", "moe-repeated-deepseek", "moe-capacity"} {
		for what, override := range map[string]string{"recompute": "model.recompute_granularity=full", "fp32": "train.dtype=fp32", "nats": "transport.colocated=nats"} {
			v := run.VerifyOptions{Sizes: mesh.Sizes{TP: 2}, EP: 2, SP: true, Overrides: []string{override}}
			t.Run(name+"/"+what, func(t *testing.T) { verified(t, name, v) })
		}
	}
	for _, d := range []string{"allgather", "alltoall", "flex"} { // filled up to their capacity, experts compute the same
		for _, s := range []mesh.Sizes{sizes(1, 1, 1, 1, 1), sizes(2, 2, 2, 1, 1), sizes(2, 2, 2, 2, 2)} {
			v := run.VerifyOptions{Sizes: mesh.Sizes{TP: s.TP, CP: s.CP, DP: s.DP}, EP: s.EP, ETP: s.ETP, SP: s.TP > 1, Overrides: []string{
				"transport.colocated=direct", "model.moe_token_dispatcher_type=" + d, "model.moe_pad_expert_input_to_capacity=true"}}
			t.Run(fmt.Sprintf("moe-capacity/padded/tp%d_ep%d_cp%d_dp%d_etp%d/%s", s.TP, s.EP, s.CP, s.DP, s.ETP, d), func(t *testing.T) { verified(t, "moe-capacity", v) })
		}
	}
	for _, name := range slices.Concat(expertCases[:7], []string{"moe-global-aux-dp2", "moe-seq-aux", "moe-capacity"}) {
		t.Run(name+"/fused", func(t *testing.T) {
			verified(t, name, run.VerifyOptions{Overrides: []string{"model.moe_router_fusion=true"}})
		})
	}
}
