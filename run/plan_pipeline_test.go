package run

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

const pipelineFile = `
name: piped
model: {num_layers: 4, hidden_size: 16, num_attention_heads: 4, ffn_hidden_size: 16, mtp_num_layers: 2, tensor_model_parallel_size: 2,
  sequence_parallel: true, pipeline_model_parallel_size: 4, pipeline_model_parallel_layout: Et|tt|t|m|mL}
train: {train_iters: 1, micro_batch_size: 1, global_batch_size: 4, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: rows, seq_length: 12, rows: [{valid: 12}, {valid: 7}]}
transport: {kind: direct}
`

func pipelined(t *testing.T, overrides ...string) config.Scenario {
	t.Helper()
	f, problems := config.Parse("scenario.yaml", []byte(pipelineFile), overrides)
	require.Empty(t, problems)
	return f.Runs()[0]
}

// What the plan says that goes from chunk to chunk is what a run counts.
func TestPlannedBytesAreSent(t *testing.T) {
	for _, layout := range []string{"Et|tt|t|mmL", "Ett|tt|mm|L", "Et|ttt|m|mL", "Et|t|t|t|||mm|L"} {
		for _, more := range [][]string{nil, {"model.context_parallel_size=2", "dist.world_size=16"}, {"dataset.embeddings=precomputed", "dataset.padding_mask=absent"}} {
			s := pipelined(t, append(more, "model.pipeline_model_parallel_layout="+layout)...)
			report, err := Execute(context.Background(), s, Options{})
			require.NoError(t, err)
			l, err := s.Model.PipelineLayout()
			require.NoError(t, err)
			want, sizes := [2]int64{}, s.Sizes()
			times := int64(sizes.TP * sizes.CP * sizes.DP * s.NumMicrobatches())
			for j := range len(l.Chunks) - 1 {
				forward, backward := hopBytes(&s, l, j)
				want[0], want[1] = want[0]+times*int64(forward), want[1]+times*int64(backward)
			}
			m := report.Messages
			got := [2]int64{int64(m["activation"].Bytes + m["depth_labels"].Bytes + m["depth_set"].Bytes), int64(m["activation_grad"].Bytes)}
			require.Equal(t, want, got, "%s %v", layout, more)
		}
	}
}

// By hand: 12 rows of 16 features in fp64 over two tensor-parallel ranks are 768 bytes.
func TestPlanOfAPipeline(t *testing.T) {
	p, err := MakePlan(pipelined(t, "model.pipeline_model_parallel_layout=Et|ttt|m|mL"))
	require.NoError(t, err)
	text := strings.Join(p.Lines, "\n") + "\n"
	for _, want := range []string{
		"ranks      8 = tp 2 × cp 1 × dp 1 × pp 4, sequence parallel\n",
		"group      pp [0 2 4 6]\n",
		"rank 5     tp 1 cp 0 dp 0: stage 2, heads 1/2, microbatches 0–3\n",
		"stage 1    ttt (layers 1–3)\n",
		"stage 2    m (depth 1)\n",
		"stage 3    mL (depth 2, losses)\n",
		"schedule   rank 3: F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0\n",
		"bubble     75 % of the work of a stage",
		"messages   chunk 0 → 1 (stage 0 → 1): 768 B a microbatch and rank, at most 4 waiting; back 768 B, at most 4 waiting\n",
		"messages   chunk 2 → 3 (stage 2 → 3): 1.693 KiB a microbatch and rank, at most 2 waiting; back 1.5 KiB, at most 2 waiting\n",
		"note       model.pipeline_model_parallel_layout Et|ttt|m|mL: MTP depths are in several chunks; Megatron has all MTP depths in one chunk\n",
		"memory     rank 0: ", "memory     rank 6: ", // the first of the first stage and of the last
	} {
		require.Contains(t, text, want)
	}
	p, err = MakePlan(pipelined(t, "model.pipeline_model_parallel_layout=Et|t|t|t|||mm|L", "train.global_batch_size=64"))
	require.NoError(t, err)
	text = strings.Join(p.Lines, "\n")
	require.Contains(t, text, "stage 1    t (layer 1) | nothing, rows pass through")
	require.Regexp(t, `schedule   rank 0: (\S+ ){48}…\n`, text)
}

// A result names the layout that ran.
func TestPlannedLayoutIsReported(t *testing.T) {
	s := pipelined(t, "model.pipeline_model_parallel_layout=Et|t|t|t|||mm|L", "model.num_moe_experts=4", "model.expert_model_parallel_size=2")
	require.Equal(t, map[string]int{"tp": 2, "cp": 1, "pp": 4, "dp": 1, "ep": 2, "etp": 1, "vpp": 2, "sp": 1}, layout(&s))
}
