package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/inproc/trial"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/sim"
)

const steps = 3

// toy is a model of one layer with a mixture of experts and a depth, on a layout.
func toy(t testing.TB, l trial.Layout, ep int) *sim.Job {
	m := config.Model{NumLayers: 1, HiddenSize: 8, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 4, FFNHiddenSize: 8, PaddedVocabSize: 12,
		LayernormEpsilon: 1e-5, RotaryBase: 100, InitMethodStd: 0.4, GatedLinearUnit: true, MTPNumLayers: 1, MTPLossScaling: 0.3,
		NumMoEExperts: 2, MoEFFNHiddenSize: 4, MoERouterTopK: 1, MoERouterPreSoftmax: true, MoERouterScore: "softmax",
		MoERouterBalancing: config.Words{"aux_loss"}, MoEAuxLossCoeff: config.Numbers{0.1}, PositionEmbedding: "rope", RotaryPercent: 1}
	m.MoELayerFreq.Pattern = []int{1}
	if l.PP > 1 {
		m.NumLayers, m.MoELayerFreq.Pattern = 2, []int{0, 1}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	j := &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 5, DType: "fp32"}
	for range steps {
		var step []*nn.Microbatch
		for range 2 {
			mb := &nn.Microbatch{B: 1, S: 8}
			valid := []bool{true, true, true, true, true, true, true, false}
			trial.Fill(rng, mb, trial.Shape{B: 1, S: 8, V: 12, H: 8, Pad: true}, valid, 0.8)
			step = append(step, mb)
		}
		j.Batches = append(j.Batches, step)
	}
	s := j.Scenario(l)
	s.Model.ExpertParallel = max(ep, 1)
	job, err := sim.NewJob(s, j)
	require.NoError(t, err)
	return job
}

var layouts = []struct {
	name string
	l    trial.Layout
	ep   int
}{
	{"tp2", trial.Layout{TP: 2, CP: 1, DP: 1}, 1},
	{"dp2", trial.Layout{TP: 1, CP: 1, DP: 2}, 1},
	{"cp2", trial.Layout{TP: 1, CP: 2, DP: 1}, 1},
	{"pp2", trial.Layout{TP: 1, CP: 1, DP: 1, PP: 2}, 1},
	{"ep2", trial.Layout{TP: 1, CP: 1, DP: 2}, 2},
	{"tp2-sp-cp2", trial.Layout{TP: 2, CP: 2, DP: 1, SP: true}, 1},
	{"pp2-dp2", trial.Layout{TP: 1, CP: 1, DP: 2, PP: 2}, 1},
}

// Every layout survives every schedule: the weights and moments of all ranks have the bits of a run without faults.
func TestSchedules(t *testing.T) {
	for i, c := range layouts {
		t.Run(c.name, func(t *testing.T) {
			job := toy(t, c.l, c.ep)
			var total sim.Result
			for seed := range uint64(75) {
				seed := seed*uint64(len(layouts)) + uint64(i)
				r, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)})
				require.NoError(t, err)
				total.Crashes += r.Crashes
				total.Jumps += r.Jumps
				total.Zombies += r.Zombies
				total.Corrupt += r.Corrupt
				total.Messages += r.Messages
			}
			require.Positive(t, total.Crashes)
			t.Logf("%+v", total)
		})
	}
}

// One seed is one schedule.
func TestSeedsRepeat(t *testing.T) {
	job := toy(t, trial.Layout{TP: 2, CP: 1, DP: 1}, 1)
	traces := map[string]bool{}
	for seed := range uint64(10) {
		a, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)})
		require.NoError(t, err)
		b, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed)})
		require.NoError(t, err)
		require.Equal(t, a, b)
		traces[a.Trace] = true
	}
	require.Len(t, traces, 10)
}

// Each planted bug is found within 2000 seeds.
func TestPlantedBugs(t *testing.T) {
	job := toy(t, trial.Layout{TP: 1, CP: 1, DP: 2}, 1)
	for _, bug := range recovery.Bugs() {
		t.Run(bug.String(), func(t *testing.T) {
			for seed := range uint64(2000) {
				if _, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed), Planted: bug}); err != nil {
					t.Logf("after %d seeds: %.300s", seed+1, err)
					return
				}
			}
			t.Fatalf("%s was not found", bug)
		})
	}
}

// The same for what is around the machine.
func TestPlantedBugsAround(t *testing.T) {
	job := toy(t, trial.Layout{TP: 1, CP: 1, DP: 2}, 1)
	for _, bug := range sim.Bugs() {
		t.Run(bug.String(), func(t *testing.T) {
			for seed := range uint64(2000) {
				if _, err := job.Run(sim.Options{Seed: seed, Faults: sim.Swarm(seed), Shell: bug}); err != nil {
					t.Logf("after %d seeds: %.300s", seed+1, err)
					return
				}
			}
			t.Fatalf("%s was not found", bug)
		})
	}
}

func BenchmarkSchedules(b *testing.B) {
	job := toy(b, trial.Layout{TP: 2, CP: 2, DP: 1, SP: true}, 1)
	for i := range b.N {
		if _, err := job.Run(sim.Options{Seed: uint64(i), Faults: sim.Swarm(uint64(i))}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Minutes(), "schedules/min")
}

func ExampleJob_Run() {
	var t testing.T
	job := toy(&t, trial.Layout{TP: 1, CP: 1, DP: 2}, 1)
	r, err := job.Run(sim.Options{Seed: 4, Faults: sim.Faults{Crashes: 3, CrashRate: 60, DelayMax: 100}})
	fmt.Println(r.Crashes, "ranks died, broken promises:", err)
	// Output: 3 ranks died, broken promises: <nil>
}
