package moe_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc"
	"phalanx/mesh"
	"phalanx/moe"
	"phalanx/nn"
	"phalanx/tensor"
)

// Worked examples. Their numbers are derived beside the test.

// biased is a bias that has counted nothing yet.
func biased(values ...float64) *moe.Bias[float64] {
	b := moe.NewBias[float64]("bias", len(values), 0.001)
	b.Use(0)
	copy(b.Values, values)
	return b
}

// §5.2: sigmoid of (2, 0, −1, 1) is (.8808, .5, .2689, .7311); with the bias expert 1 beats expert 3, and the weights
// are those of the scores without it.
func TestBiasChoosesAndDoesNotWeigh(t *testing.T) {
	got := onLogits(4, moe.Router[float64]{K: 2, Score: moe.Sigmoid, Bias: biased(0, 0.3, 0, 0)}).run(one(nil, []float64{2, 0, -1, 1}))
	require.Equal(t, []int32{0, 1}, got.route.Expert)
	require.InDeltaSlice(t, []float64{0.6379, 0.3621}, got.route.Prob, 5e-5)
	require.Equal(t, []float64{1, 1, 0, 0}, got.get("router.routing_map"))
	// Without it: experts 0 and 3, .8808/(.8808 + .7311).
	got = onLogits(4, moe.Router[float64]{K: 2, Score: moe.Sigmoid}).run(one(nil, []float64{2, 0, -1, 1}))
	require.Equal(t, []int32{0, 3}, got.route.Expert)
	require.InDeltaSlice(t, []float64{0.5464, 0.4536}, got.route.Prob, 5e-5)
}

// §5.2: scores .9 .1 | .5 .6 | .3 .2 | .8 .05 in four groups of which two are kept: group scores .9 .6 .3 .8.
func TestGroupsLimitTheChoice(t *testing.T) {
	logits := odds(.9, .1, .5, .6, .3, .2, .8, .05)
	got := onLogits(8, moe.Router[float64]{K: 2, Score: moe.Sigmoid, Groups: moe.Groups{N: 4, Top: 2}}).run(one(nil, logits))
	require.Equal(t, []int32{0, 6}, got.route.Expert)
	require.InDeltaSlice(t, []float64{.9 / 1.7, .8 / 1.7}, got.route.Prob, 1e-12)
	// With one group kept, its score is the sum of its two largest: 1.0, 1.1, .5, .85.
	got = onLogits(8, moe.Router[float64]{K: 2, Score: moe.Sigmoid, Groups: moe.Groups{N: 4, Top: 1}}).run(one(nil, logits))
	require.Equal(t, []int32{3, 2}, got.route.Expert)
	// The bias moves groups: .3 more on expert 5 makes the third group's score .8 = .3 + .5.
	got = onLogits(8, moe.Router[float64]{K: 2, Score: moe.Sigmoid, Groups: moe.Groups{N: 4, Top: 1}, Bias: biased(0, 0, 0, 0, .7, .7, 0, 0)}).run(one(nil, logits))
	require.Equal(t, []int32{4, 5}, got.route.Expert)
	require.InDeltaSlice(t, []float64{.6, .4}, got.route.Prob, 1e-12)
}

// §5.2: softmax after the choice chooses by logits, groups too; before the choice by probabilities. The sums of the
// groups' logits are 0 and 2, those of their probabilities are ordered the other way.
func TestGroupsOfSoftmaxUseWhatTheTopKUses(t *testing.T) {
	logits := []float64{4, -4, 1, 1}
	groups := moe.Groups{N: 2, Top: 1}
	got := onLogits(4, moe.Router[float64]{K: 2, Groups: groups}).run(one(nil, logits))
	require.Equal(t, []int32{2, 3}, got.route.Expert)
	got = onLogits(4, moe.Router[float64]{K: 2, PreSoftmax: true, Groups: groups}).run(one(nil, logits))
	require.Equal(t, []int32{0, 1}, got.route.Expert)
}

// §5.2: sqrt(log(1 + e^x)) of log(e−1), log(e⁴−1), log(e⁹−1) is 1, 2, 3.
func TestScoresWeighAsStated(t *testing.T) {
	squares := []float64{math.Log(math.Expm1(1)), math.Log(math.Expm1(4)), math.Log(math.Expm1(9))}
	got := onLogits(3, moe.Router[float64]{K: 2, Score: moe.SqrtSoftplus}).run(one(nil, squares))
	require.Equal(t, []int32{2, 1}, got.route.Expert)
	require.InDeltaSlice(t, []float64{.6, .4}, got.route.Prob, 1e-12)
	got = onLogits(3, moe.Router[float64]{K: 1, Score: moe.SqrtSoftplus, Scaling: 2.5}).run(one(nil, squares))
	require.InDeltaSlice(t, []float64{7.5}, got.route.Prob, 1e-12, "one expert is not normalised")

	p := logs([]float64{.5, .3, .2})[0]
	got = onLogits(3, moe.Router[float64]{K: 2}).run(one(nil, p))
	require.InDeltaSlice(t, []float64{.625, .375}, got.route.Prob, 1e-12)
	got = onLogits(3, moe.Router[float64]{K: 2, PreSoftmax: true, Scaling: 2}).run(one(nil, p))
	require.InDeltaSlice(t, []float64{1, .6}, got.route.Prob, 1e-12)
}

// The rows of §5.4, and rows for a second row of the batch whose own loss is .99375 with four tokens, 1.275 with two:
// n = (1,1,2), ΣP = (1.4,1.3,1.3), 3/16·5.3; n = (1,1,0), ΣP = (.9,.8,.3), 3/4·1.7.
var (
	rows54  = [][]float64{{.5, .3, .2}, {.1, .7, .2}, {.6, .2, .2}, {.2, .2, .6}}
	second4 = [][]float64{{.6, .2, .2}, {.3, .6, .1}, {.2, .2, .6}, {.3, .3, .4}}
)

func balanced(kind moe.BalancingKind, perRow bool, x batch) float64 {
	got := onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, Balancing: []moe.Balancing{{Kind: kind, Coeff: 1, PerRow: perRow}}}).run(x)
	return got.sums.Balancing[kind]
}

func TestAuxLossExamples(t *testing.T) {
	for _, kind := range []moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss} { // one row, one microbatch: all alike
		require.InDelta(t, 1.0125, balanced(kind, false, one(nil, logs(rows54...)...)), 1e-12)
		require.InDelta(t, 1.2, balanced(kind, false, one([]bool{false, false, false, true}, logs(rows54...)...)), 1e-12)
		require.Zero(t, balanced(kind, false, one([]bool{true, true, true, true}, logs(rows54...)...)))
	}
}

// Rows 0 and 1 on one rank, row 2 and the padding on another: .7333 + .4667.
func TestAuxLossOfShards(t *testing.T) {
	parts := make([]float64, 2)
	x := logs(rows54...)
	err := inproc.Run(mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(comm nn.Comm) {
			g := onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, Balancing: aux(moe.AuxLoss, 1)})
			shard(g.c, comm, 1, 4, []bool{false, false, false, true})
			rows := tensor.NewMat[float64](2, 3)
			copy(rows.Row(0), x[2*rank])
			copy(rows.Row(1), x[2*rank+1])
			g.router.Forward(g.c, rows)
			parts[rank] = g.c.Sums.Balancing[0]
		}}
	}, inproc.Options{})
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{2.2 / 3, 1.4 / 3}, parts, 1e-12)
}

// shard makes a context that of one rank of a sequence-parallel group.
func shard(c *nn.Ctx[float64], comm nn.Comm, b, s int, pad []bool) {
	c.Comm, c.SP, c.B, c.Frames, c.Sums = comm, true, b, nn.NewFrames(nil, b, s, 1, comm.Size(mesh.TP)), &nn.AuxSums{}
	c.Frame = c.Frames[0]
	c.SetPad((&nn.PadMask{B: b, S: s, Pad: pad}).Local(c.Frame).Shard(comm.Rank(mesh.TP), comm.Size(mesh.TP)))
}

func TestSeqAuxExamples(t *testing.T) {
	padding := [][]float64{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}
	two := batch{[][][]float64{logs(rows54...), logs(second4...)}, make([]bool, 8)}
	three := batch{append(append([][][]float64(nil), two.logits...), padding), append(make([]bool, 8), true, true, true, true)}
	uneven := batch{two.logits, []bool{false, false, false, false, false, false, true, true}}

	require.InDelta(t, 0.99375, balanced(moe.AuxLoss, false, one(nil, logs(second4...)...)), 1e-12)
	require.InDelta(t, 1.275, balanced(moe.AuxLoss, false, one([]bool{false, false, true, true}, logs(second4...)...)), 1e-12)

	require.InDelta(t, 1.003125, balanced(moe.SeqAuxLoss, false, two), 1e-12, "mean of 1.0125 and .99375")
	require.InDelta(t, 1.5046875, balanced(moe.SeqAuxLoss, false, three), 1e-12, "a row of padding: times 3/2")
	require.InDelta(t, 3.55/3, balanced(moe.SeqAuxLoss, false, uneven), 1e-12, "one T for both rows, 3: (1.8 + 1.7/3)/2")
	require.InDelta(t, 1.18333, balanced(moe.SeqAuxLoss, false, uneven), 1e-5)

	require.InDelta(t, 1.003125, balanced(moe.SeqAuxLoss, true, two), 1e-12)
	require.InDelta(t, 1.003125, balanced(moe.SeqAuxLoss, true, three), 1e-12, "rows without tokens are no rows")
	require.InDelta(t, 1.14375, balanced(moe.SeqAuxLoss, true, uneven), 1e-12, "mean of 1.0125 and 1.275")
}

// With fewer valid tokens than rows upstream's average length falls below one and is clamped: n = (1,0,0), P = (.5,…),
// A = 3·.5/1² in one of three rows; unclamped, T = 1/3, it would be nine times that.
func TestSeqAuxClampsAFractionOfAToken(t *testing.T) {
	x := batch{[][][]float64{logs(rows54[0]), logs(rows54[1]), logs(rows54[2])}, []bool{false, true, true}}
	require.InDelta(t, 0.5, balanced(moe.SeqAuxLoss, false, x), 1e-12)
	require.InDelta(t, 1.5, balanced(moe.SeqAuxLoss, true, x), 1e-12)
}

// Global balancing: n is the mean over the step's microbatches, T the present one's. Second microbatch of the first
// test: n = ((2,1,1)+(1,1,0))/2, ΣP = (.9,.8,.3), T = 2: 3/4·(1.35+.8+.15).
func TestGlobalAuxRunsOverTheStep(t *testing.T) {
	g := onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, Balancing: aux(moe.GlobalAuxLoss, 1)})
	first, second := one(nil, logs(rows54...)...), one([]bool{false, false, true, true}, logs(second4...)...)
	require.InDelta(t, 1.0125, g.run(first).sums.Balancing[moe.GlobalAuxLoss], 1e-12)
	require.InDelta(t, 1.725, g.run(second).sums.Balancing[moe.GlobalAuxLoss], 1e-12)
	g.router.StartStep(0)
	require.InDelta(t, 1.275, g.run(second).sums.Balancing[moe.GlobalAuxLoss], 1e-12, "a new step starts anew")
}

// Global balancing over two replicas: n and T are of both, each has the part of its own rows. n = (3,2,2), T = 8:
// 3/64·(4.2+2.8+2.4 | 4.2+2.6+2.6).
func TestGlobalAuxOverReplicas(t *testing.T) {
	parts := make([]float64, 2)
	err := inproc.Run(mesh.Sizes{TP: 1, CP: 1, DP: 2, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(comm nn.Comm) {
			g := onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, Balancing: aux(moe.GlobalAuxLoss, 1)})
			g.c.Comm = comm
			parts[rank] = g.run(one(nil, logs([][][]float64{rows54, second4}[rank]...)...)).sums.Balancing[moe.GlobalAuxLoss]
		}}
	}, inproc.Options{})
	require.NoError(t, err)
	// n: rows54 (2,1,1), second4 (1,1,2).
	require.InDeltaSlice(t, []float64{3. / 64 * (3*1.4 + 2*1.4 + 3*1.2), 3. / 64 * (3*1.4 + 2*1.3 + 3*1.3)}, parts, 1e-12)
}

// §5.5: lse² = 1.981, 7.610 | 37.19.
func TestZLossExamples(t *testing.T) {
	rows := [][]float64{{1, 0, -1}, {2, 2, 0}, {5, 5, 5}, {9, 9, 9}}
	pad := []bool{false, false, false, true}
	got := onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, ZCoeff: 1}).run(one(pad, rows...))
	require.InDelta(t, 15.595, got.sums.Z, 2e-3)
	got = onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, ZCoeff: 1}).run(one([]bool{true, true, true, true}, rows...))
	require.Zero(t, got.sums.Z)
	for _, upstream := range []bool{false, true} {
		sum := 0.0
		err := inproc.Run(mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
			return []func(nn.Comm){func(comm nn.Comm) {
				g := onLogits(3, moe.Router[float64]{K: 1, PreSoftmax: true, ZCoeff: 1})
				shard(g.c, comm, 1, 4, pad)
				g.c.Upstream = upstream
				x := tensor.NewMat[float64](2, 3)
				copy(x.Row(0), rows[2*rank])
				copy(x.Row(1), rows[2*rank+1])
				g.router.Forward(g.c, x)
				sum += g.c.Sums.Z
			}}
		}, inproc.Options{})
		require.NoError(t, err)
		require.InDelta(t, map[bool]float64{false: 15.595, true: 20.99}[upstream], sum, 6e-3, "upstream averages the ranks' means")
	}
}

// toExperts is one row a token that goes to the expert named.
func toExperts(e int, choices ...int) [][]float64 {
	var rows [][]float64
	for _, c := range choices {
		row := make([]float64, e)
		row[c] = 20
		rows = append(rows, row)
	}
	return rows
}

// times is an expert several times over.
func times(counts ...int) []int {
	var out []int
	for e, n := range counts {
		for range n {
			out = append(out, e)
		}
	}
	return out
}

// moved is a bias after one step with the given counts of valid rows, and rows of padding.
func moved(b *moe.Bias[float64], counts []int, padding ...int) []float64 {
	choices := append(times(counts...), padding...)
	pad := make([]bool, len(choices))
	for i := range padding {
		pad[len(choices)-1-i] = true
	}
	g := onLogits(len(counts), moe.Router[float64]{K: 1, Score: moe.Sigmoid, Bias: b})
	g.run(one(pad, toExperts(len(counts), choices...)...))
	b.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
	return b.Values
}

// B1 of docs/examples.md: counts (10,2,4,0) have mean 4. Padding does not count: with it the signs would be (0,0,−,+).
func TestExpertBiasExamples(t *testing.T) {
	require.InDeltaSlice(t, []float64{.099, .001, 0, .001}, moved(biased(.1, 0, 0, 0), []int{10, 2, 4, 0}), 1e-15)
	require.Equal(t, []float64{-.001, -.001, .001, .001}, moved(biased(0, 0, 0, 0), []int{2, 2, 1, 0}, 2, 2, 2))
	require.Equal(t, []float64{.1, -.2, 0, .3}, moved(biased(.1, -.2, 0, .3), []int{0, 0, 0, 0}, 0, 1, 1, 1), "all padding moves nothing")
}

// B11 of docs/examples.md: the bias is constant during a step. Counts [4,0] and [0,4] of two microbatches add to [4,4].
func TestB11_BiasMovesAtTheEndOfAStep(t *testing.T) {
	b := biased(0, 0)
	g := onLogits(2, moe.Router[float64]{K: 1, Score: moe.Sigmoid, Bias: b})
	g.run(one(nil, toExperts(2, 0, 0, 0, 0)...))
	require.Equal(t, []float64{0, 0}, b.Values)
	near := []float64{0, 0.0005} // expert 1 by a margin that one move of the bias would turn round
	got := g.run(one(nil, near, near, near, near))
	require.Equal(t, []int32{1, 1, 1, 1}, got.route.Expert)
	b.Update(nn.Solo{}, nn.Site{Phase: nn.Update})
	require.Equal(t, []float64{0, 0}, b.Values)
}

// §5.8: four rows, one choice, two experts, factor 1: C = 2. Column 0 has .9 .8 .7, row 3 goes to expert 1.
func TestCapacityExamples(t *testing.T) {
	scores := func(first ...float64) [][]float64 {
		var rows [][]float64
		for _, p := range first {
			rows = append(rows, []float64{p, 1 - p})
		}
		return logs(append(rows, []float64{.01, .99})...)
	}
	run := func(c moe.Capacity, pad []bool, rows [][]float64) outcome[float64] {
		return onLogits(2, moe.Router[float64]{K: 1, PreSoftmax: true, Capacity: c}).run(one(pad, rows...))
	}
	got := run(moe.Capacity{Factor: 1}, nil, scores(.9, .8, .7))
	require.Equal(t, []int32{0, 0, -1, 1}, got.route.Expert)
	require.InDeltaSlice(t, []float64{.9, .8, 0, .99}, got.route.Prob, 1e-12, "what is left is not normalised again")
	require.Equal(t, []float64{2, 1}, got.get("router.tokens_per_expert"))
	require.Equal(t, []int32{-1, 0, 0, 1}, run(moe.Capacity{Factor: 1}, nil, scores(.7, .8, .9)).route.Expert)
	require.Equal(t, []int32{0, 0, -1, 1}, run(moe.Capacity{Factor: 1, ByPosition: true}, nil, scores(.7, .8, .9)).route.Expert)
	require.Equal(t, []int32{0, 0, 0, 1}, run(moe.Capacity{Factor: 2}, nil, scores(.9, .8, .7)).route.Expert)
	// Padding occupies capacity, and does not count.
	got = run(moe.Capacity{Factor: 1}, []bool{true, false, false, false}, scores(.9, .8, .7))
	require.Equal(t, []int32{0, 0, -1, 1}, got.route.Expert)
	require.Equal(t, []float64{1, 1}, got.get("router.tokens_per_expert"))
	// C is rounded up: 4·1/2·1.25 = 2.5.
	require.Equal(t, []int32{0, 0, 0, 1}, run(moe.Capacity{Factor: 1.25}, nil, scores(.9, .8, .7)).route.Expert)
	// Equal probabilities: the lowest row, position first and row of the batch second.
	same := scores(.8, .8, .8)
	require.Equal(t, []int32{0, 0, -1, 1}, run(moe.Capacity{Factor: 1}, nil, same).route.Expert)
	two := onLogits(2, moe.Router[float64]{K: 1, PreSoftmax: true, Capacity: moe.Capacity{Factor: .75}}).run(batch{[][][]float64{same, same}, nil})
	require.Equal(t, []int32{0, 0, 0, -1, -1, -1, 1, 1}, two.route.Expert, "C = ceil(8/2·.75) = 3 of rows (0,0) (0,1) (1,0) …")
	two = onLogits(2, moe.Router[float64]{K: 1, PreSoftmax: true, Capacity: moe.Capacity{Factor: .75, ByPosition: true}}).run(batch{[][][]float64{same, same}, nil})
	require.Equal(t, []int32{0, 0, 0, -1, -1, -1, 1, 1}, two.route.Expert)
}

// Filled up to C = 2 rows: experts take rows that did not choose them, expert e from row e·4/E on. Their probability is 0,
// and they count nowhere.
func TestPaddedCapacityExamples(t *testing.T) {
	run := func(factor float64, rows ...[]float64) outcome[float64] {
		c := moe.Capacity{Factor: factor, Pad: true}
		return onLogits(len(rows[0]), moe.Router[float64]{K: 1, PreSoftmax: true, Capacity: c}).run(one(nil, logs(rows...)...))
	}
	got := run(1, []float64{.9, .1}, []float64{.8, .2}, []float64{.7, .3}, []float64{.01, .99})
	require.Equal(t, 2, got.route.K)
	require.Equal(t, []int32{0, -1, 0, -1, -1, 1, 1, -1}, got.route.Expert, "row 2 is dropped by expert 0 and fills expert 1 up")
	require.InDeltaSlice(t, []float64{.9, 0, .8, 0, 0, 0, .99, 0}, got.route.Prob, 1e-12)
	require.Equal(t, []float64{2, 1}, got.get("router.tokens_per_expert"))
	require.Equal(t, []float64{1, 0, 1, 0, 0, 0, 0, 1}, got.get("router.routing_map"))
	// Everything goes to expert 0. C = ceil(4/4·2) = 2: experts 1, 2 and 3 take rows 1 2, 2 3 and 3 0.
	all := []float64{.7, .1, .1, .1}
	got = run(2, all, all, all, all)
	require.Equal(t, []int32{0, 3, -1, 0, 1, -1, -1, 1, 2, -1, 2, 3}, got.route.Expert)
	// More than there are rows: C = 8, and an expert computes each of the four once.
	got = run(8, all, all, all, all)
	require.Equal(t, []int32{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, got.route.Expert)
}

// D7: the lowest index wins everywhere, among values that are equal as stored too: both σ(50) and σ(60) are 1.
func TestTiesGoToTheLowestIndexEverywhere(t *testing.T) {
	for name, c := range map[string]struct {
		r      moe.Router[float64]
		logits []float64
		want   []int32
	}{
		"softmax":           {moe.Router[float64]{K: 2}, []float64{1, 3, 3, 3}, []int32{1, 2}},
		"softmax, all":      {moe.Router[float64]{K: 3}, []float64{2, 2, 2, 2}, []int32{0, 1, 2}},
		"pre-softmax":       {moe.Router[float64]{K: 2, PreSoftmax: true}, []float64{1, 3, 3, 3}, []int32{1, 2}},
		"fused":             {moe.Router[float64]{K: 2, Fused: true}, []float64{1, 3, 3, 3}, []int32{1, 2}},
		"sigmoid":           {moe.Router[float64]{K: 2, Score: moe.Sigmoid}, []float64{0, 50, 60, 50}, []int32{1, 2}},
		"sqrtsoftplus":      {moe.Router[float64]{K: 2, Score: moe.SqrtSoftplus}, []float64{-1, 4, 4, 4}, []int32{1, 2}},
		"bias":              {moe.Router[float64]{K: 1, Score: moe.Sigmoid, Bias: biased(0, .25, .25, 0)}, []float64{0, 0, 0, 0}, []int32{1}},
		"groups":            {moe.Router[float64]{K: 1, Score: moe.Sigmoid, Groups: moe.Groups{N: 2, Top: 1}}, []float64{0, 1, 1, 0}, []int32{1}},
		"groups, two":       {moe.Router[float64]{K: 4, Score: moe.Sigmoid, Groups: moe.Groups{N: 4, Top: 2}}, []float64{1, 0, 0, 1, 1, 0, 0, 1}, []int32{0, 3, 1, 2}},
		"minus zero":        {moe.Router[float64]{K: 1, PreSoftmax: true}, []float64{-1, 0, -0.0, 0}, []int32{1}},
		"fewer than finite": {moe.Router[float64]{K: 2, PreSoftmax: true, Groups: moe.Groups{N: 3, Top: 1}}, []float64{1, 1, 2, 2, 2, 2}, []int32{2, 3}},
	} {
		got := onLogits(len(c.logits), c.r).run(one(nil, c.logits))
		require.Equal(t, c.want, got.route.Expert, name)
	}
	// What the balancing losses count breaks ties alike: row (0,0), n = (1,0), P = (.5,.5): 2/1·.5.
	got := onLogits(2, moe.Router[float64]{K: 1, Score: moe.Sigmoid, Balancing: aux(moe.AuxLoss, 1)}).run(one(nil, []float64{0, 0}))
	require.InDelta(t, 1, got.sums.Balancing[0], 1e-12)
	require.Equal(t, []float64{1, 0}, got.get("router.tokens_per_expert"))
}

// §5.3: the balancing losses see neither bias nor groups nor drops: both rows' plain choice is expert 0, P = (.9,.1)
// normalised, n = (2,0): 2/4·2·1.8.
func TestBalancingSeesThePlainChoice(t *testing.T) {
	rows := [][]float64{odds(.9, .1), odds(.9, .1)}
	for name, r := range map[string]moe.Router[float64]{
		"bias":     {Score: moe.Sigmoid, Bias: biased(0, 5)},
		"capacity": {Score: moe.Sigmoid, Capacity: moe.Capacity{Factor: 1}},
		"replay":   {Score: moe.Sigmoid, Replay: tape{{Router: "test"}: {1, 1}}.player(1)},
		"groups":   {Score: moe.Sigmoid, Groups: moe.Groups{N: 2, Top: 1}, Bias: biased(0, 5)},
	} {
		r.K, r.Balancing = 1, aux(moe.AuxLoss, 1)
		got := onLogits(2, r).run(one(nil, rows...))
		require.InDelta(t, 1.8, got.sums.Balancing[0], 1e-12, name)
		want := map[string][]float64{"bias": {0, 2}, "capacity": {1, 0}, "replay": {0, 2}, "groups": {0, 2}}[name]
		require.Equal(t, want, got.get("router.tokens_per_expert"), name)
	}
}
