package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor/kernel"
)

func smallMoE() MoEOptions {
	return MoEOptions{Experts: 6, Width: 5, TopK: 2, Tokens: 16, Hidden: 8, EP: 3, Reps: GemmRepsMin, Now: stepping(5 * time.Millisecond)}
}

// On this clock everything takes a tick: the dense layer, the layer of experts and each of its parts.
func TestMoEFigures(t *testing.T) {
	threads := kernel.Threads()
	r, err := MoE(context.Background(), smallMoE())
	require.NoError(t, err)
	require.Equal(t, threads, kernel.Threads(), "threads are put back")
	require.Equal(t, []float64{5, 5, 1}, []float64{r.DenseMs, r.MoEMs, r.Ratio})
	// Three matrices of 5·8, forward once and backward twice, 16·2 rows, two operations each: 3·3·2·32·40.
	flops := 23040.0
	require.Equal(t, flops, smallMoE().flops())
	require.InDelta(t, flops/5e-3/1e9/r.PeakGFlops, r.MoEShare, 1e-12)
	require.Equal(t, r.MoEShare, r.DenseShare)
	require.Len(t, r.Parts, 4)
	for i, name := range []string{"products", "router", "activation", "rows moved, added, scaled"} {
		require.Equal(t, name, r.Parts[i].Name)
	}
	require.Equal(t, []float64{5, 5, 5, -10}, []float64{r.Parts[0].Ms, r.Parts[1].Ms, r.Parts[2].Ms, r.Parts[3].Ms})
	require.Equal(t, r.MoEShare, r.Parts[0].OfPeak)
	require.InDelta(t, 3*2*16*6*8/5e-3/1e9/r.PeakGFlops, r.Parts[1].OfPeak, 1e-12)
	require.GreaterOrEqual(t, r.Busiest, 1.)
	require.LessOrEqual(t, r.Busiest, 6./2, "no expert gets a token twice")
}

// The dense layer has as many hidden features as a token's experts together, so that both do the same products.
func TestMoELayersDoTheSameProducts(t *testing.T) {
	m := newMoEMeter(smallMoE())
	d := m.dense.layer.(*nn.MLP[float32])
	require.Equal(t, []int{20, 8, 8, 10}, []int{d.FC1.Out, d.FC1.In, d.FC2.Out, d.FC2.In})
	rows := 0
	for _, n := range rowsOf(m.experts.layer.(*moe.Layer[float32]), m.experts) {
		rows += n
	}
	require.Equal(t, 32, rows)
	require.Equal(t, 3*kernel.GemmFlops(rows, 5, 8), kernel.GemmFlops(16, d.FC1.Out, d.FC1.In)+kernel.GemmFlops(16, d.FC2.Out, d.FC2.In))
	m.experts.run()
	m.dense.run()
	require.NotZero(t, d.FC1.G[0])
}

// The products that are timed alone are those of the layer: same rows for each expert, so same weight gradients if the
// operands are the same.
func TestMoEProducts(t *testing.T) {
	m := newMoEMeter(smallMoE())
	l := m.experts.layer.(*moe.Layer[float32])
	p := newProducts(l, m.experts)
	p.run()
	at := 0
	for e, n := range p.counts {
		want := make([]float32, len(l.Experts[e].FC2.G))
		for i := range n {
			for o := range 8 {
				for f := range 5 {
					want[o*5+f] += p.dy.Row(at + i)[o] * p.a.Row(at + i)[f]
				}
			}
		}
		require.InDeltaSlice(t, want, l.Experts[e].FC2.G, 1e-4)
		at += n
	}
}

// What a dispatcher's rows need, of a routing by hand: three ranks of two experts, rank 0's rows go to experts
// (0,1), (2,3), (2,4), (5,0).
func TestItemsOfARouting(t *testing.T) {
	o := MoEOptions{Experts: 6, TopK: 2, Tokens: 4, EP: 3}
	route := moe.Routing[float32]{K: 2, Expert: []int32{0, 1, 2, 3, 2, 4, 5, 0}}
	for _, c := range []struct {
		d              moe.Dispatcher
		dst            int
		items, entries int
	}{{moe.AllToAll, 1, 3, 3}, {moe.AllToAll, 2, 2, 2}, {moe.Flex, 1, 2, 3}, {moe.Flex, 2, 2, 2}, {moe.AllGather, 1, 4, 3}, {moe.AllGather, 0, 4, 3}} {
		items, entries := itemsOf(o, c.d, route, c.dst)
		require.Equal(t, []int{c.items, c.entries}, []int{items, entries}, "%v to %d", c.d, c.dst)
	}
}

// What is sent is rows, probabilities and the plan: two numbers a member to all, then one an item and one an entry.
func TestTrafficIsRowsProbabilitiesAndThePlan(t *testing.T) {
	o := smallMoE()
	rows, least, err := traffic(o)
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, []string{"alltoall", "allgather", "flex"}, []string{rows[0].Dispatcher, rows[1].Dispatcher, rows[2].Dispatcher})
	for i, d := range dispatchers {
		plan := 0.0
		for rank := range o.EP {
			r := rankLayer(o, rank, d.kind, nn.Solo{})
			route, _ := r.layer.(*moe.Layer[float32]).Router.Forward(r.c, r.x)
			for dst := range o.EP {
				if dst != rank {
					items, entries := itemsOf(o, d.kind, route, dst)
					plan += 4 * float64(2*o.EP+items+entries) / float64(o.EP)
				}
			}
		}
		require.InDelta(t, rows[i].Plan+plan, rows[i].Bytes, 1e-9, d.name)
		require.Equal(t, 6.*2, rows[i].Messages, "sizes, plan, rows there and back twice, to two others")
		require.GreaterOrEqual(t, rows[i].BytesMax, rows[i].Bytes)
		require.InDelta(t, rows[i].Bytes/least, rows[i].OverLeast, 1e-12)
	}
	require.Equal(t, rows[2].Plan, least)
	require.LessOrEqual(t, rows[2].Bytes, rows[0].Bytes)
	// Every row to both others, there and back, twice, and with it 8 bytes an entry.
	require.Greater(t, rows[1].Plan, 4.*4*2*16*8)

	o.EP = 1
	rows, least, err = traffic(o)
	require.NoError(t, err)
	require.Zero(t, least)
	require.Zero(t, rows[0].Bytes+rows[1].Bytes+rows[2].Bytes)
}

func TestMoERefuses(t *testing.T) {
	for want, change := range map[string]func(*MoEOptions){
		"found --experts 1025, expected 1 to 1024":              func(o *MoEOptions) { o.Experts = 1025 },
		"found --width 0, expected 1 to 16384":                  func(o *MoEOptions) { o.Width = 0 },
		"found --topk 7, expected 1 to 6":                       func(o *MoEOptions) { o.TopK = 7 },
		"found --tokens 16385, expected 1 to 16384":             func(o *MoEOptions) { o.Tokens = 16385 },
		"found --hidden -1, expected 1 to 16384":                func(o *MoEOptions) { o.Hidden = -1 },
		"found --ep 7, expected 1 to 6":                         func(o *MoEOptions) { o.EP = 7 },
		"found --ep 4, expected a divisor of --experts 6":       func(o *MoEOptions) { o.EP = 4 },
		"found --reps 6, expected 7 or more: a median of fewer": func(o *MoEOptions) { o.Reps = 6 },
	} {
		o := smallMoE()
		change(&o)
		_, err := MoE(context.Background(), o)
		require.ErrorContains(t, err, want)
	}
}

func TestProcessorTimeGoesOnlyForward(t *testing.T) {
	now := ProcessorTime()
	before := now()
	kernel.FMAPeak(kernel.Portable, 1<<10)
	require.False(t, now().Before(before))
}

func TestMoEStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := MoE(ctx, smallMoE())
	require.ErrorIs(t, err, context.Canceled)
}

func TestMoEPrintsAndHasAShape(t *testing.T) {
	r := &MoEResult{Experts: 64, Width: 256, TopK: 8, Tokens: 2048, Hidden: 512, Reps: 7, Threads: 1, Kernel: "avx2", PeakGFlops: 92, DenseMs: 500, MoEMs: 600,
		Ratio: 1.2, Busiest: 1.5, DenseShare: 0.8, MoEShare: 0.7, EP: 4, LeastBytes: 1 << 20,
		Parts:   []MoEPart{{Name: "products", Ms: 480, OfLayer: 0.8, OfPeak: 0.85}, {Name: "rows moved, added, scaled", Ms: 120, OfLayer: 0.2}},
		Traffic: []Traffic{{Dispatcher: "flex", Bytes: 1.5 * (1 << 20), BytesMax: 2 << 20, Plan: 1 << 20, OverPlan: 1.5, OverLeast: 1.5, Messages: 18}}}
	var out bytes.Buffer
	r.Print(&out)
	require.Equal(t, `64 experts of 256 hidden features, 8 a token, 2048 tokens of 512 features; fp32, 1 thread, kernel avx2; processor time, medians of 7 in turns
FMA peak 92.0 GFLOP/s; fullest expert 1.50 of the mean
         forward and backward     ms  of the layer  of the peak
          dense layer of 2048  500.0                     80.0 %
             layer of experts  600.0       100.0 %       70.0 %
                     products  480.0        80.0 %       85.0 %
    rows moved, added, scaled  120.0        20.0 %             
experts over dense: 1.200 (products are the same; above 1 is what experts cost besides)
over 4 ranks of 2048 tokens each, forward and backward, a rank sends in the mean
  dispatcher    MiB   most  rows and probabilities  over them  over the least  messages
        flex  1.500  2.000                   1.000      1.500           1.500        18
`, out.String())
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"experts":64,"width":256,"topk":8,"tokens":2048,"hidden":512,"reps":7,"threads":1,"kernel":"avx2","peak_gflops":92,
		"dense_ms":500,"dense_of_peak":0.8,"moe_ms":600,"moe_of_peak":0.7,"ratio":1.2,"busiest":1.5,"ep":4,"least_bytes":1048576,
		"parts":[{"name":"products","ms":480,"of_layer":0.8,"of_peak":0.85},{"name":"rows moved, added, scaled","ms":120,"of_layer":0.2,"of_peak":0}],
		"traffic":[{"dispatcher":"flex","bytes":1572864,"bytes_max":2097152,"plan":1048576,"over_plan":1.5,"over_least":1.5,"messages":18}]}`, string(text))
}
