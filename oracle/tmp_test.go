package oracle

import (
	"encoding/json"
	"fmt"
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

func TestTmp(t *testing.T) {
	for _, dt := range []string{"fp64", "fp32"} {
		for _, name := range []string{"dense", "dense-tied", "dense-mtp", "dense-mtp-nolossmask", "moe-mtp", "moe-mtp-nomask", "moe-mtp-allpad", "moe-pertoken", "moe-repeated", "sft-answer-only", "tied-mtp", "text-curve"} {
			t.Run(dt+"/"+name, func(t *testing.T) { one(t, name, dt) })
		}
	}
}

func one(t *testing.T, name, dt string) {
	c, err := golden.Load("../internal/golden/cases/" + name + ".json")
	require.NoError(t, err)
	s := config.Scenario{}
	j, _ := json.Marshal(c.Config)
	require.NoError(t, yaml.Unmarshal(j, &s.Model))
	j, _ = json.Marshal(c.Optimizer)
	require.NoError(t, yaml.Unmarshal(j, &s.Optimizer))
	b, sl := c.BatchShape()
	s.Model.TensorParallel, s.Model.ContextParallel, s.Model.PipelineParallel = 1, 1, 1
	s.Dist.WorldSize = 1
	s.Train = config.Train{TrainIters: len(c.Steps), MicroBatchSize: b, GlobalBatchSize: b * len(c.Steps[0].Microbatches), DType: dt}
	s.Dataset.SeqLength = sl
	rec := NewRecorder(mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: 1}, s.NumMicrobatches(), RecordsCase)
	var norms []float64
	gr, fin := NewGatherer(), NewGatherer()
	ps, err := model.Programs(model.Env{Scenario: &s, Train: src{c}, Observer: rec.For(0),
		Emit: func(e messages.Event) { norms = append(norms, e.(messages.StepDone).GradNorm) },
		Initial: func(n string) ([]float64, error) { a, err := c.Param(n); return a.Data, err },
		Shards: func(what string, step int, v []model.ShardView) {
			if what == "grads" && step == 0 {
				gr.Add(0, v)
			}
			if what == "weights" {
				fin.Add(0, v)
			}
		}})
	require.NoError(t, err)
	runLocal(t, ps)
	g, err := gr.All()
	require.NoError(t, err)
	f, err := fin.All()
	require.NoError(t, err)
	qs, err := Compare(c, Outcome{rec, g, f, norms}, dt)
	require.NoError(t, err)
	for _, q := range qs {
		if !q.OK() {
			fmt.Printf("%s %s %-20s %.3g (%g) %s\n", dt, name, q.Name, q.Error, q.Tolerance, q.Where)
			t.Fail()
		}
	}
}

func runLocal(t *testing.T, ps []func(nn.Comm)) {
	var rs []*collective.Routine
	for i, p := range ps {
		rs = append(rs, collective.NewRoutine(collective.Place{Sizes: mesh.Sizes{TP: 1, CP: 1, DP: 1, PP: 1}}, nn.Program(i), p))
	}
	box := map[string][]any{}
	pend := make([]collective.Request, len(ps))
	step := func(i int, reply any) {
		pend[i] = rs[i].Resume(reply)
		for _, s := range rs[i].Outbox() {
			k := fmt.Sprint(i, s.To, s.Name)
			box[k] = append(box[k], s.V)
		}
	}
	for i := range rs {
		step(i, nil)
	}
	for progress := true; progress; {
		progress = false
		for i := range rs {
			switch q := pend[i].(type) {
			case collective.Receive:
				k := fmt.Sprint(q.From, i, q.Name)
				if len(box[k]) > 0 {
					v := box[k][0]
					box[k] = box[k][1:]
					step(i, v)
					progress = true
				}
			case collective.Panicked:
				t.Fatalf("%v\n%s", q.Value, q.Stack)
			}
		}
	}
	for _, q := range pend {
		require.IsType(t, collective.Done{}, q)
	}
}
