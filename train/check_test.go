package train_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/mesh"
	"phalanx/train"
)

// one is a layout with one decoder layer in every chunk.
func one(t require.TestingT, p train.Pipeline) mesh.Layout {
	l, err := mesh.Even(p.PP, max(p.VPP, 1), mesh.Stack{Layers: p.PP * max(p.VPP, 1)}, mesh.Split{})
	require.NoError(t, err)
	return l
}

func check(t require.TestingT, p train.Pipeline) *train.Plan {
	plan, err := train.CheckPlan(p, one(t, p), p.Schedules())
	require.NoError(t, err)
	return plan
}

// By hand: the pipeline fills and empties in (p−1) forward and backward passes; work is v·M of each.
func TestBubble(t *testing.T) {
	for _, p := range []train.Pipeline{
		{PP: 1, Microbatches: 3}, {PP: 2, Microbatches: 1}, {PP: 4, Microbatches: 8}, {PP: 4, Microbatches: 2}, {PP: 8, Microbatches: 32},
		{PP: 2, VPP: 2, Microbatches: 2}, {PP: 4, VPP: 2, Microbatches: 8}, {PP: 4, VPP: 3, Microbatches: 12}, {PP: 4, VPP: 2, Microbatches: 8, Group: 8},
		{PP: 4, VPP: 2, Microbatches: 9, Group: 5}, {PP: 3, VPP: 4, Microbatches: 9},
	} {
		plan, vM := check(t, p), max(p.VPP, 1)*p.Microbatches
		require.Equal(t, 3*vM, plan.Work)
		require.Equal(t, 3*(vM+p.PP-1), plan.Makespan, "%+v", p)
		require.InDelta(t, float64(p.PP-1)/float64(vM), plan.Bubble(), 1e-15)
	}
	require.Equal(t, 15, check(t, train.Pipeline{PP: 4, Microbatches: 12, ForwardOnly: true}).Makespan, "12 passes, the last rank starts after 3")
}

// By hand, p 4, M 8: rank r is at most 4−r microbatches ahead of its backward passes, so that chunk 1 can have the rows of 4
// waiting, chunk 2 of 3, chunk 3 of 2; and so with the gradients that come back.
func TestMailboxes(t *testing.T) {
	plan := check(t, train.Pipeline{PP: 4, Microbatches: 8})
	require.Equal(t, [][]int{{4}, {3}, {2}, {1}}, plan.InFlight)
	const f, b = train.ForwardOp, train.BackwardOp
	require.Equal(t, []train.Edge{{f, 0, 1, 4}, {f, 1, 2, 3}, {f, 2, 3, 2}, {b, 1, 0, 4}, {b, 2, 1, 3}, {b, 3, 2, 2}}, plan.Edges)
	for _, e := range check(t, train.Pipeline{PP: 3, Microbatches: 7, ForwardOnly: true}).Edges {
		require.Equal(t, 7, e.Mailbox, "nothing holds a rank back")
	}
}

// Groups smaller than the pipeline deadlock; Check refuses them before, CheckPlan proves it.
func TestSmallGroupsDeadlock(t *testing.T) {
	p := train.Pipeline{PP: 4, VPP: 2, Group: 2, Microbatches: 8}
	_, err := train.CheckPlan(p, one(t, p), p.Schedules())
	require.EqualError(t, err, "passes wait for each other: rank 0 in F3.1 waits for the rows of microbatch 3 for chunk 4, which rank 3 sends in F3.0; "+
		"rank 3 in B0.0 waits for the gradient of microbatch 0 for chunk 3, which rank 0 sends in B0.1")
}

func TestBadSchedules(t *testing.T) {
	p := train.Pipeline{PP: 2, Microbatches: 3}
	const good0, good1 = "F0.0 F1.0 B0.0 F2.0 B1.0 B2.0", "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"
	for _, c := range []struct{ rank0, rank1, want string }{
		{good0, good1, ""},
		{"F0.0 B0.0 F1.0 B1.0 F2.0 B2.0", good1, ""}, // no overlap, and it ends
		{"F0.0 B0.0 F1.0 F2.0 B1.0 B2.0", "F0.0 F1.0 B0.0 B1.0 F2.0 B2.0", "passes wait for each other: rank 0 in B0.0 waits for the gradient of microbatch 0 for chunk 0, which rank 1 sends in B0.0; " +
			"rank 1 in F1.0 waits for the rows of microbatch 1 for chunk 1, which rank 0 sends in F1.0"},
		{good0, "B0.0 F0.0 F1.0 B1.0 F2.0 B2.0", "rank 1 runs B0.0 before F0.0, whose activations it needs"},
		{"F0.0 F1.0 B0.0 B1.0 B2.0", good1, "rank 0 runs B2.0 before F2.0"},
		{"F0.0 F1.0 B0.0 B1.0", good1, "rank 0 never runs F2.0"},
		{good0, "F0.0 B0.0 F1.0 F2.0 B2.0", "rank 1 never runs B1.0"},
		{good0, "F0.0 B0.0 F1.0 B1.0 F1.0 B2.0", "rank 1 runs F1.0 twice"},
		{good0, "F0.0 B0.0 F1.1 B1.0 F2.0 B2.0", "rank 1 runs F1.1; expected microbatches 0 to 2 of virtual chunks 0 to 0"},
		{good0, "F0.0 B0.0 F3.0 B1.0 F2.0 B2.0", "rank 1 runs F3.0; expected microbatches 0 to 2 of virtual chunks 0 to 0"},
	} {
		_, err := train.CheckPlan(p, one(t, p), [][]train.Op{ops(t, c.rank0), ops(t, c.rank1)})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
	_, err := train.CheckPlan(p, one(t, p), [][]train.Op{ops(t, good0)})
	require.ErrorContains(t, err, "found schedules of 1 ranks, expected 2")
	_, err = train.CheckPlan(train.Pipeline{PP: 2, VPP: 2, Microbatches: 3}, one(t, p), nil)
	require.ErrorContains(t, err, "the schedules are for 2 ranks with 2 chunks, the layout for 2 with 1")
	p.ForwardOnly = true
	_, err = train.CheckPlan(p, one(t, p), [][]train.Op{ops(t, good0), ops(t, good1)})
	require.ErrorContains(t, err, "rank 0 runs B0.0 in a schedule of forward passes only")
}

// Wrong messages of right schedules.
func TestBadMessages(t *testing.T) {
	p := train.Pipeline{PP: 3, Microbatches: 2}
	for want, plant := range map[string]func(passes [][]train.Pass){
		"rank 0 in F0.0 sends the rows of microbatch 0 for chunk 1 to rank 2, and rank 1 waits for it in F0.0":                      func(p [][]train.Pass) { p[0][0].Gives[0].To = 2 },
		"rank 1 in F0.0 waits for the rows of microbatch 0 for chunk 1 from rank 2, and rank 0 sends it in F0.0":                    func(p [][]train.Pass) { p[1][0].Takes[0].From = 2 },
		"rank 1 in F0.0 waits for the rows of microbatch 0 for chunk 1, which no rank sends":                                        func(p [][]train.Pass) { p[0][0].Gives = nil },
		"rank 0 in F0.0 sends the rows of microbatch 0 for chunk 1, which no rank takes":                                            func(p [][]train.Pass) { p[1][0].Takes = nil },
		"rank 0 in F1.0 sends the rows of microbatch 0 for chunk 1, and so does rank 0 in F0.0; expected one":                       func(p [][]train.Pass) { p[0][1].Gives[0].Microbatch = 0 },
		"rank 2 in F1.0 takes the rows of microbatch 1 for chunk 1, and so does rank 1 in F1.0; expected one":                       func(p [][]train.Pass) { p[2][2].Takes[0].Chunk = 1 },
		"rank 0 in F0.0 sends the rows of microbatch 0 for chunk 3; expected microbatches 0 to 1, chunks 0 to 2":                    func(p [][]train.Pass) { p[0][0].Gives[0].Chunk = 3 },
		"rank 1 runs F0.0 of chunk 2, which is virtual chunk 0 of rank 2":                                                           func(p [][]train.Pass) { p[1][0].Stage = 2 },
		"passes wait for each other: rank 0 in F0.0 waits for the gradient of microbatch 0 for chunk 0, which rank 1 sends in B0.0": func(p [][]train.Pass) { p[0][0].Takes, p[0][2].Takes = p[0][2].Takes, nil },
	} {
		l := one(t, p)
		passes, err := train.Expand(l, p.Microbatches, p.Schedules())
		require.NoError(t, err)
		_, err = train.CheckPasses(p, l, passes)
		require.NoError(t, err)
		plant(passes)
		_, err = train.CheckPasses(p, l, passes)
		require.ErrorContains(t, err, want)
	}
}

// ops reads the ops of a printed schedule.
func ops(t require.TestingT, text string) []train.Op {
	out, err := readOps(text)
	require.NoError(t, err)
	require.Equal(t, "rank 0: "+text, train.ScheduleText(0, out))
	return out
}

// I27: no deadlock within the mailbox bounds, whatever the delays and the order of arrival.
func TestI27_AnyOrderOfArrivalEnds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := pipelines(r)
		p.ForwardOnly = rapid.IntRange(0, 9).Draw(r, "forward only") == 0
		l := one(r, p)
		plan := check(r, p)
		s := newSim(r, p, l, p.Schedules())
		for _, e := range plan.Edges {
			s.bound[edge{e.Kind, e.To}] = e.Mailbox
			if !p.ForwardOnly {
				low := min(e.From, e.To)
				require.LessOrEqual(r, e.Mailbox, plan.InFlight[l.Rank(low)][l.Virtual(low)])
			}
		}
		require.Empty(r, s.run(), "ranks that wait for ever")
	})
}

// The static check finds a deadlock exactly when a run with random delays does: schedules are turned around at random.
func TestI27_CheckAgreesWithRuns(t *testing.T) {
	ended := map[bool]int{}
	rapid.Check(t, func(r *rapid.T) {
		p := train.Pipeline{PP: rapid.IntRange(2, 4).Draw(r, "p"), VPP: rapid.IntRange(1, 2).Draw(r, "v"), Microbatches: rapid.IntRange(1, 4).Draw(r, "M")}
		l, all := one(r, p), p.Schedules()
		for range rapid.IntRange(1, 4).Draw(r, "swaps") {
			list := all[rapid.IntRange(0, p.PP-1).Draw(r, "rank")]
			i := rapid.IntRange(0, len(list)-2).Draw(r, "place")
			if a, b := list[i], list[i+1]; a.Kind == b.Kind || a.Microbatch != b.Microbatch || a.Chunk != b.Chunk {
				list[i], list[i+1] = b, a
			}
		}
		plan, err := train.CheckPlan(p, l, all)
		s := newSim(r, p, l, all)
		if err == nil {
			for _, e := range plan.Edges {
				s.bound[edge{e.Kind, e.To}] = e.Mailbox
			}
		}
		stuck := s.run()
		require.Equal(r, err == nil, len(stuck) == 0, "check says %v, the run leaves %v", err, stuck)
		ended[err == nil]++
	})
	require.NotZero(t, ended[true])
	require.NotZero(t, ended[false])
}

// The mailbox bound is exact: some run reaches it and none exceeds it. All states of small pipelines are visited.
func TestMailboxBoundsAreReached(t *testing.T) {
	for _, p := range []train.Pipeline{{PP: 2, Microbatches: 3}, {PP: 3, Microbatches: 4}, {PP: 2, VPP: 2, Microbatches: 4}, {PP: 2, VPP: 2, Microbatches: 5, Group: 3}} {
		l := one(t, p)
		passes, err := train.Expand(l, p.Microbatches, p.Schedules())
		require.NoError(t, err)
		most := visit(passes)
		for _, e := range check(t, p).Edges {
			require.Equal(t, most[edge{e.Kind, e.To}], e.Mailbox, "%+v %+v", p, e)
		}
	}
}
