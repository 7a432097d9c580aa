package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/messages"
	"phalanx/nn"
)

const countedFile = `
model: {num_layers: 4, hidden_size: 16, num_attention_heads: 4, num_query_groups: 4, ffn_hidden_size: 24, moe_ffn_hidden_size: 8}
train: {train_iters: 1, micro_batch_size: 2, global_batch_size: 16, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 32}
`

// tokens are batches of tokens that differ from row to row.
type tokens struct{ b, s, vocab int }

func (t tokens) Microbatch(step, j int) *nn.Microbatch {
	n := t.b * t.s
	m := &nn.Microbatch{B: t.b, S: t.s, IDs: make([]int32, n), Labels: make([]int32, n), Positions: make([]int32, n), Loss: &nn.LossMask{B: t.b, S: t.s, AllOnes: true}}
	for i := range n {
		m.IDs[i] = int32((i*i*7 + 31*j + i/3) % t.vocab)
		m.Labels[i] = int32((i*i*7 + 31*j + i/3 + 1) % t.vocab)
		m.Positions[i] = int32(i % t.s)
	}
	return m
}

// counted trains one step and returns for each rank what was counted before, and what it then held.
func counted(t *testing.T, overrides ...string) (want, got []Memory) {
	t.Helper()
	f, problems := config.Parse("scenario.yaml", []byte(countedFile), overrides)
	require.Empty(t, problems)
	s := f.Runs()[0]
	ranks := make([]*Rank[float64], s.Sizes().World())
	for i := range ranks {
		m, err := MemoryOf(&s, i)
		require.NoError(t, err)
		want = append(want, m)
		ranks[i], err = NewRank[float64](Env{Scenario: &s, Rank: i, Train: tokens{s.Train.MicroBatchSize, s.Dataset.SeqLength, s.Model.PaddedVocabSize},
			Emit: func(messages.Event) {}})
		require.NoError(t, err)
	}
	require.NoError(t, inproc.Run(s.Sizes(), func(rank int) []func(nn.Comm) { return ranks[rank].programs() }, inproc.Options{Seed: 3, Overtake: true}))
	for _, r := range ranks {
		m := Memory{}
		m.Weights, m.Grads = r.params.Elements()
		for _, p := range r.adam.State() {
			m.Moments += len(p.ExpAvg) + len(p.ExpAvgSq)
		}
		for _, a := range append(r.depthArenas, r.arenas) {
			for _, x := range a.all {
				m.Activations += x.PeakElements()
			}
		}
		got = append(got, m)
	}
	return want, got
}

// Dense models are counted to the element: parameters, moments, and what arenas hand out, on any layout.
func TestMemoryOfDenseModels(t *testing.T) {
	for _, set := range [][]string{
		nil,
		{"dataset.seq_length=192"},
		{"dataset.seq_length=29", "model.context_parallel_size=2", "model.tensor_model_parallel_size=2", "model.sequence_parallel=true"},
		{"model.qk_layernorm=true", "model.hidden_dropout=0.1", "model.attention_dropout=0.1", "model.untie_embeddings_and_output_weights=true"},
		{"model.qk_layernorm=true", "model.normalization=LayerNorm", "model.layernorm_zero_centered_gamma=true", "model.mtp_num_layers=1"},
		{"model.tensor_model_parallel_size=2", "model.sequence_parallel=true", "model.position_embedding_type=learned_absolute", "model.mtp_num_layers=1",
			"model.add_bias_linear=true", "model.pipeline_model_parallel_size=2"},
		{"model.tensor_model_parallel_size=2", "dist.world_size=4"},
		{"model.tensor_model_parallel_size=2", "model.sequence_parallel=true", "model.mtp_num_layers=2", "model.hidden_dropout=0.1"},
		{"model.context_parallel_size=2", "model.mtp_num_layers=1", "model.num_query_groups=2"},
		{"model.context_parallel_size=2", "model.cp_comm_type=all_gather", "model.activation_func=squared_relu"},
		{"model.context_parallel_size=2", "model.cp_comm_type=a2a", "model.tensor_model_parallel_size=2", "model.sequence_parallel=true"},
		{"model.recompute_granularity=full", "model.mtp_num_layers=1"},
		{"model.mtp_num_layers=2", "model.mtp_use_repeated_layer=true", "model.mtp_detach_heads=true"},
		{"model.pipeline_model_parallel_size=2", "model.mtp_num_layers=2"},
		{"model.pipeline_model_parallel_size=4", "model.mtp_num_layers=2", "model.pipeline_model_parallel_layout=Ett|tt|m|mL", "model.tensor_model_parallel_size=2", "model.sequence_parallel=true"},
		{"model.pipeline_model_parallel_size=2", "model.mtp_num_layers=2", "model.pipeline_model_parallel_layout=Et|ttt||mmL"},
		{"model.pipeline_model_parallel_size=2", "model.virtual_pipeline_model_parallel_size=2", "model.microbatch_group_size_per_vp_stage=4"},
	} {
		t.Run(fmt.Sprint(set), func(t *testing.T) {
			want, got := counted(t, set...)
			require.Equal(t, got, want)
			require.Greater(t, want[0].Activations, want[0].Weights/10)
		})
	}
}

// Experts get as many tokens as the router gives them: what is counted is near, parameters are exact.
func TestMemoryOfExperts(t *testing.T) {
	moe := []string{"model.num_moe_experts=4", "model.moe_router_topk=2", "dataset.seq_length=128"}
	for _, set := range [][]string{
		nil,
		{"model.moe_layer_freq=2", "model.moe_shared_expert_intermediate_size=12", "model.moe_shared_expert_gate=true"},
		{"model.moe_input_jitter_eps=0.01", "model.mtp_num_layers=1", "model.recompute_granularity=full"},
		{"model.expert_model_parallel_size=2", "dist.world_size=2"},
		{"model.expert_model_parallel_size=2", "dist.world_size=2", "model.moe_token_dispatcher_type=alltoall"},
		{"model.expert_model_parallel_size=4", "dist.world_size=4", "model.moe_token_dispatcher_type=flex"},
		{"model.expert_model_parallel_size=2", "model.expert_tensor_parallel_size=2", "model.tensor_model_parallel_size=2", "model.sequence_parallel=true",
			"model.context_parallel_size=2", "model.pipeline_model_parallel_size=2", "optimizer.use_distributed_optimizer=true"},
		{"model.moe_expert_capacity_factor=1.5", "model.moe_pad_expert_input_to_capacity=true"},
		{"model.moe_expert_capacity_factor=0.5"},
	} {
		t.Run(fmt.Sprint(set), func(t *testing.T) {
			want, got := counted(t, append(set, moe...)...)
			for i := range want {
				require.Equal(t, []int{got[i].Weights, got[i].Grads}, []int{want[i].Weights, want[i].Grads})
				require.InEpsilon(t, got[i].Moments, want[i].Moments, 0.05)
				require.InEpsilon(t, got[i].Activations, want[i].Activations, 0.05)
			}
		})
	}
}

// Moments fall as 1/DP, weights and gradients do not.
func TestMemoryOfShardedMoments(t *testing.T) {
	one, _ := counted(t)
	want, got := counted(t, "dist.world_size=4", "optimizer.use_distributed_optimizer=true")
	for i := range want {
		require.Equal(t, one[0].Weights, want[i].Weights)
		require.InEpsilon(t, float64(one[0].Moments)/4, want[i].Moments, 1e-3)
		require.InEpsilon(t, got[i].Moments, want[i].Moments, 0.05)
	}
}
