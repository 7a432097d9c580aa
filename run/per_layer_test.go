package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// logged is the first step of a run with losses of each layer, and what its routers showed of every microbatch.
func logged(t *testing.T, overrides ...string) map[string]float64 {
	t.Helper()
	s := routedScenario(t, append([]string{"model.moe_enable_routing_replay=false", "model.moe_per_layer_logging=true", "model.moe_z_loss_coeff=0.1",
		"model.moe_router_load_balancing_type=[aux_loss, global_aux_loss]", "train.train_iters=1"}, overrides...)...)
	raw, err := json.Marshal(executed(t, s).Steps[0])
	require.NoError(t, err)
	all, out := map[string]any{}, map[string]float64{}
	require.NoError(t, json.Unmarshal(raw, &all))
	for name, v := range all {
		if strings.Contains(name, "load_balancing") || strings.Contains(name, "z_loss") {
			out[name] = v.(float64)
		}
	}
	return out
}

// The figure of a step is the mean over the layers that have a router: two of the decoder, and one that both depths share or
// one for each. Megatron numbers depths behind the decoder. Layouts agree; the pool of the global loss is the same one.
func TestLossesOfEachLayer(t *testing.T) {
	for repeated, layers := range map[bool]int{true: 3, false: 4} {
		want := logged(t, fmt.Sprintf("model.mtp_use_repeated_layer=%v", repeated))
		require.Len(t, want, 3*(1+layers))
		for _, name := range []string{"load_balancing_loss", "global_load_balancing_loss", "z_loss"} {
			sum := 0.0
			for i := range layers {
				v, ok := want[fmt.Sprintf("moe/%s_layer_%d", name, i)]
				require.True(t, ok, name)
				require.Positive(t, v)
				sum += v
			}
			require.InDelta(t, want[name], sum/float64(layers), 1e-12, name)
		}
		for _, layout := range [][]string{{"model.context_parallel_size=2", "model.expert_model_parallel_size=2"},
			{"model.tensor_model_parallel_size=2"}, {"model.tensor_model_parallel_size=2", "model.sequence_parallel=true"}, {"model.pipeline_model_parallel_size=2"}} {
			got := logged(t, append(layout, "dist.world_size=2", fmt.Sprintf("model.mtp_use_repeated_layer=%v", repeated))...)
			require.Len(t, got, len(want))
			for name, v := range want {
				require.InDelta(t, v, got[name], 1e-9, "%v: %s", layout, name)
			}
		}
	}
}

// The figure of a layer is the mean over microbatches of what its router shows: a run is told what another observed.
func TestLossOfALayerIsItsRouters(t *testing.T) {
	s := routedScenario(t, "model.moe_enable_routing_replay=false", "model.moe_per_layer_logging=true", "model.mtp_use_repeated_layer=false", "train.train_iters=1")
	for slot, router := range []string{"layer.0", "layer.1", "mtp.1", "mtp.2"} {
		for mb := range 2 {
			s.Expect = append(s.Expect, config.Expect{Quantity: router + ".router.aux_loss", Microbatch: &mb, Finite: true})
		}
		s.Expect = append(s.Expect, config.Expect{Quantity: fmt.Sprintf("moe/load_balancing_loss_layer_%d", slot), Finite: true})
	}
	value := func(text string) (v float64) {
		_, err := fmt.Sscan(text, &v)
		require.NoError(t, err, text)
		return v
	}
	got := executed(t, s).Expect
	for i := 0; i < len(got); i += 3 {
		require.InDelta(t, (value(got[i].Got)+value(got[i+1].Got))/2, value(got[i+2].Got), 1e-9, got[i+2].Text)
		require.NotEqual(t, got[i].Got, got[i+1].Got)
	}
}
