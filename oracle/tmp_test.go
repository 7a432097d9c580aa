package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"phalanx/collective"
	"phalanx/config"
	"phalanx/internal/golden"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
)

type src struct{ c *golden.Case }

func (s src) Microbatch(step, j int) *nn.Microbatch {
	mb, err := s.c.Microbatch(step, j)
	if err != nil {
		panic(err)
	}
	return mb
}

type lay struct {
	tp, cp, dp int
	sp         bool
	comm       string
	ep, etp    int
	disp       string
}

func TestTmp(t *testing.T) {
	for _, l := range []lay{{tp: 1, cp: 1, dp: 1}, {tp: 2, cp: 1, dp: 1, sp: true}, {tp: 1, cp: 1, dp: 2, ep: 2}, {tp: 1, cp: 1, dp: 2, ep: 2, disp: "allgather"}, {tp: 1, cp: 1, dp: 2, ep: 2, disp: "flex"}, {tp: 2, cp: 1, dp: 1, sp: true, ep: 2}, {tp: 2, cp: 2, dp: 1, sp: true, ep: 4}, {tp: 1, cp: 2, dp: 2, ep: 4}, {tp: 2, cp: 1, dp: 2, sp: true, ep: 2}, {tp: 2, cp: 1, dp: 2, sp: true, ep: 2, etp: 2}, {tp: 2, cp: 1, dp: 1, sp: true, ep: 1, etp: 2}} {
		for _, dt := range []string{"fp64", "fp32"} {
			for _, name := range []string{"dense-mtp", "moe-mtp", "moe-mtp-nomask", "moe-mtp-allpad", "moe-pertoken", "moe-repeated", "sft-answer-only", "tied-mtp", "moe-packed", "moe-packed-padded", "moe-embeddings", "moe-deepseek", "moe-deepseek-16", "moe-repeated-deepseek", "moe-seq-aux", "moe-capacity", "moe-global-aux-dp2", "moe-pertoken-dp2"} {
				t.Run(fmt.Sprintf("%v/%s/%s", l, dt, name), func(t *testing.T) { one(t, name, dt, l) })
			}
		}
	}
}

func one(t *testing.T, name, dt string, l lay) {
	c, err := golden.Load("../internal/golden/cases/" + name + ".json")
	require.NoError(t, err)
	s := config.Scenario{}
	cfg := map[string]any{}
	for k, v := range c.Config {
		cfg[k] = v
	}
	if v, ok := cfg["moe_router_load_balancing_type"].(string); ok {
		cfg["moe_router_load_balancing_type"] = []string{v}
		cfg["moe_aux_loss_coeff"] = []any{cfg["moe_aux_loss_coeff"]}
	}
	j, _ := json.Marshal(cfg)
	require.NoError(t, yaml.Unmarshal(j, &s.Model))
	j, _ = json.Marshal(c.Optimizer)
	require.NoError(t, yaml.Unmarshal(j, &s.Optimizer))
	b, sl := c.BatchShape()
	s.Model.TensorParallel, s.Model.ContextParallel, s.Model.PipelineParallel = l.tp, l.cp, 1
	s.Model.SequenceParallel, s.Model.CPCommType = l.sp, l.comm
	s.Model.RecomputeGranularity = os.Getenv("RECOMP")
	s.Model.MoERouterFusion = os.Getenv("FUSED") != "" && !s.Model.MoERouterEnableExpertBias
	s.Model.ExpertParallel, s.Model.ExpertTensorParallel, s.Model.MoETokenDispatcher = l.ep, l.etp, l.disp
	if strings.Contains(name, "global-aux") && l.dp != 2 || name == "moe-repeated-deepseek" && l.dp != 1 || name == "dense-mtp" && l.ep > 1 {
		t.Skip()
	}
	s.Dist.WorldSize = l.tp * l.cp * l.dp
	s.Train = config.Train{TrainIters: len(c.Steps), MicroBatchSize: b, GlobalBatchSize: b * len(c.Steps[0].Microbatches), DType: dt}
	s.Dataset.SeqLength = sl
	rec := NewRecorder(s.Sizes(), s.NumMicrobatches(), RecordsCase)
	var norms []float64
	gr, fin := NewGatherer(), NewGatherer()
	var all [][]func(nn.Comm)
	for r := range s.Sizes().World() {
		ps, err := model.Programs(model.Env{Scenario: &s, Rank: r, Train: src{c}, Observer: rec.For(r),
			Emit: func(e messages.Event) {
				if r == 0 {
					norms = append(norms, e.(messages.StepDone).GradNorm)
				}
			},
			Initial: func(n string) ([]float64, error) { a, err := c.Param(n); return a.Data, err },
			Shards: func(what string, step int, v []model.ShardView) {
				if what == "grads" && step == 0 {
					gr.Add(r, v)
				}
				if what == "weights" {
					fin.Add(r, v)
				}
			}})
		require.NoError(t, err)
		all = append(all, ps)
	}
	runLocal(t, s.Sizes(), all)
	g, err := gr.All()
	require.NoError(t, err)
	f, err := fin.All()
	require.NoError(t, err)
	qs, err := Compare(c, Outcome{rec, g, f, norms}, dt)
	require.NoError(t, err)
	for _, q := range qs {
		if !q.OK() {
			fmt.Printf("%v %s %s %-20s %.3g (%g) %s\n", l, dt, name, q.Name, q.Error, q.Tolerance, q.Where)
			t.Fail()
		}
	}
}

type prog struct{ rank, p int }

func runLocal(t *testing.T, sizes mesh.Sizes, all [][]func(nn.Comm)) {
	rs := map[prog]*collective.Routine{}
	groups := map[string]*collective.Group{}
	var keys []prog
	for r, ps := range all {
		for i, p := range ps {
			rs[prog{r, i}] = collective.NewRoutine(collective.Place{Rank: r, Sizes: sizes}, nn.Program(i), p)
			keys = append(keys, prog{r, i})
		}
		for _, a := range mesh.Axes() {
			groups[fmt.Sprint(r, a)] = collective.NewGroup(collective.Place{Rank: r, Sizes: sizes}, a)
		}
	}
	box := map[string][]any{}
	pend := map[prog]collective.Request{}
	var net []collective.Outgoing
	var ready []prog
	var step func(k prog, reply any)
	step = func(k prog, reply any) {
		q := rs[k].Resume(reply)
		pend[k] = q
		for _, s := range rs[k].Outbox() {
			b := fmt.Sprint(k.rank, k.p, s.To, s.Name)
			box[b] = append(box[b], s.V)
		}
		switch q := q.(type) {
		case collective.Collective:
			out, done, err := groups[fmt.Sprint(k.rank, q.Op.Axis)].Begin(nn.Program(k.p), q.Op)
			require.NoError(t, err)
			net = append(net, out...)
			if done != nil {
				ready = append(ready, k)
			}
		case collective.Panicked:
			t.Fatalf("%v\n%s", q.Value, q.Stack)
		}
	}
	for _, k := range keys {
		step(k, nil)
	}
	for progress := true; progress; {
		progress = false
		for len(net) > 0 || len(ready) > 0 {
			progress = true
			for len(ready) > 0 {
				k := ready[0]
				ready = ready[1:]
				step(k, nil)
			}
			if len(net) > 0 {
				m := net[0]
				net = net[1:]
				out, done, err := groups[fmt.Sprint(m.Header.Dst, mesh.Axis(m.Header.Chan>>8))].Deliver(m.Header, m.Payload)
				require.NoError(t, err)
				net = append(net, out...)
				for _, d := range done {
					ready = append(ready, prog{int(m.Header.Dst), int(d.Program)})
				}
			}
		}
		for _, k := range keys {
			if q, ok := pend[k].(collective.Receive); ok {
				b := fmt.Sprint(k.rank, q.From, k.p, q.Name)
				if len(box[b]) > 0 {
					v := box[b][0]
					box[b] = box[b][1:]
					step(k, v)
					progress = true
				}
			}
		}
	}
	for k, q := range pend {
		require.IsType(t, collective.Done{}, q, "%v: %v", k, q)
	}
}
