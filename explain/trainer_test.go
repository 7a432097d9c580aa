package explain

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/data"
	"phalanx/internal/inproc"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
)

// watcher keeps what the depths of a training run see, by rank.
type watcher struct {
	mu   sync.Mutex
	rank int
	seen map[string]nn.Observation
}

func (w *watcher) Wants(name string, step int) bool {
	return step == 0 && (strings.HasPrefix(name, "mtp.") || strings.HasPrefix(name, "lm.")) && !strings.HasSuffix(name, "logits")
}

func (w *watcher) Observe(o nn.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Site.Microbatch == 0 {
		w.seen[o.Name] = o
	}
}

const tiny = `
name: tiny
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 4, ffn_hidden_size: 16, padded_vocab_size: 128, num_moe_experts: 4,
  moe_router_topk: 2, mtp_num_layers: 2, mtp_loss_scaling_factor: 0.3}
train: {train_iters: 1, micro_batch_size: 2, global_batch_size: 2, dtype: fp64}
optimizer: {lr: 0.01}
dataset: {kind: rows, seq_length: 16, rows: [{valid: 16}, {valid: 11}]}
`

// trained runs one step and returns what every rank saw.
func trained(t *testing.T, s *config.Scenario, d *data.Data) []*watcher {
	t.Helper()
	sizes := s.Sizes()
	ranks := make([]*watcher, sizes.World())
	require.NoError(t, inproc.Run(sizes, func(rank int) []func(nn.Comm) {
		ranks[rank] = &watcher{rank: rank, seen: map[string]nn.Observation{}}
		programs, err := model.Programs(model.Env{Scenario: s, Rank: rank, Train: d.Train, Emit: func(messages.Event) {}, Observer: ranks[rank]})
		require.NoError(t, err)
		return programs
	}, inproc.Options{}))
	return ranks
}

// TestSameAsTraining holds every number of a report against a run of the model, layout by layout and bug by bug.
func TestSameAsTraining(t *testing.T) {
	docs := packed([]int{5, 7, 1}, []int{5, 7, 4})
	for _, l := range []layout{single, {2, 1, 1, true}, {1, 2, 1, false}, {2, 2, 1, true}, {2, 2, 1, false}} {
		for _, bug := range []string{"", "mask_none", "double_roll", "shard_roll", "mask_fill_wrong", "no_position_roll", "wrong_cp_layout_roll", "padding_in_router"} {
			if bug != "" && l != (layout{2, 2, 1, true}) {
				continue
			}
			for name, mb := range map[string]*nn.Microbatch{"rows": rowsOf(16, 16, 11), "packed": docs} {
				if bug != "" && name == "rows" {
					continue
				}
				t.Run(fmt.Sprintf("%+v %s %s", l, bug, name), func(t *testing.T) { sameAsTraining(t, l, bug, mb) })
			}
		}
	}
}

func sameAsTraining(t *testing.T, l layout, bug string, mb *nn.Microbatch) {
	t.Parallel()
	file, problems := config.Parse("tiny.yaml", []byte(tiny), nil)
	require.Empty(t, problems)
	s := file.Base
	s.Model.TensorParallel, s.Model.ContextParallel, s.Model.SequenceParallel = l.tp, l.cp, l.sp
	s.Dist.WorldSize = l.tp * l.cp
	s.Train.MicroBatchSize, s.Train.GlobalBatchSize = mb.B, mb.B
	if bug != "" {
		s.Mutate = []string{bug}
	}
	r := reported(t, s, nil, mb)
	routed := make([]float64, len(r.Terms))
	for _, w := range trained(t, &s, &data.Data{Train: batches{mb}}) {
		at := s.Sizes().Coord(w.rank)
		rank := r.Ranks[at.CP]
		require.EqualValues(t, r.Terms[0].Shares[at.CP].Tokens, w.seen["lm.tokens"].Values[0])
		for k := 1; k < len(r.Terms); k++ {
			scope := fmt.Sprintf("mtp.%d.", k)
			require.EqualValues(t, r.Terms[k].Shares[at.CP].Tokens, w.seen[scope+"tokens"].Values[0])
			routed[k] = w.seen[scope+"router.valid_tokens"].Values[0]
			sameLines(t, rank, k, at.TP, w, scope)
		}
	}
	for k := 1; k < len(r.Terms); k++ {
		require.EqualValues(t, r.Terms[k].RouterValid, routed[k])
	}
}

// sameLines compares the quantities of a depth on one rank, row by row.
func sameLines(t *testing.T, rank Rank, k, tp int, w *watcher, scope string) {
	t.Helper()
	for b, row := range rank.Rows {
		line := row.Terms[k]
		for name, want := range map[string][]float64{"input_ids": nn.Float64s(line.InputIDs), "labels": nn.Float64s(line.Labels),
			"position_ids": nn.Float64s(line.PositionIDs), "loss_mask": floats(line.LossMask)} {
			got := w.seen[scope+name]
			require.Equal(t, want, got.Values[b*got.C:(b+1)*got.C], "%s%s row %d", scope, name, b)
		}
		got := w.seen[scope+"padding_mask"]
		from := 0
		if row.TPRank != nil {
			from = tp * got.C
		}
		require.Equal(t, floats(line.PaddingMask[from:from+got.C]), got.Values[b*got.C:(b+1)*got.C], "%spadding_mask row %d", scope, b)
	}
}

func floats(x []int) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
