package supervise

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/transport/natslink/plane"
)

func TestWaiting(t *testing.T) {
	workers := []Worker{{Ranks: []int{0, 1}}, {Ranks: []int{2, 3}}, {Ranks: []int{4}}, {Ranks: []int{5}}}
	signs := []Sign{
		{Age: 50 * time.Millisecond, Beat: plane.Beat{Worker: 1, Incarnation: 3, Ranks: []plane.RankBeat{
			{Rank: 2, Step: 12, Op: "layer.1.backward"},
			{Rank: 3, Step: 12, Op: "mtp.2.forward tp all-reduce", WaitsFor: []int{2}, WaitedNs: 1_234_000_000}}}},
		{Age: 3 * time.Second, Beat: plane.Beat{Worker: 0, Incarnation: 1, Ranks: []plane.RankBeat{
			{Rank: 0, Step: 12, Op: "dp all-reduce", WaitsFor: []int{1, 2}, WaitedNs: 80_000_000}, {Rank: 1, Step: 13, Done: true}}}},
		{Beat: plane.Beat{Worker: 2, Incarnation: 1, Ranks: []plane.RankBeat{{Rank: 4, WaitsFor: []int{3}}}}},
		{Beat: plane.Beat{Worker: 4, Incarnation: 1, Ranks: []plane.RankBeat{{Rank: 6, Step: 12, Holds: true}}}},
	}
	require.Equal(t, []string{
		"rank 0 (tp 0) waits for ranks 1 2 in dp all-reduce since 80 ms, step 12 (so it said 3.0 s ago)",
		"rank 1 (tp 1) is done (so it said 3.0 s ago)",
		"rank 2 (tp 0) works in layer.1.backward, step 12, life 3",
		"rank 3 (tp 1) waits for rank 2 in mtp.2.forward tp all-reduce since 1.2 s, step 12, life 3",
		"rank 4 (tp 0) waits for rank 3 since 0 ms, step 0",
		"rank 5 (tp 1) has not said anything yet",
		"rank 6 (tp 0) holds until the end of the run is agreed upon, step 12",
		"all who wait, wait for ranks 1 2",
	}, Waiting(workers, signs, func(r int) string { return fmt.Sprint("tp ", r%2) }, false))

	circle := []Sign{{Beat: plane.Beat{Ranks: []plane.RankBeat{{Rank: 0, WaitsFor: []int{1}}, {Rank: 1, WaitsFor: []int{0}}}}}}
	lines := Waiting(nil, circle, nil, true)
	require.Len(t, lines, 3)
	require.Contains(t, lines[2], "everybody waits, and nobody is left to wait for")
	require.Equal(t, lines[:2], Waiting(nil, circle, nil, false), "what two ranks say at different moments of a run that moves is no circle")
	require.Equal(t, []string{"rank 7 works, step 0"}, Waiting(nil, []Sign{{Beat: plane.Beat{Ranks: []plane.RankBeat{{Rank: 7}}}}}, nil, true))
}

func TestPace(t *testing.T) {
	var p Pace
	require.Empty(t, p.Table())
	for step := uint32(1); step <= 100; step++ {
		for range 3 { // heartbeats of one step
			b := plane.Beat{}
			for r := range 4 {
				ms := int64(10 + r)
				if r == 2 {
					ms = 20
				}
				if step%10 == 0 {
					ms *= 50 // one step in ten is disturbed
				}
				b.Ranks = append(b.Ranks, plane.RankBeat{Rank: r, Step: step, ComputeNs: ms * 1e6})
			}
			b.Ranks = append(b.Ranks, plane.RankBeat{Rank: 4, Step: step}) // has no time to tell
			p.Take(b)
		}
	}
	rows := p.Table()
	require.Equal(t, []Row{
		{Rank: 2, Steps: 64, Compute: 20 * time.Millisecond, Ratio: 20.0 / 11, Slow: true},
		{Rank: 3, Steps: 64, Compute: 13 * time.Millisecond, Ratio: 13.0 / 11},
		{Rank: 1, Steps: 64, Compute: 11 * time.Millisecond, Ratio: 1},
		{Rank: 0, Steps: 64, Compute: 10 * time.Millisecond, Ratio: 10.0 / 11},
	}, rows)
	require.Contains(t, PaceText(rows, nil), "rank 2                         20.0 ms a step   1.82 × the median  (64 steps)  slow\n")
}
