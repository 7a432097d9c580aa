package train_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/train"
)

// One rank: forward and backward of each microbatch in turn.
func TestScheduleOfOneRank(t *testing.T) {
	require.Equal(t, "rank 0: F0.0 B0.0 F1.0 B1.0 F2.0 B2.0", train.ScheduleText(0, train.Pipeline{Microbatches: 3}.Schedule(0)))
}

// The published drawing of 1F1B on four ranks.
func TestOneForwardOneBackward(t *testing.T) {
	p := train.Pipeline{PP: 4, Microbatches: 5}
	for rank, want := range []string{
		"rank 0: F0.0 F1.0 F2.0 F3.0 B0.0 F4.0 B1.0 B2.0 B3.0 B4.0",
		"rank 1: F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 F4.0 B2.0 B3.0 B4.0",
		"rank 2: F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 F4.0 B3.0 B4.0",
		"rank 3: F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0 F4.0 B4.0",
	} {
		require.Equal(t, want, train.ScheduleText(rank, p.Schedule(rank)))
		require.Equal(t, 3-rank, p.Warmup(rank))
		require.Equal(t, []int{4 - rank}, train.InFlight(p.Schedule(rank), 1))
	}
}

// SEMANTICS §9.2: p 4, v 2, g 4, M 8 warm up with 10, 8, 6, 4 passes.
func TestInterleaved(t *testing.T) {
	p := train.Pipeline{PP: 4, VPP: 2, Microbatches: 8}
	require.NoError(t, p.Check())
	for rank, want := range []int{10, 8, 6, 4} {
		require.Equal(t, want, p.Warmup(rank))
		ops := p.Schedule(rank)
		require.Equal(t, train.BackwardOp, ops[want+1].Kind)
		for _, op := range ops[:want+1] {
			require.Equal(t, train.ForwardOp, op.Kind)
		}
	}
	small := train.Pipeline{PP: 2, VPP: 2, Microbatches: 4}
	require.Equal(t, "rank 1: F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0",
		train.ScheduleText(1, small.Schedule(1)))
	small.ForwardOnly = true
	require.Equal(t, "rank 0: F0.0 F1.0 F0.1 F1.1 F2.0 F3.0 F2.1 F3.1", train.ScheduleText(0, small.Schedule(0)))
	require.Equal(t, []int{1, 1}, train.InFlight(small.Schedule(0), 2))
}

func TestNoSchedule(t *testing.T) {
	for want, p := range map[string]train.Pipeline{
		"groups of 3 microbatches are smaller than pipeline_model_parallel_size 4; nearest legal: 4":       {PP: 4, VPP: 2, Group: 3, Microbatches: 8},
		"take groups of 4 microbatches, and a step has 3 on each data-parallel rank":                       {PP: 4, VPP: 2, Microbatches: 3},
		"10 microbatches are groups of 4 and a last one of 2, smaller than pipeline_model_parallel_size 4": {PP: 4, VPP: 2, Microbatches: 10},
	} {
		require.ErrorContains(t, p.Check(), want)
	}
	require.NoError(t, train.Pipeline{PP: 4, VPP: 2, Group: 5, Microbatches: 9}.Check(), "a last group of 4 is large enough")
	require.NoError(t, train.Pipeline{PP: 4, Microbatches: 1}.Check(), "1F1B takes any number")
}

// pipelines draws pipelines that have a schedule.
func pipelines(r *rapid.T) train.Pipeline {
	p := train.Pipeline{PP: rapid.IntRange(1, 6).Draw(r, "p"), VPP: rapid.IntRange(1, 4).Draw(r, "v")}
	if p.VPP == 1 {
		p.Microbatches = rapid.IntRange(1, 12).Draw(r, "M")
		return p
	}
	p.Group = rapid.IntRange(p.PP, p.PP+3).Draw(r, "g")
	last := rapid.SampledFrom(append([]int{0}, between(p.PP, p.Group-1)...)).Draw(r, "last group")
	p.Microbatches = p.Group*rapid.IntRange(1, 3).Draw(r, "groups") + last
	return p
}

func between(low, high int) []int {
	var out []int
	for i := low; i <= high; i++ {
		out = append(out, i)
	}
	return out
}

// I27, on a rank alone: every pass once, forward before backward, ascending on every chunk, in flight at most W+1.
func TestI27_SchedulesAreInOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := pipelines(r)
		require.NoError(r, p.Check())
		for rank, ops := range p.Schedules() {
			require.Len(r, ops, 2*p.VPP*p.Microbatches)
			next, flying, most := map[[2]int]int{}, 0, 0
			for _, op := range ops {
				of := [2]int{int(op.Kind), op.Chunk}
				require.Equal(r, next[of], op.Microbatch, "the next of %s on its chunk", op)
				next[of]++
				if op.Kind == train.BackwardOp {
					require.Less(r, op.Microbatch, next[[2]int{int(train.ForwardOp), op.Chunk}], "%s after its forward", op)
					flying--
				} else {
					flying++
				}
				most = max(most, flying)
			}
			require.LessOrEqual(r, most, p.Warmup(rank)+1)
			require.Zero(r, flying)
			sum := 0
			for _, n := range train.InFlight(ops, p.VPP) {
				sum += n
			}
			require.GreaterOrEqual(r, sum, most)
		}
	})
}
